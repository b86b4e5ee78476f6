// SPDX-License-Identifier: Apache-2.0
#include "workload/trace_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"
#include "base/trimmed.h"

namespace pagewise::workload {
namespace {

constexpr double kTimestampMsMax = static_cast<double>(kArrivalNsMax) / 1e6;
// The ids of the longest prompt take 0.6 MB.
constexpr std::size_t kLineBytesMax = std::size_t{16} << 20;
constexpr uint64_t kIdMax = (uint64_t{1} << 53) - 1;  // what JSON holds exactly

Error malformed(std::string message) { return {ErrorCode::kMalformed, std::move(message)}; }

/// Which fields are read; the others may say what they like.
enum class Fields { kAll, kLengths };

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

Status check_tokens(std::string_view field, uint64_t value, uint64_t least) {
  if (value >= least && value <= kRequestTokensMax) return Status::ok();
  return malformed(
      fmt::format("{}: {} is not in {} to {} tokens", field, value, least, kRequestTokensMax));
}

Status check_lengths(const Line& line) {
  PW_RETURN_IF_ERROR(check_tokens("input_length", line.input_tokens, 1));
  return check_tokens("output_length", line.output_tokens, 0);
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

Result<Line> parse_json_line(std::string_view text, Fields fields) {
  const Result<json::value> parsed = parse_json(text);
  if (!parsed) return malformed(parsed.error().message);
  const json::object* object = parsed->if_object();
  if (object == nullptr) return malformed("not a JSON object");
  const auto find = [&](std::string_view field) -> Result<const json::value*> {
    if (const json::value* value = object->if_contains(field)) return value;
    return malformed(fmt::format("{} is missing", field));
  };
  Line line;
  if (fields == Fields::kAll) {
    PW_ASSIGN_OR_RETURN(const json::value* timestamp, find("timestamp"));
    if (!timestamp->is_number()) return malformed("timestamp: not a number");
    PW_ASSIGN_OR_RETURN(line.timestamp_ms, as_timestamp(timestamp->to_number<double>()));
  }
  PW_ASSIGN_OR_RETURN(const json::value* input, find("input_length"));
  PW_ASSIGN_OR_RETURN(line.input_tokens, whole_number("input_length", *input, kIdMax));
  PW_ASSIGN_OR_RETURN(const json::value* output, find("output_length"));
  PW_ASSIGN_OR_RETURN(line.output_tokens, whole_number("output_length", *output, kIdMax));
  const json::value* ids = object->if_contains("hash_ids");
  if (ids == nullptr || fields != Fields::kAll) return line;
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

constexpr std::string_view kBlank = " \t\r";

/// Cuts the part before `separator` off the front.
std::string_view cut(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view part = trimmed(text.substr(0, at), kBlank);
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
  static Result<CsvLines> from_header(std::string_view header, Fields fields) {
    CsvLines lines;
    lines.fields_ = fields;
    while (!header.empty()) lines.columns_.emplace_back(cut(header, ','));
    for (const std::string_view needed : {"timestamp", "input_length", "output_length"}) {
      if (fields == Fields::kLengths && needed == "timestamp") continue;
      if (std::find(lines.columns_.begin(), lines.columns_.end(), needed) == lines.columns_.end()) {
        return malformed(
            fmt::format("no column '{}'; a CSV trace begins with a line of names: {}", needed,
                        fields == Fields::kAll ? "timestamp,input_length,output_length[,hash_ids]"
                                               : "input_length,output_length"));
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
      if (column == "input_length") {
        PW_ASSIGN_OR_RETURN(line.input_tokens, csv_number<uint64_t>(column, cell));
      } else if (column == "output_length") {
        PW_ASSIGN_OR_RETURN(line.output_tokens, csv_number<uint64_t>(column, cell));
      } else if (fields_ != Fields::kAll) {
        continue;
      } else if (column == "timestamp") {
        PW_ASSIGN_OR_RETURN(const double value, csv_number<double>(column, cell));
        PW_ASSIGN_OR_RETURN(line.timestamp_ms, as_timestamp(value));
      } else if (column == "hash_ids") {
        line.ids.emplace();
        for (std::string_view left = cell; !left.empty();) {
          const std::string_view id = cut(left, ' ');
          left = trimmed(left, kBlank);
          PW_ASSIGN_OR_RETURN(const uint64_t number, csv_number<uint64_t>(column, id));
          line.ids->push_back(number);
        }
      }
    }
    if (!text.empty()) return malformed(fmt::format("more than {} columns", columns_.size()));
    return line;
  }

 private:
  Fields fields_ = Fields::kAll;
  std::vector<std::string> columns_;
};

// ---- Lines to requests ----

class Builder {
 public:
  Status add(const Line& line) {
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

/// Tells `add` each request of a trace whose lines `next` gives until it says no.
template <typename Next, typename Add>
Status read_lines(Next&& next, std::string_view name, Fields fields, Add&& add) {
  std::optional<CsvLines> csv;
  bool any = false;
  std::string_view text;
  for (uint64_t number = 1; next(text); ++number) {
    const auto fail = [&](const Error& error) {
      return malformed(fmt::format("{}: line {}: {}", name, number, error.message));
    };
    if (text.size() > kLineBytesMax) {
      return fail(malformed(fmt::format("longer than {}", format_size(kLineBytesMax))));
    }
    if (number == 1 && text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    const std::string_view line = trimmed(text, kBlank);
    if (line.empty()) continue;
    if (!any && !csv && !line.starts_with('{')) {
      Result<CsvLines> header = CsvLines::from_header(line, fields);
      if (!header) return fail(header.error());
      csv = std::move(header).value();
      continue;
    }
    const Result<Line> parsed = csv ? csv->parse(line) : parse_json_line(line, fields);
    if (!parsed) return fail(parsed.error());
    if (const Status checked = check_lengths(*parsed); !checked) return fail(checked.error());
    if (const Status added = add(*parsed); !added) return fail(added.error());
    any = true;
  }
  return any ? Status::ok() : Status(malformed(fmt::format("{}: no requests in it", name)));
}

template <typename Add>
Status read_file(const std::string& path, Fields fields, Add&& add) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{}: a directory; give a trace: JSON lines or CSV", path)};
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return {ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(errno))};
  constexpr std::streamsize kRoom = kLineBytesMax + 2;  // one more shows that a line is too long
  const auto buffer = std::make_unique_for_overwrite<char[]>(kRoom);
  std::optional<int> failure;
  const auto next = [&](std::string_view& line) {
    file.getline(buffer.get(), kRoom);
    // Neither the file's end nor a line that is wrong.
    if (file.bad()) failure = errno;
    if (failure) return false;
    const auto size = static_cast<std::size_t>(file.gcount());
    const bool ended = file.good();  // by a line break, which is counted and not stored
    line = {buffer.get(), size - (ended ? 1 : 0)};
    return ended || size > 0;
  };
  const Status read = read_lines(next, path, fields, add);
  if (failure) return {ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(*failure))};
  return read;
}

}  // namespace

Result<Trace> parse_trace(std::string_view text, std::string_view name) {
  const auto next = [&](std::string_view& line) {
    if (text.empty()) return false;
    const std::size_t end = std::min(text.find('\n'), text.size());
    line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return true;
  };
  Builder builder;
  PW_RETURN_IF_ERROR(
      read_lines(next, name, Fields::kAll, [&](const Line& line) { return builder.add(line); }));
  return builder.take();
}

Result<Trace> read_trace(const std::string& path) {
  Builder builder;
  PW_RETURN_IF_ERROR(
      read_file(path, Fields::kAll, [&](const Line& line) { return builder.add(line); }));
  return builder.take();
}

Status read_lengths(const std::string& path,
                    const std::function<Status(const RequestLengths&)>& each) {
  return read_file(path, Fields::kLengths, [&](const Line& line) {
    return each(
        {static_cast<uint32_t>(line.input_tokens), static_cast<uint32_t>(line.output_tokens)});
  });
}

}  // namespace pagewise::workload
