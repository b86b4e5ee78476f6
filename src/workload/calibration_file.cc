// SPDX-License-Identifier: Apache-2.0
// Calibrations as files: strict JSON in, readable JSON out.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/text_file.h"
#include "workload/calibration.h"

namespace pagewise::workload {
namespace {

// Far beyond any machine. No step takes longer than three hours, so that clocks do not overflow.
constexpr double kStepNsMax = 1e12, kTokenNsMax = 1e10, kPositionNsMax = 1e6;
constexpr uint64_t kTokenBytesMax = uint64_t{1} << 30;
constexpr uint64_t kCountMax = uint64_t{1} << 30;
constexpr std::size_t kFileBytesMax = 1 << 20;

/// Files without a version are of the first form: a name, bytes and five numbers.
constexpr uint64_t kVersion = 2;

struct Number {
  std::string_view name;
  double Calibration::*value;
  double max;
  uint64_t since;  // version
};
constexpr Number kNumbers[] = {
    {"step_ns", &Calibration::step_ns, kStepNsMax, 1},
    {"weights_ns", &Calibration::weights_ns, kStepNsMax, 2},
    {"prompt_token_ns", &Calibration::prompt_token_ns, kTokenNsMax, 1},
    {"prompt_position_ns", &Calibration::prompt_position_ns, kPositionNsMax, 1},
    {"row_ns", &Calibration::row_ns, kTokenNsMax, 1},
    {"row_position_ns", &Calibration::row_position_ns, kPositionNsMax, 1},
};
/// With "window", all three or none.
constexpr Number kWindowNumbers[] = {
    {"prompt_window_position_ns", &Calibration::prompt_window_position_ns, kPositionNsMax, 2},
    {"row_window_position_ns", &Calibration::row_window_position_ns, kPositionNsMax, 2},
};

struct RecordText {
  std::string_view name;
  std::string CalibrationRecord::*value;
};
constexpr RecordText kRecordTexts[] = {
    {"model", &CalibrationRecord::model},     {"sha256", &CalibrationRecord::sha256},
    {"cpu", &CalibrationRecord::cpu},         {"isa", &CalibrationRecord::isa},
    {"kv_type", &CalibrationRecord::kv_type}, {"time", &CalibrationRecord::time},
};

struct StepCount {
  std::string_view name;
  uint32_t MeasuredStep::*value;
};
constexpr StepCount kStepCounts[] = {
    {"rows", &MeasuredStep::rows},
    {"row_position", &MeasuredStep::row_position},
    {"prompt_tokens", &MeasuredStep::prompt_tokens},
    {"prompt_position", &MeasuredStep::prompt_position},
    {"samples", &MeasuredStep::samples},
};
struct StepTime {
  std::string_view name;
  TimeNs MeasuredStep::*value;
};
constexpr StepTime kStepTimes[] = {
    {"median_ns", &MeasuredStep::median_ns},
    {"low_ns", &MeasuredStep::low_ns},
    {"high_ns", &MeasuredStep::high_ns},
};

/// An object whose fields are taken one by one; what is left over is no field of it. The first
/// mistake stays.
class Fields {
 public:
  /// `where` is what stands before a field's name in messages.
  Fields(const json::object& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  bool has(std::string_view name) const { return object_.if_contains(name) != nullptr; }
  const json::value* take(std::string_view name) {
    taken_.push_back(name);
    return object_.if_contains(name);
  }
  double number(std::string_view name, double max) {
    const json::value* value = take(name);
    const double found = value != nullptr && value->is_number() ? value->to_number<double>() : -1;
    if (found >= 0 && found <= max) return found;
    fail(name, fmt::format("a number from 0 to {} is needed", max));
    return 0;
  }
  uint64_t whole(std::string_view name, uint64_t min, uint64_t max) {
    const std::optional<uint64_t> found = whole_within(name, min, max);
    if (!found) fail(name, fmt::format("a whole number from {} to {} is needed", min, max));
    return found.value_or(min);
  }
  uint64_t even(std::string_view name, uint64_t max) {
    const std::optional<uint64_t> found = whole_within(name, 2, max);
    if (found && *found % 2 == 0) return *found;
    fail(name, fmt::format("an even whole number from 2 to {} is needed", max));
    return 2;
  }
  std::string text(std::string_view name) {
    const json::value* value = take(name);
    if (value != nullptr && value->is_string()) return std::string(value->get_string());
    fail(name, "a text is needed");
    return {};
  }
  void fail(std::string_view name, std::string_view what) {
    if (!error_) error_ = Error{ErrorCode::kMalformed, fmt::format("{}{}: {}", where_, name, what)};
  }
  /// Ok when every field was taken and right. A name that means nothing comes first: a field that
  /// is missing may stand there misspelt.
  Status finish() const {
    for (const auto& member : object_) {
      const std::string_view key(member.key().data(), member.key().size());
      if (std::find(taken_.begin(), taken_.end(), key) == taken_.end()) {
        return {ErrorCode::kMalformed, fmt::format("{}{}: no field of a calibration", where_, key)};
      }
    }
    return error_ ? Status(*error_) : Status::ok();
  }
  const std::optional<Error>& error() const { return error_; }
  const std::string& where() const { return where_; }

 private:
  std::optional<uint64_t> whole_within(std::string_view name, uint64_t min, uint64_t max) {
    const json::value* value = take(name);
    if (value == nullptr || !value->is_int64() || value->get_int64() < 0) return std::nullopt;
    const auto found = static_cast<uint64_t>(value->get_int64());
    return found >= min && found <= max ? std::optional(found) : std::nullopt;
  }

  const json::object& object_;
  const std::string where_;
  std::vector<std::string_view> taken_;
  std::optional<Error> error_;
};

Result<MeasuredStep> parse_step(const json::object& object, std::string where) {
  Fields fields(object, std::move(where));
  MeasuredStep step;
  for (const StepCount& count : kStepCounts) {
    step.*count.value = static_cast<uint32_t>(fields.whole(count.name, 0, kCountMax));
  }
  for (const StepTime& time : kStepTimes) {
    step.*time.value = static_cast<TimeNs>(fields.whole(time.name, 1, static_cast<uint64_t>(1e15)));
  }
  PW_RETURN_IF_ERROR(fields.finish());
  return step;
}

Result<CalibrationRecord> parse_record(const json::object& object, std::string where) {
  Fields fields(object, std::move(where));
  CalibrationRecord record;
  for (const RecordText& text : kRecordTexts) record.*text.value = fields.text(text.name);
  record.threads = static_cast<uint32_t>(fields.whole("threads", 1, kCountMax));
  record.block_tokens = static_cast<uint32_t>(fields.whole("block_tokens", 1, kCountMax));
  record.spread = fields.number("spread", 1e6);
  record.deviation = fields.number("deviation", 1e6);
  const json::value* steps = fields.take("steps");
  if (steps == nullptr || !steps->is_array()) fields.fail("steps", "a list of steps is needed");
  PW_RETURN_IF_ERROR(fields.finish());
  for (const json::value& step : steps->get_array()) {
    const std::string name = fmt::format("{}steps[{}]", fields.where(), record.steps.size());
    if (!step.is_object()) {
      return Error{ErrorCode::kMalformed, name + ": a step is a JSON object"};
    }
    PW_ASSIGN_OR_RETURN(MeasuredStep parsed, parse_step(step.get_object(), name + "."));
    record.steps.push_back(parsed);
  }
  return record;
}

Result<Calibration> parse_object(const json::object& object, std::string_view name) {
  Fields fields(object, fmt::format("{}: ", name));
  Calibration calibration;
  const uint64_t version = fields.has("version") ? fields.whole("version", 1, kVersion) : 1;
  if (fields.error()) return *fields.error();
  calibration.name = fields.text("name");
  calibration.kv_bytes_per_token = fields.even("kv_bytes_per_token", kTokenBytesMax);
  for (const Number& number : kNumbers) {
    if (number.since <= version) calibration.*number.value = fields.number(number.name, number.max);
  }
  if (version >= 2 && fields.has("window")) {
    calibration.window = static_cast<uint32_t>(fields.whole("window", 1, kCountMax));
    for (const Number& number : kWindowNumbers) {
      calibration.*number.value = fields.number(number.name, number.max);
    }
  }
  const json::value* measured = version >= 2 ? fields.take("measured") : nullptr;
  if (measured != nullptr && !measured->is_object()) {
    fields.fail("measured", "a JSON object is needed");
  }
  PW_RETURN_IF_ERROR(fields.finish());
  if (measured != nullptr) {
    PW_ASSIGN_OR_RETURN(calibration.measured,
                        parse_record(measured->get_object(), fmt::format("{}: measured.", name)));
  }
  return calibration;
}

std::string quoted(std::string_view text) { return json::serialize(json::value(text)); }

std::string step_text(const MeasuredStep& step) {
  std::string out = "{";
  for (const StepCount& count : kStepCounts) {
    out += fmt::format("{}: {}, ", quoted(count.name), step.*count.value);
  }
  for (const StepTime& time : kStepTimes) {
    out += fmt::format("{}: {}{}", quoted(time.name), step.*time.value,
                       &time == std::end(kStepTimes) - 1 ? "}" : ", ");
  }
  return out;
}

std::string record_text(const CalibrationRecord& record) {
  std::string out = "{\n";
  for (const RecordText& text : kRecordTexts) {
    out += fmt::format("    {}: {},\n", quoted(text.name), quoted(record.*text.value));
  }
  out += fmt::format("    \"threads\": {},\n    \"block_tokens\": {},\n", record.threads,
                     record.block_tokens);
  out += fmt::format("    \"spread\": {},\n    \"deviation\": {},\n    \"steps\": [", record.spread,
                     record.deviation);
  for (const MeasuredStep& step : record.steps) {
    out += fmt::format("{}\n      {}", &step == record.steps.data() ? "" : ",", step_text(step));
  }
  return out + "\n    ]\n  }";
}

}  // namespace

Result<Calibration> parse_calibration(std::string_view text, std::string_view name) {
  const Result<json::value> parsed = parse_json(text);
  if (!parsed) {
    return Error{ErrorCode::kMalformed, fmt::format("{}: {}", name, parsed.error().message)};
  }
  const json::object* object = parsed->if_object();
  if (object == nullptr) {
    return Error{ErrorCode::kMalformed, fmt::format("{}: not a JSON object", name)};
  }
  if (const std::optional<std::string> key = doubled_key(text)) {
    return Error{ErrorCode::kMalformed, fmt::format("{}: {}: stands twice in it", name, *key)};
  }
  return parse_object(*object, name);
}

Result<Calibration> read_calibration(const std::string& path) {
  PW_ASSIGN_OR_RETURN(const std::string text,
                      read_text_file(path, "a calibration: one JSON object", kFileBytesMax));
  return parse_calibration(text, path);
}

std::string calibration_text(const Calibration& calibration) {
  std::string out =
      fmt::format("{{\n  \"version\": {},\n  \"name\": {},\n", kVersion, quoted(calibration.name));
  out += fmt::format("  \"kv_bytes_per_token\": {}", calibration.kv_bytes_per_token);
  const auto add = [&](const Number& number) {
    out += fmt::format(",\n  {}: {}", quoted(number.name), calibration.*number.value);
  };
  for (const Number& number : kNumbers) add(number);
  if (calibration.window != 0) {
    out += fmt::format(",\n  \"window\": {}", calibration.window);
    for (const Number& number : kWindowNumbers) add(number);
  }
  if (calibration.measured) {
    out += fmt::format(",\n  \"measured\": {}", record_text(*calibration.measured));
  }
  return out + "\n}\n";
}

}  // namespace pagewise::workload
