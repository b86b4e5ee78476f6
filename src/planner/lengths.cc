// SPDX-License-Identifier: Apache-2.0
#include "planner/lengths.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>

#include "base/trimmed.h"
#include "planner/layout.h"
#include "workload/trace_reader.h"

namespace pagewise::planner {
namespace {

constexpr uint64_t kRequestsMax = (uint64_t{1} << 32) - 1;

std::optional<uint64_t> whole(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

constexpr std::string_view kBlank = " \t\r";

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0;;) {
    const std::size_t comma = text.find(',', at);
    parts.push_back(trimmed(text.substr(at, comma - at), kBlank));
    if (comma == std::string_view::npos) return parts;
    at = comma + 1;
  }
}

class Counter {
 public:
  /// The reason why not, or empty.
  std::string add(uint64_t tokens, uint64_t count) {
    if (tokens < 1 || tokens > kTokensMax) {
      return fmt::format("{} tokens are not in 1 to {}", tokens, kTokensMax);
    }
    if (count < 1 || count > kRequestsMax - sum_) {
      return fmt::format("{} requests: from 1 to {} in all can be planned", count, kRequestsMax);
    }
    sum_ += count;
    counts_[tokens] += count;
    return {};
  }

  Lengths lengths() const {
    Lengths out;
    out.reserve(counts_.size());
    for (const auto& [tokens, count] : counts_) out.push_back({tokens, count});
    return out;
  }

 private:
  std::map<uint64_t, uint64_t> counts_;
  uint64_t sum_ = 0;
};

}  // namespace

Result<Lengths> parse_lengths(std::string_view text) {
  Counter counter;
  for (const std::string_view part : split(text)) {
    const std::size_t star = part.find('*');
    const std::optional<uint64_t> tokens = whole(trimmed(part.substr(0, star), kBlank));
    const std::optional<uint64_t> count =
        star == std::string_view::npos ? 1 : whole(trimmed(part.substr(star + 1), kBlank));
    if (!tokens || !count) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("'{}' is not TOKENS or TOKENS*REQUESTS", part)};
    }
    const std::string problem = counter.add(*tokens, *count);
    if (!problem.empty()) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("'{}': {}", part, problem)};
    }
  }
  return counter.lengths();
}

Result<Lengths> lengths_of_trace(const std::string& path) {
  Counter counter;
  PW_RETURN_IF_ERROR(
      workload::read_lengths(path, [&](const workload::RequestLengths& request) -> Status {
        const uint64_t tokens = uint64_t{request.input_tokens} + request.output_tokens;
        const std::string problem = counter.add(tokens, 1);
        return problem.empty() ? Status::ok() : Status(ErrorCode::kMalformed, problem);
      }));
  return counter.lengths();
}

}  // namespace pagewise::planner
