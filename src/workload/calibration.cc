// SPDX-License-Identifier: Apache-2.0
#include "workload/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/json.h"
#include "base/text_file.h"

namespace pagewise::workload {
namespace {

// Far beyond any machine. No step takes longer than three hours, so that clocks do not overflow.
constexpr double kStepNsMax = 1e12, kTokenNsMax = 1e10, kPositionNsMax = 1e6;
constexpr double kTimeNsMax = 1e13;
constexpr uint64_t kTokenBytesMax = uint64_t{1} << 30;

struct Field {
  std::string_view name;
  double Calibration::*value;
  double max;
};
constexpr Field kFields[] = {
    {"step_ns", &Calibration::step_ns, kStepNsMax},
    {"prompt_token_ns", &Calibration::prompt_token_ns, kTokenNsMax},
    {"prompt_position_ns", &Calibration::prompt_position_ns, kPositionNsMax},
    {"row_ns", &Calibration::row_ns, kTokenNsMax},
    {"row_position_ns", &Calibration::row_position_ns, kPositionNsMax},
};

}  // namespace

TimeNs step_time_ns(const Calibration& calibration, const StepWork& work) {
  const double ns = calibration.step_ns +
                    calibration.prompt_token_ns * static_cast<double>(work.prompt_tokens) +
                    calibration.prompt_position_ns * static_cast<double>(work.prompt_positions) +
                    calibration.row_ns * static_cast<double>(work.rows) +
                    calibration.row_position_ns * static_cast<double>(work.row_positions);
  return std::max<TimeNs>(1, std::llround(std::min(ns, kTimeNsMax)));
}

Calibration default_calibration() {
  Calibration calibration;
  calibration.name = "SmolLM2-135M Q4_1, 2 threads of an AMD EPYC";
  calibration.kv_bytes_per_token = 23'040;
  calibration.step_ns = 3.0e6;
  calibration.prompt_token_ns = 496e3;
  calibration.prompt_position_ns = 388;
  calibration.row_ns = 620e3;
  calibration.row_position_ns = 796;
  return calibration;
}

Result<Calibration> parse_calibration(std::string_view text, std::string_view name) {
  const auto fail = [&](std::string_view field, std::string_view what) {
    return Error{ErrorCode::kMalformed, fmt::format("{}: {}: {}", name, field, what)};
  };
  const Result<json::value> parsed = parse_json(text);
  if (!parsed)
    return Error{ErrorCode::kMalformed, fmt::format("{}: {}", name, parsed.error().message)};
  const json::object* object = parsed->if_object();
  if (object == nullptr) {
    return Error{ErrorCode::kMalformed, fmt::format("{}: not a JSON object", name)};
  }
  Calibration calibration;
  for (const auto& member : *object) {
    const std::string_view key(member.key().data(), member.key().size());
    const bool known = key == "name" || key == "kv_bytes_per_token" ||
                       std::any_of(std::begin(kFields), std::end(kFields),
                                   [&](const Field& field) { return field.name == key; });
    if (!known) return fail(key, "no field of a calibration");
  }
  const auto find = [&](std::string_view field) { return object->if_contains(field); };
  const json::value* text_name = find("name");
  if (text_name == nullptr || !text_name->is_string()) return fail("name", "a text is needed");
  calibration.name = std::string(text_name->get_string());
  const json::value* bytes = find("kv_bytes_per_token");
  if (bytes == nullptr || !bytes->is_int64() || bytes->get_int64() < 2 ||
      static_cast<uint64_t>(bytes->get_int64()) > kTokenBytesMax || bytes->get_int64() % 2 != 0) {
    return fail("kv_bytes_per_token",
                fmt::format("an even whole number from 2 to {} is needed", kTokenBytesMax));
  }
  calibration.kv_bytes_per_token = static_cast<uint64_t>(bytes->get_int64());
  for (const Field& field : kFields) {
    const json::value* value = find(field.name);
    const double number = value != nullptr && value->is_number() ? value->to_number<double>() : -1;
    if (!(number >= 0 && number <= field.max)) {
      return fail(field.name, fmt::format("a number from 0 to {} is needed", field.max));
    }
    calibration.*field.value = number;
  }
  return calibration;
}

Result<Calibration> read_calibration(const std::string& path) {
  PW_ASSIGN_OR_RETURN(const std::string text,
                      read_text_file(path, "a calibration: one JSON object", 1 << 20));
  return parse_calibration(text, path);
}

}  // namespace pagewise::workload
