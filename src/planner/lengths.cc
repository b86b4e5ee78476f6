// SPDX-License-Identifier: Apache-2.0
#include "planner/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "base/json.h"
#include "planner/layout.h"

namespace pagewise::planner {
namespace {

constexpr uint64_t kRequestsMax = (uint64_t{1} << 32) - 1;
constexpr std::string_view kInput = "input_length";
constexpr std::string_view kOutput = "output_length";

std::optional<uint64_t> whole(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0;;) {
    const std::size_t comma = text.find(',', at);
    parts.push_back(trimmed(text.substr(at, comma - at)));
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

  bool empty() const { return counts_.empty(); }

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

/// Prompt and answer of a request, or why they cannot be read.
struct LineLengths {
  uint64_t input = 0, output = 0;
  std::string problem;
};

LineLengths from_json(std::string_view line) {
  LineLengths out;
  const Result<json::value> parsed = parse_json(line);
  if (!parsed.has_value() || !parsed->is_object()) {
    out.problem = parsed.has_value() ? "no JSON object" : parsed.error().message;
    return out;
  }
  for (const auto& [key, number] :
       {std::pair(kInput, &out.input), std::pair(kOutput, &out.output)}) {
    const json::value* value = parsed->get_object().if_contains(key);
    if (value == nullptr || !value->is_int64() || value->get_int64() < 0) {
      out.problem =
          fmt::format("{}: {}", key, value == nullptr ? "missing" : "no whole number from 0 on");
      return out;
    }
    *number = static_cast<uint64_t>(value->get_int64());
  }
  return out;
}

/// Where the two columns of a CSV file stand.
struct Columns {
  std::size_t input = 0, output = 0;
};

std::optional<Columns> find_columns(std::string_view line) {
  const std::vector<std::string_view> names = split(line);
  const auto input = std::find(names.begin(), names.end(), kInput);
  const auto output = std::find(names.begin(), names.end(), kOutput);
  if (input == names.end() || output == names.end()) return std::nullopt;
  return Columns{static_cast<std::size_t>(input - names.begin()),
                 static_cast<std::size_t>(output - names.begin())};
}

LineLengths from_csv(std::string_view line, const Columns& columns) {
  LineLengths out;
  const std::vector<std::string_view> cells = split(line);
  for (const auto& [name, column, number] : {std::tuple(kInput, columns.input, &out.input),
                                             std::tuple(kOutput, columns.output, &out.output)}) {
    if (column >= cells.size()) {
      out.problem = fmt::format("{}: missing", name);
      return out;
    }
    const std::optional<uint64_t> value = whole(cells[column]);
    if (!value) {
      out.problem = fmt::format("{}: no whole number from 0 on", name);
      return out;
    }
    *number = *value;
  }
  return out;
}

}  // namespace

Result<Lengths> parse_lengths(std::string_view text) {
  Counter counter;
  for (const std::string_view part : split(text)) {
    const std::size_t star = part.find('*');
    const std::optional<uint64_t> tokens = whole(trimmed(part.substr(0, star)));
    const std::optional<uint64_t> count =
        star == std::string_view::npos ? 1 : whole(trimmed(part.substr(star + 1)));
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
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: a directory; give a trace in JSON lines or CSV", path)};
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(errno))};
  Counter counter;
  std::optional<Columns> columns;
  std::string text;
  for (uint64_t number = 1; std::getline(file, text); ++number) {
    const auto bad = [&](std::string_view reason) {
      return Error{ErrorCode::kMalformed, fmt::format("{}: line {}: {}", path, number, reason)};
    };
    const std::string_view line = trimmed(text);
    if (line.empty()) continue;
    if (counter.empty() && !columns && line.front() != '{') {
      columns = find_columns(line);
      if (columns) continue;
      return bad(fmt::format("neither a JSON object nor a line with the columns {} and {}", kInput,
                             kOutput));
    }
    const LineLengths lengths = columns ? from_csv(line, *columns) : from_json(line);
    if (!lengths.problem.empty()) return bad(lengths.problem);
    if (lengths.input > kTokensMax || lengths.output > kTokensMax) {
      return bad(fmt::format("more than {} tokens", kTokensMax));
    }
    const std::string problem = counter.add(lengths.input + lengths.output, 1);
    if (!problem.empty()) return bad(problem);
  }
  if (counter.empty()) {
    return Error{ErrorCode::kMalformed, fmt::format("{}: no request in it", path)};
  }
  return counter.lengths();
}

}  // namespace pagewise::planner
