// SPDX-License-Identifier: Apache-2.0
#include "server/tools/call_object.h"

#include "base/json.h"

namespace pagewise::server::tools {
namespace {

using State = JsonScanner::State;

/// The text of a JSON string with its quotes, or nothing.
std::optional<std::string> text_of(std::string_view quoted) {
  const auto parsed = parse_json(quoted);
  if (!parsed || !parsed->is_string()) return std::nullopt;
  return std::string(parsed->get_string());
}

}  // namespace

State CallObject::push(char c) {
  const std::size_t depth = scanner_.depth();
  const bool was_key = scanner_.in_key();
  const bool was_number = depth == 1 && scanner_.in_number();
  const State state = scanner_.push(c);
  if (state == State::kBad) return state;
  const bool is_key = scanner_.in_key();
  if (depth == 1 && (was_key || is_key)) {
    if (!was_key) key_.clear();
    key_ += c;
    if (is_key) return state;
    const auto key = text_of(key_);
    if (!key) return State::kBad;
    key_ = *key;
    is_arguments_ = key_ == "arguments" || key_ == "parameters";
    in_member_ = true;
    value_begun_ = false;
    value_.clear();
    return state;
  }
  if (!in_member_) return state;
  value_begun_ = value_begun_ || scanner_.in_scalar() || scanner_.depth() > 1;
  if (!value_begun_) return state;
  const bool number_ended = was_number && !scanner_.in_number();
  if (!number_ended) value_ += c;
  const bool ended = number_ended || (scanner_.depth() == 1 && scanner_.behind_value());
  if (ended && !end_member()) return State::kBad;
  return state;
}

bool CallObject::end_member() {
  in_member_ = false;
  if (is_arguments_) {
    if (arguments_) return false;
    arguments_ = std::move(value_);
    value_.clear();
    return true;
  }
  if (key_ != "name" && key_ != "tool_name" && key_ != "function") return true;
  // "function" may be the call itself in other people's forms: a text is a name.
  if (name_) return false;
  name_ = text_of(value_);
  return name_.has_value();
}

std::string_view CallObject::arguments() const {
  const std::string& bytes = arguments_ ? *arguments_ : value_;
  const bool known = arguments_ || (in_member_ && is_arguments_);
  return known && bytes.starts_with('{') ? std::string_view(bytes) : std::string_view();
}

std::optional<std::string> CallObject::whole_arguments() const {
  if (!arguments_) return "{}";
  if (arguments_->starts_with('{')) return arguments_;
  auto spelled = text_of(*arguments_);
  if (!spelled) return std::nullopt;
  const auto parsed = parse_json(*spelled);
  return parsed && parsed->is_object() ? spelled : std::nullopt;
}

}  // namespace pagewise::server::tools
