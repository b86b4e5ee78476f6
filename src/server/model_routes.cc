// SPDX-License-Identifier: Apache-2.0
#include "server/model_routes.h"

#include <fmt/format.h>

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "server/json_text.h"

namespace pagewise::server {
namespace {

std::string rfc3339(int64_t unix_s) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace

json::object model_object(const ServedModel& model, std::string_view id) {
  const uint32_t context = model.context_max;
  return {{"id", id},
          {"object", "model"},
          {"created", model.created_unix_s},
          {"owned_by", "local"},
          {"type", "model"},
          {"display_name", id == model.name ? model.name : fmt::format("{} ({})", id, model.name)},
          {"created_at", rfc3339(model.created_unix_s)},
          {"lifecycle", "active"},
          {"line", nullptr},
          {"deprecated_at", nullptr},
          {"retires_at", nullptr},
          {"max_input_tokens", context - 1},
          {"max_tokens", context},
          {"max_model_len", context},
          {"capabilities", nullptr}};
}

json::object model_list(const ServedModel& model) {
  const std::vector<std::string> names = model.listed_names();
  json::array data;
  for (const std::string& name : names) data.push_back(model_object(model, name));
  return {{"object", "list"},
          {"data", std::move(data)},
          {"has_more", false},
          {"first_id", names.front()},
          {"last_id", names.back()}};
}

ApiError unknown_model(std::string_view asked) {
  return {ErrorKind::kUnknownModel, fmt::format("model: {}", valid_utf8(asked)), "model", "", ""};
}

}  // namespace pagewise::server
