// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_live.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/json.h"
#include "server/http_client.h"

namespace pagewise::cli {
namespace {

// docs/design.md, promise 3: the plan equals what the server allocates.
constexpr double kKvPercentMax = 1;
constexpr double kProcessPercentMax = 3;
constexpr std::chrono::seconds kTimeLimit{30};

Error no_server(std::string_view what) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--live: {}; is this a Pagewise server?", what)};
}

/// 0 for what is none.
double number(std::string_view text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Result<double> require(const MetricsText& metrics, std::string_view name) {
  if (const auto value = metrics.value(name)) return *value;
  return no_server(fmt::format("its metrics have no {}", name));
}

/// Of the groups' samples the one of group `index`.
const MetricSample* of_group(const std::vector<MetricSample>& samples, std::size_t index,
                             std::string_view state = {}) {
  for (const MetricSample& sample : samples) {
    const auto group = sample.labels.find("group");
    const auto named = sample.labels.find("state");
    if (group == sample.labels.end() || group->second != std::to_string(index)) continue;
    if (state.empty() || (named != sample.labels.end() && named->second == state)) return &sample;
  }
  return nullptr;
}

class Comparison {
 public:
  Comparison(const planner::PlanInput& input, const MetricsText& metrics)
      : input_(input), metrics_(metrics) {}

  Result<std::vector<LiveRow>> make(const planner::ServerMemory& planned) {
    PW_RETURN_IF_ERROR(config());
    PW_RETURN_IF_ERROR(groups());
    PW_ASSIGN_OR_RETURN(const double committed, require(metrics_, "pagewise_kv_committed_bytes"));
    rows_.push_back({"KV blocks in use", in_use_, committed, kKvPercentMax});
    PW_ASSIGN_OR_RETURN(const double weights, require(metrics_, "pagewise_weight_bytes"));
    rows_.push_back({"weights", static_cast<double>(planned.weights), weights, kProcessPercentMax});
    PW_ASSIGN_OR_RETURN(const double process, require(metrics_, "process_resident_memory_bytes"));
    // A block's memory is taken when it is first written, so the blocks in use are the process's.
    rows_.push_back({"the whole process", static_cast<double>(planned.sum()) + in_use_, process,
                     kProcessPercentMax});
    return std::move(rows_);
  }

 private:
  /// What does not change while it runs.
  Status config() {
    const std::vector<MetricSample> found = metrics_.find("vllm:cache_config_info");
    if (found.size() != 1) return no_server("its metrics have no vllm:cache_config_info");
    const auto label = [&](std::string_view name) -> std::string {
      const auto at = found.front().labels.find(name);
      return at == found.front().labels.end() ? std::string() : at->second;
    };
    const std::string type =
        input_.key_format == input_.value_format
            ? std::string(input_.key_format->name)
            : fmt::format("K {}, V {}", input_.key_format->name, input_.value_format->name);
    if (label("cache_dtype") != type) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("--live: the server keeps KV as {}; give it with --kv-type",
                          label("cache_dtype"))};
    }
    const double block_tokens = number(label("block_size"));
    rows_.push_back(
        {"tokens a block", static_cast<double>(input_.block_tokens), block_tokens, 0, false});
    PW_ASSIGN_OR_RETURN(const auto cost, planner::cost_of(input_));
    rows_.push_back({"KV of a token", static_cast<double>(cost->token_bytes()),
                     number(label("block_bytes")) / std::max(block_tokens, 1.0), kKvPercentMax});
    return Status::ok();
  }

  Status groups() {
    const std::vector<MetricSample> blocks = metrics_.find("pagewise_kv_group_block_bytes");
    const std::vector<MetricSample> states = metrics_.find("pagewise_kv_group_blocks");
    const auto& layout = *input_.layout;
    if (blocks.size() != layout.groups.size()) {
      return no_server(fmt::format("it has {} groups of layers, the file {}", blocks.size(),
                                   layout.groups.size()));
    }
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
      planner::PlanInput alone = input_;
      alone.layout->groups = {layout.groups[g]};
      PW_ASSIGN_OR_RETURN(const auto cost, planner::cost_of(alone));
      const MetricSample* bytes = of_group(blocks, g);
      const MetricSample* live = of_group(states, g, "live");
      const MetricSample* cached = of_group(states, g, "cached");
      if (bytes == nullptr || live == nullptr || cached == nullptr) {
        return no_server(fmt::format("its metrics say nothing of group {}", g));
      }
      const auto planned = static_cast<double>(cost->block_bytes());
      const uint32_t window = layout.groups[g].window;
      rows_.push_back({window == 0 ? "a block of full layers"
                                   : fmt::format("a block of layers that keep {}", window),
                       planned, bytes->value, kKvPercentMax});
      in_use_ += (live->value + cached->value) * planned;
    }
    return Status::ok();
  }

  const planner::PlanInput& input_;
  const MetricsText& metrics_;
  std::vector<LiveRow> rows_;
  double in_use_ = 0;
};

}  // namespace

double LiveRow::percent_apart() const {
  if (planned == running) return 0;
  return running == 0 ? 100 : 100 * std::abs(planned - running) / std::abs(running);
}

Result<std::vector<LiveRow>> compare_live(const planner::PlanInput& input,
                                          const planner::ServerMemory& planned,
                                          const MetricsText& metrics) {
  PW_CHECK(input.layout.has_value());
  return Comparison(input, metrics).make(planned);
}

Result<MetricsText> fetch_metrics(const std::string& url, const std::string& key) {
  const Result<server::ServerUrl> server = server::parse_server_url(url);
  if (!server.has_value()) {
    return Error{ErrorCode::kInvalidArgument, "--live: " + server.error().message};
  }
  std::vector<server::HttpHeader> headers;
  if (!key.empty()) headers.push_back({"authorization", "Bearer " + key});
  PW_ASSIGN_OR_RETURN(const server::HttpAnswer answer,
                      server::http_get(*server, "/metrics", headers, kTimeLimit));
  if (answer.status == 200) return MetricsText(answer.body);
  return Error{ErrorCode::kIo,
               fmt::format("{}: /metrics answered with status {}{}", url, answer.status,
                           answer.status == 401 ? "; give its API key with --key" : "")};
}

std::string live_text(const std::vector<LiveRow>& rows) {
  std::string out = fmt::format("{:<34}{:>14}{:>14}{:>9}\n", "", "planned", "running", "apart");
  for (const LiveRow& row : rows) {
    const auto shown = [&](double value) {
      return row.bytes ? format_size(static_cast<uint64_t>(std::llround(value)))
                       : fmt::format("{:.0f}", value);
    };
    out += fmt::format("{:<34}{:>14}{:>14}{:>7.2f} %{}\n", row.name, shown(row.planned),
                       shown(row.running), row.percent_apart(),
                       row.holds() ? "" : fmt::format("  more than {:g} %", row.percent_max));
  }
  return out;
}

std::string live_json(const std::vector<LiveRow>& rows) {
  json::array array;
  bool holds = true;
  for (const LiveRow& row : rows) {
    holds = holds && row.holds();
    array.push_back(json::object{{"row", row.name},
                                 {"planned", row.planned},
                                 {"running", row.running},
                                 {"percent_apart", row.percent_apart()},
                                 {"percent_max", row.percent_max},
                                 {"holds", row.holds()}});
  }
  return json::serialize(json::object{{"live", std::move(array)}, {"holds", holds}});
}

}  // namespace pagewise::cli
