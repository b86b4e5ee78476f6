// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <tuple>
#include <utility>

#include "base/bytes.h"
#include "cli/model_argument.h"
#include "gguf/gguf.h"
#include "model/cpu_executor.h"
#include "model/spec.h"
#include "planner/server_memory.h"

namespace pagewise::cli {
namespace {

Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

Result<uint64_t> parse_whole(std::string_view flag, std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return invalid(fmt::format("{}: '{}' is not a whole number", flag, text));
  }
  return value;
}

Result<uint32_t> parse_count(std::string_view flag, std::string_view text, uint64_t max) {
  PW_ASSIGN_OR_RETURN(const uint64_t value, parse_whole(flag, text));
  if (value < 1 || value > max) {
    return invalid(fmt::format("{}: {} is not in 1 to {}", flag, value, max));
  }
  return static_cast<uint32_t>(value);
}

Result<uint64_t> parse_bytes(std::string_view flag, std::string_view text) {
  const Result<uint64_t> size = parse_size(text);
  if (size.has_value()) return size;
  return invalid(fmt::format("{}: {}", flag, size.error().message));
}

Result<double> parse_real(std::string_view flag, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return invalid(fmt::format("{}: '{}' is not a number", flag, text));
  }
  return value;
}

/// "90", "90s", "5m", "1h".
Result<double> parse_seconds(std::string_view flag, std::string_view text) {
  double unit = 1;
  std::string_view number = text;
  for (const auto& [suffix, seconds] :
       {std::pair('s', 1.0), std::pair('m', 60.0), std::pair('h', 3600.0)}) {
    if (!text.ends_with(suffix)) continue;
    unit = seconds;
    number.remove_suffix(1);
  }
  const Result<double> value = parse_real(flag, number);
  if (value.has_value()) return *value * unit;
  return invalid(fmt::format("{}: '{}' is not a time like 90s, 5m or 1h", flag, text));
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0;;) {
    const std::size_t comma = text.find(',', at);
    parts.push_back(text.substr(at, comma - at));
    if (comma == std::string_view::npos) return parts;
    at = comma + 1;
  }
}

Result<std::vector<uint64_t>> parse_list(std::string_view flag, std::string_view text) {
  std::vector<uint64_t> values;
  for (const std::string_view part : split(text)) {
    PW_ASSIGN_OR_RETURN(const uint64_t value, parse_whole(flag, part));
    values.push_back(value);
  }
  return values;
}

Result<std::vector<planner::RequestShape>> parse_requests(std::string_view text) {
  std::vector<planner::RequestShape> requests;
  for (const std::string_view part : split(text)) {
    const std::size_t slash = part.find('/');
    if (slash == std::string_view::npos) {
      return invalid(fmt::format("--requests: '{}' is not USED/MAXIMUM", part));
    }
    planner::RequestShape request;
    PW_ASSIGN_OR_RETURN(request.used, parse_whole("--requests", part.substr(0, slash)));
    PW_ASSIGN_OR_RETURN(request.maximum, parse_whole("--requests", part.substr(slash + 1)));
    requests.push_back(request);
  }
  return requests;
}

Result<const planner::KvFormat*> parse_format(std::string_view flag, std::string_view name) {
  const planner::KvFormat* format = planner::find_kv_format(name);
  if (format == nullptr) {
    return invalid(
        fmt::format("{}: '{}' is no KV type; known: {}", flag, name, planner::kv_format_names()));
  }
  return format;
}

/// Latent attention: one row a token and layer, and no heads.
Result<planner::Layout> latent_from_flags(const PlanFlags& flags) {
  for (const auto& [flag, text] :
       {std::pair("--kv-heads", &flags.kv_heads), std::pair("--head-dim", &flags.head_dim),
        std::pair("--value-dim", &flags.value_dim), std::pair("--window", &flags.window)}) {
    if (!text->empty()) return invalid(fmt::format("{}: latent rows have none", flag));
  }
  planner::LayoutGroup group{.kv_heads = 1};
  PW_ASSIGN_OR_RETURN(group.layers, parse_count("--layers", flags.layers, planner::kLayersMax));
  PW_ASSIGN_OR_RETURN(group.key_dim,
                      parse_count("--latent-dim", flags.latent_dim, planner::kHeadDimMax));
  planner::Layout layout;
  planner::add_layer(layout, group);
  return layout;
}

/// Layers with a state, beside those with rows.
Status add_states(const PlanFlags& flags, planner::Layout& layout) {
  if (flags.state_values.empty() && flags.state_layers.empty()) return Status::ok();
  if (flags.state_values.empty() || flags.state_layers.empty()) {
    return invalid("--state-layers and --state-values go together");
  }
  planner::StateGroup group;
  PW_ASSIGN_OR_RETURN(group.layers,
                      parse_count("--state-layers", flags.state_layers, planner::kLayersMax));
  PW_ASSIGN_OR_RETURN(group.values, parse_whole("--state-values", flags.state_values));
  if (group.values < 1 || group.values > planner::kStateValuesMax) {
    return invalid(fmt::format("--state-values: {} is not in 1 to {}", group.values,
                               planner::kStateValuesMax));
  }
  planner::add_state(layout, group);
  return Status::ok();
}

Result<planner::Layout> layout_from_flags(const PlanFlags& flags) {
  planner::LayoutGroup group;
  PW_ASSIGN_OR_RETURN(const uint32_t layers,
                      parse_count("--layers", flags.layers, planner::kLayersMax));
  PW_ASSIGN_OR_RETURN(group.kv_heads,
                      parse_count("--kv-heads", flags.kv_heads, planner::kKvHeadsMax));
  PW_ASSIGN_OR_RETURN(group.key_dim,
                      parse_count("--head-dim", flags.head_dim, planner::kHeadDimMax));
  group.value_dim = group.key_dim;
  if (!flags.value_dim.empty()) {
    PW_ASSIGN_OR_RETURN(group.value_dim,
                        parse_count("--value-dim", flags.value_dim, planner::kHeadDimMax));
  }
  uint32_t full_every = 0;  // no layer keeps everything once there is a window
  if (!flags.full_every.empty()) {
    if (flags.window.empty()) return invalid("--full-every needs --window");
    PW_ASSIGN_OR_RETURN(full_every,
                        parse_count("--full-every", flags.full_every, planner::kLayersMax));
  }
  uint64_t window = 0;
  if (!flags.window.empty()) {
    PW_ASSIGN_OR_RETURN(window, parse_whole("--window", flags.window));
    if (window > planner::kTokensMax) {
      return invalid(fmt::format("--window: {} is not in 0 to {}", window, planner::kTokensMax));
    }
  }
  planner::Layout layout;
  const uint32_t full_layers = window == 0 ? layers : full_every == 0 ? 0 : layers / full_every;
  if (full_layers > 0) {
    group.layers = full_layers;
    planner::add_layer(layout, group);
  }
  if (full_layers < layers) {
    group.layers = layers - full_layers;
    group.window = static_cast<uint32_t>(window);
    planner::add_layer(layout, group);
  }
  return layout;
}

/// A model's folder stands for its configuration.
std::string source_path(const std::string& source) {
  std::error_code ignored;
  const std::filesystem::path config = std::filesystem::path(source) / "config.json";
  return std::filesystem::is_regular_file(config, ignored) ? config.string() : source;
}

Result<planner::Layout> layout_from_source(const PlanFlags& flags) {
  for (const auto& [flag, text] :
       {std::pair("--layers", &flags.layers), std::pair("--kv-heads", &flags.kv_heads),
        std::pair("--head-dim", &flags.head_dim), std::pair("--latent-dim", &flags.latent_dim),
        std::pair("--state-layers", &flags.state_layers),
        std::pair("--state-values", &flags.state_values)}) {
    if (!text->empty()) return invalid(fmt::format("{}: the file says it already", flag));
  }
  if (!flags.value_dim.empty() || !flags.full_every.empty()) {
    return invalid("--value-dim and --full-every go with --layers, not with a file");
  }
  PW_ASSIGN_OR_RETURN(const std::string path, plan_source_path(flags));
  PW_ASSIGN_OR_RETURN(planner::Layout layout, planner::layout_from_path(path));
  if (flags.window.empty()) return layout;
  // Another window would be another model; but "what if every layer kept everything" is a
  // question.
  if (flags.window != "0") return invalid("--window: with a file only 0 (no windows) makes sense");
  planner::Layout whole = layout;
  whole.groups.clear();
  for (planner::LayoutGroup group : layout.groups) {
    group.window = 0;
    planner::add_layer(whole, group);
  }
  return whole;
}

Result<std::optional<planner::Layout>> parse_layout(const PlanFlags& flags) {
  if (!flags.source.empty()) {
    PW_ASSIGN_OR_RETURN(planner::Layout layout, layout_from_source(flags));
    return std::optional(std::move(layout));
  }
  const std::pair<std::string_view, const std::string*> shape[] = {{"--layers", &flags.layers},
                                                                   {"--kv-heads", &flags.kv_heads},
                                                                   {"--head-dim", &flags.head_dim}};
  const bool any = std::any_of(std::begin(shape), std::end(shape),
                               [](const auto& flag) { return !flag.second->empty(); });
  if (!any) {
    for (const auto& [flag, text] :
         {std::pair("--window", &flags.window), std::pair("--value-dim", &flags.value_dim),
          std::pair("--full-every", &flags.full_every),
          std::pair("--latent-dim", &flags.latent_dim),
          std::pair("--state-layers", &flags.state_layers),
          std::pair("--state-values", &flags.state_values)}) {
      if (!text->empty()) return invalid(fmt::format("{} needs --layers and the rest", flag));
    }
    return std::optional<planner::Layout>();
  }
  Result<planner::Layout> layout = invalid("");
  if (!flags.latent_dim.empty()) {
    if (flags.layers.empty()) return invalid("--layers is missing: --latent-dim needs it");
    layout = latent_from_flags(flags);
  } else {
    for (const auto& [flag, text] : shape) {
      if (text->empty()) {
        return invalid(
            fmt::format("{} is missing: --layers, --kv-heads and --head-dim go together", flag));
      }
    }
    layout = layout_from_flags(flags);
  }
  if (!layout.has_value()) return layout.error();
  PW_RETURN_IF_ERROR(add_states(flags, *layout));
  return std::optional(std::move(*layout));
}

/// Lengths to show when a file was named and nothing asked: usual ones, and the model's whole
/// context.
std::vector<uint64_t> usual_lengths(const planner::Layout& layout) {
  std::vector<uint64_t> lengths;
  if (!layout.context || *layout.context == 0 || *layout.context > planner::kTokensMax)
    return lengths;
  for (const uint64_t tokens : {1024, 4096, 8192}) {
    if (tokens < *layout.context) lengths.push_back(tokens);
  }
  lengths.push_back(*layout.context);
  return lengths;
}

Status parse_types(const PlanFlags& flags, planner::PlanInput& input) {
  PW_ASSIGN_OR_RETURN(input.key_format, parse_format("--kv-type", flags.kv_type));
  input.value_format = input.key_format;
  if (!flags.kv_type_k.empty()) {
    PW_ASSIGN_OR_RETURN(input.key_format, parse_format("--kv-type-k", flags.kv_type_k));
  }
  if (!flags.kv_type_v.empty()) {
    PW_ASSIGN_OR_RETURN(input.value_format, parse_format("--kv-type-v", flags.kv_type_v));
  }
  if (flags.state_type != "f32" && flags.state_type != "f16" && flags.state_type != "bf16") {
    return invalid(fmt::format("--state-type: '{}' is not f32, f16 or bf16", flags.state_type));
  }
  input.state_value_bytes = flags.state_type == "f32" ? 4 : 2;
  return Status::ok();
}

/// Sizes: blocks, a token, weights, what is free.
Status parse_sizes(const PlanFlags& flags, planner::PlanInput& input) {
  if (!flags.block_tokens.empty()) {
    PW_ASSIGN_OR_RETURN(const uint64_t block_tokens,
                        parse_whole("--block-tokens", flags.block_tokens));
    if (block_tokens != 16 && block_tokens != 32 && block_tokens != 64 && block_tokens != 128) {
      return invalid(fmt::format("--block-tokens: {} is not 16, 32, 64 or 128", block_tokens));
    }
    input.block_tokens = static_cast<uint32_t>(block_tokens);
  }
  if (!flags.mib_per_token.empty()) {
    PW_ASSIGN_OR_RETURN(const double mib, parse_real("--mib-per-token", flags.mib_per_token));
    const double bytes = mib * static_cast<double>(kMiB);
    if (!(bytes >= 1 && bytes <= static_cast<double>(planner::kTokenBytesMax))) {
      return invalid(fmt::format("--mib-per-token: {} MiB is not in 1 byte to {}", mib,
                                 format_size(planner::kTokenBytesMax)));
    }
    input.token_bytes = static_cast<uint64_t>(std::llround(bytes));
  }
  if (!flags.weights.empty()) {
    PW_ASSIGN_OR_RETURN(input.weight_bytes, parse_bytes("--weights", flags.weights));
  }
  if (!flags.memory.empty()) {
    PW_ASSIGN_OR_RETURN(input.memory, parse_bytes("--memory", flags.memory));
  }
  return Status::ok();
}

/// What `serve` would keep back for this file on this machine; nullopt where there is none that it
/// runs.
std::optional<uint64_t> own_working_memory(const PlanFlags& flags) {
  if (flags.source.empty()) return std::nullopt;
  const Result<std::string> path = plan_source_path(flags);
  if (!path.has_value()) return std::nullopt;
  const auto file = gguf::File::open(*path, {.header_only = true});
  if (!file.has_value()) return std::nullopt;
  const Result<model::ModelSpec> spec = model::spec_from_gguf(**file);
  if (!spec.has_value()) return std::nullopt;
  return planner::working_memory(
      *spec, {.step_tokens = planner::kStepTokens, .threads = model::compute_threads(0)});
}

Status parse_device(const PlanFlags& flags, planner::PlanInput& input) {
  if (flags.device_memory.empty()) {
    for (const auto& [flag, text] :
         {std::pair("--devices", &flags.devices), std::pair("--engine", &flags.engine),
          std::pair("--working-memory", &flags.working_memory),
          std::pair("--utilization", &flags.utilization)}) {
      if (!text->empty()) return invalid(fmt::format("{} needs --device-memory", flag));
    }
    return Status::ok();
  }
  planner::DeviceInput device;
  PW_ASSIGN_OR_RETURN(device.device_bytes, parse_bytes("--device-memory", flags.device_memory));
  if (!flags.devices.empty()) {
    PW_ASSIGN_OR_RETURN(device.devices,
                        parse_count("--devices", flags.devices, planner::kDevicesMax));
  }
  const std::string engine = flags.engine.empty() ? "pagewise" : flags.engine;
  device.engine = planner::find_engine_rule(engine);
  if (device.engine == nullptr) {
    return invalid(
        fmt::format("--engine: '{}' is not known; known: {}", engine, planner::engine_names()));
  }
  if (!flags.working_memory.empty()) {
    PW_ASSIGN_OR_RETURN(device.working_bytes,
                        parse_bytes("--working-memory", flags.working_memory));
  } else if (engine == "pagewise") {
    device.working_bytes = own_working_memory(flags);
  }
  if (!flags.utilization.empty()) {
    PW_ASSIGN_OR_RETURN(device.share, parse_real("--utilization", flags.utilization));
  }
  return planner::apply_device(input, device, !flags.block_tokens.empty());
}

/// What runs: rows, a mix, a distribution, a number of users.
Status parse_load(const PlanFlags& flags, planner::PlanInput& input) {
  if (!flags.tokens.empty()) {
    PW_ASSIGN_OR_RETURN(input.tokens, parse_list("--tokens", flags.tokens));
  }
  if (!flags.batch.empty()) {
    if (flags.tokens.empty()) return invalid("--batch needs --tokens: sequences of which length?");
    PW_ASSIGN_OR_RETURN(input.batches, parse_list("--batch", flags.batch));
  }
  if (!flags.requests.empty()) {
    PW_ASSIGN_OR_RETURN(input.requests, parse_requests(flags.requests));
  }
  if (!flags.lengths.empty()) {
    if (!flags.trace.empty()) return invalid("--lengths and --trace: one of the two");
    auto lengths = planner::parse_lengths(flags.lengths);
    if (!lengths.has_value()) return invalid("--lengths: " + lengths.error().message);
    input.lengths = std::move(*lengths);
  }
  if (!flags.trace.empty()) {
    PW_ASSIGN_OR_RETURN(input.lengths, planner::lengths_of_trace(flags.trace));
  }
  if (!flags.max_tokens.empty()) {
    PW_ASSIGN_OR_RETURN(input.reserve_tokens, parse_whole("--max-tokens", flags.max_tokens));
  }
  if (!flags.users.empty()) {
    PW_ASSIGN_OR_RETURN(input.users, parse_whole("--users", flags.users));
  }
  input.waste = flags.waste;
  return Status::ok();
}

Status parse_prefix(const PlanFlags& flags, planner::PlanInput& input) {
  if (!flags.prefix_tokens.empty()) {
    PW_ASSIGN_OR_RETURN(input.prefix_tokens, parse_whole("--prefix-tokens", flags.prefix_tokens));
  }
  if (!flags.calls.empty()) {
    PW_ASSIGN_OR_RETURN(input.calls, parse_whole("--calls", flags.calls));
  }
  for (const auto& [flag, text, price] :
       {std::tuple("--read-price", &flags.read_price, &input.prices.read),
        std::tuple("--write-price", &flags.write_price, &input.prices.write)}) {
    if (text->empty()) continue;
    if (flags.calls.empty()) return invalid(fmt::format("{} needs --calls: of how many?", flag));
    PW_ASSIGN_OR_RETURN(*price, parse_real(flag, *text));
  }
  if (flags.every.empty() && flags.ttl.empty()) return Status::ok();
  if (flags.every.empty()) return invalid("--ttl needs --every: how often do calls come?");
  planner::CallTiming timing;
  PW_ASSIGN_OR_RETURN(timing.gap_s, parse_seconds("--every", flags.every));
  PW_ASSIGN_OR_RETURN(timing.ttl_s, parse_seconds("--ttl", flags.ttl.empty() ? "5m" : flags.ttl));
  input.timing = timing;
  return Status::ok();
}

Status parse_times(const PlanFlags& flags, planner::PlanInput& input) {
  if (flags.calibration.empty()) {
    if (flags.step_tokens.empty()) return Status::ok();
    return invalid("--step-tokens needs --calibration: how long does a step take?");
  }
  PW_ASSIGN_OR_RETURN(input.calibration, workload::read_calibration(flags.calibration));
  if (flags.step_tokens.empty()) return Status::ok();
  PW_ASSIGN_OR_RETURN(input.step_tokens,
                      parse_count("--step-tokens", flags.step_tokens, planner::kStepTokensMax));
  return Status::ok();
}

}  // namespace

Result<std::string> plan_source_path(const PlanFlags& flags) {
  PW_ASSIGN_OR_RETURN(NamedModel named, find_model({source_path(flags.source), flags.folders}));
  return std::move(named.path);
}

Result<planner::PlanInput> parse_plan_flags(const PlanFlags& flags) {
  planner::PlanInput input;
  PW_ASSIGN_OR_RETURN(input.layout, parse_layout(flags));
  PW_RETURN_IF_ERROR(parse_types(flags, input));
  PW_RETURN_IF_ERROR(parse_sizes(flags, input));
  PW_RETURN_IF_ERROR(parse_load(flags, input));
  PW_RETURN_IF_ERROR(parse_device(flags, input));
  PW_RETURN_IF_ERROR(parse_prefix(flags, input));
  PW_RETURN_IF_ERROR(parse_times(flags, input));
  if (input.layout && input.tokens.empty() && input.requests.empty() && input.lengths.empty() &&
      !input.calls) {
    input.tokens = usual_lengths(*input.layout);
  }
  return input;
}

}  // namespace pagewise::cli
