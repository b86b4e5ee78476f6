// SPDX-License-Identifier: Apache-2.0
#include "workload/trace_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"
#include "base/text_file.h"

namespace pagewise::workload {
namespace {

constexpr double kTimestampMsMax = static_cast<double>(kArrivalNsMax) / 1e6;
constexpr uint64_t kIdMax = (uint64_t{1} << 53) - 1;  // what JSON holds exactly

Error malformed(std::string message) { return {ErrorCode::kMalformed, std::move(message)}; }

/// One line, checked field by field.
struct Line {
  double timestamp_ms = 0;
  uint64_t input_tokens = 0, output_tokens = 0;
  std::optional<std::vector<uint64_t>> ids;
};

// ---- What the fields may be ----

Result<double> as_timestamp(double value) {
  if (std::isfinite(value) && value >= 0 && value <= kTimestampMsMax) return value;
  return malformed(
      fmt::format("timestamp: {} is not in 0 to {:.0f} milliseconds", value, kTimestampMsMax));
}

Result<uint64_t> as_tokens(std::string_view field, uint64_t value, uint64_t least) {
  if (value >= least && value <= kRequestTokensMax) return value;
  return malformed(
      fmt::format("{}: {} is not in {} to {} tokens", field, value, least, kRequestTokensMax));
}

// ---- JSON ----

Result<uint64_t> whole_number(std::string_view field, const json::value& value, uint64_t max) {
  if (value.is_uint64() && value.get_uint64() <= max) return value.get_uint64();
  if (value.is_int64() && value.get_int64() >= 0 &&
      static_cast<uint64_t>(value.get_int64()) <= max) {
    return static_cast<uint64_t>(value.get_int64());
  }
  return malformed(fmt::format("{}: not a whole number from 0 to {}", field, max));
}

Result<Line> parse_json_line(std::string_view text) {
  const Result<json::value> parsed = parse_json(text);
  if (!parsed) return malformed(parsed.error().message);
  const json::object* object = parsed->if_object();
  if (object == nullptr) return malformed("not a JSON object");
  const auto find = [&](std::string_view field) -> Result<const json::value*> {
    if (const json::value* value = object->if_contains(field)) return value;
    return malformed(fmt::format("{} is missing", field));
  };
  Line line;
  PW_ASSIGN_OR_RETURN(const json::value* timestamp, find("timestamp"));
  if (!timestamp->is_number()) return malformed("timestamp: not a number");
  PW_ASSIGN_OR_RETURN(line.timestamp_ms, as_timestamp(timestamp->to_number<double>()));
  PW_ASSIGN_OR_RETURN(const json::value* input, find("input_length"));
  PW_ASSIGN_OR_RETURN(line.input_tokens, whole_number("input_length", *input, kIdMax));
  PW_ASSIGN_OR_RETURN(const json::value* output, find("output_length"));
  PW_ASSIGN_OR_RETURN(line.output_tokens, whole_number("output_length", *output, kIdMax));
  const json::value* ids = object->if_contains("hash_ids");
  if (ids == nullptr) return line;
  const json::array* array = ids->if_array();
  if (array == nullptr) return malformed("hash_ids: not a list");
  line.ids.emplace();
  for (const json::value& id : *array) {
    PW_ASSIGN_OR_RETURN(const uint64_t number, whole_number("hash_ids", id, kIdMax));
    line.ids->push_back(number);
  }
  return line;
}

// ---- CSV ----

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

/// Cuts the part before `separator` off the front.
std::string_view cut(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view part = trimmed(text.substr(0, at));
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return part;
}

template <typename T>
Result<T> csv_number(std::string_view field, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (!text.empty() && error == std::errc() && end == text.data() + text.size()) return value;
  return malformed(fmt::format("{}: '{}' is not a {}number", field, text.substr(0, 40),
                               std::is_integral_v<T> ? "whole " : ""));
}

class CsvLines {
 public:
  static Result<CsvLines> from_header(std::string_view header) {
    CsvLines lines;
    while (!header.empty()) lines.columns_.emplace_back(cut(header, ','));
    for (const std::string_view needed : {"timestamp", "input_length", "output_length"}) {
      if (std::find(lines.columns_.begin(), lines.columns_.end(), needed) == lines.columns_.end()) {
        return malformed(
            fmt::format("no column '{}'; a CSV trace begins with a line of names: "
                        "timestamp,input_length,output_length[,hash_ids]",
                        needed));
      }
    }
    return lines;
  }

  Result<Line> parse(std::string_view text) const {
    Line line;
    for (const std::string& column : columns_) {
      const bool last = &column == &columns_.back();
      if (!last && text.find(',') == std::string_view::npos) {
        return malformed(fmt::format("fewer than {} columns", columns_.size()));
      }
      const std::string_view cell = cut(text, ',');
      if (column == "timestamp") {
        PW_ASSIGN_OR_RETURN(const double value, csv_number<double>(column, cell));
        PW_ASSIGN_OR_RETURN(line.timestamp_ms, as_timestamp(value));
      } else if (column == "input_length") {
        PW_ASSIGN_OR_RETURN(line.input_tokens, csv_number<uint64_t>(column, cell));
      } else if (column == "output_length") {
        PW_ASSIGN_OR_RETURN(line.output_tokens, csv_number<uint64_t>(column, cell));
      } else if (column == "hash_ids") {
        line.ids.emplace();
        for (std::string_view left = cell; !left.empty();) {
          const std::string_view id = cut(left, ' ');
          left = trimmed(left);
          PW_ASSIGN_OR_RETURN(const uint64_t number, csv_number<uint64_t>(column, id));
          line.ids->push_back(number);
        }
      }
    }
    if (!text.empty()) return malformed(fmt::format("more than {} columns", columns_.size()));
    return line;
  }

 private:
  std::vector<std::string> columns_;
};

// ---- Lines to requests ----

class Builder {
 public:
  Status add(const Line& line) {
    PW_RETURN_IF_ERROR(as_tokens("input_length", line.input_tokens, 1).status());
    PW_RETURN_IF_ERROR(as_tokens("output_length", line.output_tokens, 0).status());
    const auto arrival_ns = static_cast<TimeNs>(std::llround(line.timestamp_ms * 1e6));
    if (arrival_ns < last_ns_) {
      return malformed("timestamp: before that of the line above; sort the trace by time");
    }
    last_ns_ = arrival_ns;
    pieces_.clear();
    if (line.ids) {
      const uint64_t wanted = ceil_div(line.input_tokens, kHashedTokens);
      if (line.ids->size() != wanted) {
        return malformed(fmt::format("hash_ids: {} of them, but {} tokens are {} blocks of {}",
                                     line.ids->size(), line.input_tokens, wanted, kHashedTokens));
      }
      uint64_t left = line.input_tokens;
      for (const uint64_t id : *line.ids) {
        const uint64_t tokens = std::min<uint64_t>(left, kHashedTokens);
        pieces_.push_back({number_of(id), static_cast<uint32_t>(tokens)});
        left -= tokens;
      }
    } else {
      pieces_.push_back({next_number_++, static_cast<uint32_t>(line.input_tokens)});
    }
    if (next_number_ == UINT32_MAX) return malformed("more than 4 billion blocks so far");
    trace_.add(arrival_ns, pieces_, static_cast<uint32_t>(line.output_tokens));
    return Status::ok();
  }

  Trace take() { return std::move(trace_); }

 private:
  uint32_t number_of(uint64_t id) {
    const auto [found, inserted] = numbers_.emplace(id, next_number_);
    if (inserted) ++next_number_;
    return found->second;
  }

  Trace trace_;
  TimeNs last_ns_ = 0;
  uint32_t next_number_ = kAnswerPiece + 1;  // in order of appearance
  std::unordered_map<uint64_t, uint32_t> numbers_;
  std::vector<Piece> pieces_;
};

}  // namespace

Result<Trace> parse_trace(std::string_view text, std::string_view name) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  Builder builder;
  std::optional<CsvLines> csv;
  bool any = false;
  for (uint64_t number = 1; !text.empty(); ++number) {
    const auto fail = [&](const Error& error) {
      return malformed(fmt::format("{}: line {}: {}", name, number, error.message));
    };
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    if (!any && !csv && !line.starts_with('{')) {
      Result<CsvLines> header = CsvLines::from_header(line);
      if (!header) return fail(header.error());
      csv = std::move(header).value();
      continue;
    }
    const Result<Line> parsed = csv ? csv->parse(line) : parse_json_line(line);
    if (!parsed) return fail(parsed.error());
    if (const Status added = builder.add(*parsed); !added) return fail(added.error());
    any = true;
  }
  if (!any) return malformed(fmt::format("{}: no requests in it", name));
  return builder.take();
}

Result<Trace> read_trace(const std::string& path) {
  PW_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "a trace: JSON lines or CSV"));
  return parse_trace(text, path);
}

}  // namespace pagewise::workload
