// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/format.h"
#include "text/jinja/strings.h"

namespace pagewise::text::jinja {

namespace {

Error fail(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

std::string_view sign_of(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    case Operator::kPower:
      return "**";
    case Operator::kLess:
      return "<";
    case Operator::kLessEqual:
      return "<=";
    case Operator::kGreater:
      return ">";
    case Operator::kGreaterEqual:
      return ">=";
    default:
      return "in";
  }
}

Error wrong_types(Operator op, const Value& left, const Value& right) {
  if (left.is_undefined()) return undefined_error(left);
  if (right.is_undefined()) return undefined_error(right);
  return fail(fmt::format("'{}' does not work on '{}' and '{}'", sign_of(op), type_name(left),
                          type_name(right)));
}

Error overflow() { return fail("a whole number leaves 64 bits"); }

/// Rounds towards minus infinity. Requires: divisor not 0.
Result<int64_t> floor_divide(int64_t dividend, int64_t divisor) {
  if (divisor == -1) {
    if (dividend == INT64_MIN) return overflow();
    return -dividend;
  }
  const int64_t quotient = dividend / divisor;
  const bool inexact = quotient * divisor != dividend;
  return quotient - (inexact && (dividend < 0) != (divisor < 0) ? 1 : 0);
}

Result<Value> power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return fail("division by zero");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value(exponent == 0 ? int64_t{1} : base);
  if (base == -1) return Value(int64_t{exponent % 2 == 0 ? 1 : -1});
  int64_t result = 1;
  for (; exponent > 0; --exponent) {  // at most 63 times before it overflows
    if (__builtin_mul_overflow(result, base, &result)) return overflow();
  }
  return Value(result);
}

Result<Value> integer_arithmetic(Operator op, int64_t left, int64_t right) {
  int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(left, right, &result)) return overflow();
      return Value(result);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(left, right, &result)) return overflow();
      return Value(result);
    case Operator::kMultiply:
      if (__builtin_mul_overflow(left, right, &result)) return overflow();
      return Value(result);
    case Operator::kPower:
      return power(left, right);
    default:
      break;
  }
  if (right == 0) return fail("division by zero");
  if (op == Operator::kDivide) {
    return Value(static_cast<double>(left) / static_cast<double>(right));
  }
  if (op == Operator::kModulo && right == -1) return Value(int64_t{0});
  PW_ASSIGN_OR_RETURN(const int64_t quotient, floor_divide(left, right));
  return Value(op == Operator::kFloorDivide ? quotient : left - quotient * right);
}

Result<Value> float_arithmetic(Operator op, double left, double right) {
  switch (op) {
    case Operator::kAdd:
      return Value(left + right);
    case Operator::kSubtract:
      return Value(left - right);
    case Operator::kMultiply:
      return Value(left * right);
    case Operator::kPower:
      return Value(std::pow(left, right));
    default:
      break;
  }
  if (right == 0) return fail("division by zero");
  if (op == Operator::kDivide) return Value(left / right);
  if (op == Operator::kFloorDivide) return Value(std::floor(left / right));
  return Value(left - std::floor(left / right) * right);
}

Result<Value> repeat(const Rope& text, int64_t times, Session& session) {
  times = std::max<int64_t>(times, 0);
  if (text.empty()) return Value(Rope());
  if (times > static_cast<int64_t>(Session::kTextBytesMax)) {
    times = static_cast<int64_t>(Session::kTextBytesMax) + 1;
  }
  PW_RETURN_IF_ERROR(session.spend_text(text.size() * static_cast<std::size_t>(times)));
  Rope out;
  for (; times > 0; --times) out.append(text);
  return Value(std::move(out));
}

Result<Value> repeat_list(const List& list, int64_t times, Session& session) {
  std::vector<Value> items;
  if (!list.items.empty()) {
    times = std::clamp<int64_t>(times, 0, static_cast<int64_t>(Session::kListItemsMax) + 1);
    PW_RETURN_IF_ERROR(session.spend_list(list.items.size() * static_cast<std::size_t>(times)));
    for (; times > 0; --times) items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return make_list(std::move(items), list.is_tuple);
}

Result<Value> concatenate(const Rope& left, const Rope& right, Session& session) {
  PW_RETURN_IF_ERROR(session.spend_text(left.size() + right.size()));
  Rope out = left;
  out.append(right);
  return Value(std::move(out));
}

Result<bool> contains(const Value& container, const Value& item, Session& session) {
  if (container.is_undefined()) return false;
  if (const Rope* text = container.text()) {
    if (item.text() == nullptr) return wrong_types(Operator::kIn, item, container);
    PW_RETURN_IF_ERROR(session.spend_find(text->size(), item.text()->size()));
    return item.text()->empty() ||
           find_text(text->bytes(), item.text()->bytes()) != std::string_view::npos;
  }
  if (const List* list = container.list()) {
    for (const Value& candidate : list->items) {
      PW_ASSIGN_OR_RETURN(const bool same, compare_equal(candidate, item, session));
      if (same) return true;
    }
    return false;
  }
  if (const Dict* dict = container.dict()) {
    PW_RETURN_IF_ERROR(session.spend_search(dict->entries.size()));
    return item.text() != nullptr && dict->find(item.text()->bytes()) != nullptr;
  }
  return wrong_types(Operator::kIn, item, container);
}

/// -1, 0 or 1.
Result<int> order(Operator op, const Value& left, const Value& right, Session& session) {
  PW_RETURN_IF_ERROR(session.spend(1 + std::min(weight_of(left), weight_of(right)) / 16));
  const Result<int> compared = compare_values(left, right);
  if (!compared) return wrong_types(op, left, right);
  return compared;
}

/// Index `at` of something with `count` items, counted from the end when negative.
std::optional<std::size_t> resolve_index(int64_t at, std::size_t count) {
  const auto size = static_cast<int64_t>(count);
  if (at < -size || at >= size) return std::nullopt;
  return static_cast<std::size_t>(at < 0 ? at + size : at);
}

Result<std::optional<int64_t>> slice_bound(const Value& value) {
  if (value.is_none()) return std::optional<int64_t>();
  if (value.is_undefined()) return undefined_error(value);
  if (!value.is_integral()) {
    return fail(fmt::format("a slice needs whole numbers, not '{}'", type_name(value)));
  }
  return std::optional(value.integral());
}

/// The indices that start:stop:step picks from `count` items, as Python's slice.indices().
std::vector<std::size_t> slice_indices(std::optional<int64_t> start, std::optional<int64_t> stop,
                                       int64_t step, std::size_t count) {
  const auto size = static_cast<int64_t>(count);
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? size : size - 1;
  const auto clamp = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound) return otherwise;
    int64_t at = *bound;
    if (at < 0) at = at < -size ? low : at + size;
    return std::clamp(at, low, high);
  };
  int64_t at = clamp(start, step > 0 ? low : high);
  const int64_t end = clamp(stop, step > 0 ? high : low);
  // A stride beyond the size picks at most one item; cut it so that stepping cannot overflow.
  step = std::clamp(step, -size - 1, size + 1);
  std::vector<std::size_t> indices;
  for (; step > 0 ? at < end : at > end; at += step)
    indices.push_back(static_cast<std::size_t>(at));
  return indices;
}

}  // namespace

Result<int> compare_values(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return left.integral() < right.integral() ? -1 : left.integral() > right.integral() ? 1 : 0;
  }
  if (left.is_number() && right.is_number()) {
    return left.number() < right.number() ? -1 : left.number() > right.number() ? 1 : 0;
  }
  if (left.text() != nullptr && right.text() != nullptr) {
    // The bytes of UTF-8 are in the order of the code points.
    const int compared = left.text()->bytes().compare(right.text()->bytes());
    return compared < 0 ? -1 : compared > 0 ? 1 : 0;
  }
  const List* a = left.list();
  const List* b = right.list();
  if (a == nullptr || b == nullptr || a->is_tuple != b->is_tuple) {
    if (left.is_undefined()) return undefined_error(left);
    if (right.is_undefined()) return undefined_error(right);
    return fail(fmt::format("'{}' and '{}' have no order", type_name(left), type_name(right)));
  }
  for (std::size_t i = 0; i < std::min(a->items.size(), b->items.size()); ++i) {
    // Equal items need no order: the first that differs decides.
    if (!equal(a->items[i], b->items[i])) return compare_values(a->items[i], b->items[i]);
  }
  return a->items.size() < b->items.size() ? -1 : a->items.size() > b->items.size() ? 1 : 0;
}

Error undefined_error(const Value& value) {
  const std::string& name = value.undefined()->name;
  return fail(name.empty() ? "a value is undefined" : fmt::format("'{}' is undefined", name));
}

Result<Value> apply_unary(Operator op, const Value& operand) {
  if (op == Operator::kNot) return Value(!truthy(operand));
  if (operand.is_undefined()) return undefined_error(operand);
  if (!operand.is_number()) {
    return fail(fmt::format("a sign does not work on '{}'", type_name(operand)));
  }
  if (operand.floating() != nullptr) {
    return Value(op == Operator::kNegative ? -*operand.floating() : *operand.floating());
  }
  if (op == Operator::kPositive) return Value(operand.integral());
  if (operand.integral() == INT64_MIN) return overflow();
  return Value(-operand.integral());
}

Result<Value> apply_binary(Operator op, const Value& left, const Value& right, Session& session) {
  if (op == Operator::kConcatenate) {
    PW_ASSIGN_OR_RETURN(const Rope left_text, print(left, session));
    PW_ASSIGN_OR_RETURN(const Rope right_text, print(right, session));
    return concatenate(left_text, right_text, session);
  }
  if (left.is_integral() && right.is_integral()) {
    return integer_arithmetic(op, left.integral(), right.integral());
  }
  if (left.is_number() && right.is_number()) {
    return float_arithmetic(op, left.number(), right.number());
  }
  if (op == Operator::kAdd && left.text() != nullptr && right.text() != nullptr) {
    return concatenate(*left.text(), *right.text(), session);
  }
  if (op == Operator::kAdd && left.list() != nullptr && right.list() != nullptr &&
      left.list()->is_tuple == right.list()->is_tuple) {
    PW_RETURN_IF_ERROR(session.spend_list(left.list()->items.size() + right.list()->items.size()));
    std::vector<Value> items = left.list()->items;
    items.insert(items.end(), right.list()->items.begin(), right.list()->items.end());
    return make_list(std::move(items), left.list()->is_tuple);
  }
  if (op == Operator::kMultiply && left.text() != nullptr && right.is_integral()) {
    return repeat(*left.text(), right.integral(), session);
  }
  if (op == Operator::kMultiply && left.is_integral() && right.text() != nullptr) {
    return repeat(*right.text(), left.integral(), session);
  }
  if (op == Operator::kModulo && left.text() != nullptr) {
    return format_percent(*left.text(), right, session);
  }
  if (op == Operator::kMultiply && left.list() != nullptr && right.is_integral()) {
    return repeat_list(*left.list(), right.integral(), session);
  }
  if (op == Operator::kMultiply && left.is_integral() && right.list() != nullptr) {
    return repeat_list(*right.list(), left.integral(), session);
  }
  return wrong_types(op, left, right);
}

Result<bool> apply_comparison(Operator op, const Value& left, const Value& right,
                              Session& session) {
  if (op == Operator::kEqual || op == Operator::kUnequal) {
    PW_ASSIGN_OR_RETURN(const bool same, compare_equal(left, right, session));
    return same == (op == Operator::kEqual);
  }
  if (op == Operator::kIn || op == Operator::kNotIn) {
    PW_ASSIGN_OR_RETURN(const bool found, contains(right, left, session));
    return found == (op == Operator::kIn);
  }
  PW_ASSIGN_OR_RETURN(const int compared, order(op, left, right, session));
  switch (op) {
    case Operator::kLess:
      return compared < 0;
    case Operator::kLessEqual:
      return compared <= 0;
    case Operator::kGreater:
      return compared > 0;
    default:
      return compared >= 0;
  }
}

namespace {

/// A method that is named and not called: it is defined and true, and that is all it is good for.
Value dict_method(std::string_view name) {
  static constexpr std::string_view kNames[] = {"copy", "get", "items", "keys", "values"};
  if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
    return Undefined{std::string(name)};
  }
  Callable method;
  method.builtin = find_method(name);
  return method;
}

/// The entry, member or attribute of this name, or null.
Result<const Value*> find_member(const Value& value, std::string_view name, Session& session) {
  if (const List* list = value.list(); list != nullptr && list->is_group) {
    if (name == "grouper") return &list->items[0];
    if (name == "list") return &list->items[1];
  }
  if (const Dict* dict = value.dict()) {
    PW_RETURN_IF_ERROR(session.spend_search(dict->entries.size()));
    return dict->find(name);
  }
  if (const Namespace* name_space = value.name_space()) {
    PW_RETURN_IF_ERROR(session.spend_search(name_space->values.size()));
    return name_space->find(name);
  }
  return static_cast<const Value*>(nullptr);
}

}  // namespace

Result<Value> get_attribute(const Value& value, std::string_view name, Session& session) {
  if (value.is_undefined()) return undefined_error(value);
  if (value.loop() != nullptr) return value.loop()->attribute(name);
  if (value.callable() != nullptr && value.callable()->macro != nullptr && name == "name") {
    return make_text(value.callable()->macro->name);
  }
  if (value.dict() != nullptr) {
    // As in Python a method hides an entry of its name; entry['items'] finds it.
    Value method = dict_method(name);
    if (!method.is_undefined()) return method;
  }
  PW_ASSIGN_OR_RETURN(const Value* found, find_member(value, name, session));
  return found != nullptr ? *found : Value(Undefined{std::string(name)});
}

Result<Value> get_item(const Value& value, const Value& key, Session& session) {
  if (value.is_undefined()) return undefined_error(value);
  if (key.text() != nullptr) {
    PW_ASSIGN_OR_RETURN(const Value* found, find_member(value, key.text()->bytes(), session));
    return found != nullptr ? *found : get_attribute(value, key.text()->bytes(), session);
  }
  if (key.is_integral()) {
    if (const List* list = value.list()) {
      const auto index = resolve_index(key.integral(), list->items.size());
      if (index) return list->items[*index];
    }
    if (const Rope* text = value.text()) {
      PW_RETURN_IF_ERROR(session.spend_text(text->size()));
      const std::vector<uint32_t> offsets = character_offsets(text->bytes());
      const auto index = resolve_index(key.integral(), offsets.size() - 1);
      if (index) return Value(text->slice(offsets[*index], offsets[*index + 1]));
    }
  }
  return Value(Undefined{"an index"});
}

Result<Value> get_slice(const Value& value, const Value& start, const Value& stop,
                        const Value& step, Session& session) {
  if (value.is_undefined()) return undefined_error(value);
  PW_ASSIGN_OR_RETURN(const auto first, slice_bound(start));
  PW_ASSIGN_OR_RETURN(const auto last, slice_bound(stop));
  PW_ASSIGN_OR_RETURN(const auto stride, slice_bound(step));
  if (stride == 0) return fail("a slice's step is 0");
  if (const List* list = value.list()) {
    PW_RETURN_IF_ERROR(session.spend_list(list->items.size()));
    std::vector<Value> items;
    for (const std::size_t i : slice_indices(first, last, stride.value_or(1), list->items.size())) {
      items.push_back(list->items[i]);
    }
    return make_list(std::move(items), list->is_tuple);
  }
  if (const Rope* text = value.text()) {
    PW_RETURN_IF_ERROR(session.spend_text(text->size()));
    PW_RETURN_IF_ERROR(session.spend(text->size() / 4));
    const std::vector<uint32_t> offsets = character_offsets(text->bytes());
    const auto indices = slice_indices(first, last, stride.value_or(1), offsets.size() - 1);
    if (stride.value_or(1) == 1) {
      if (indices.empty()) return Value(Rope());
      return Value(text->slice(offsets[indices.front()], offsets[indices.back() + 1]));
    }
    Rope out;
    for (const std::size_t i : indices) out.append(*text, offsets[i], offsets[i + 1]);
    return Value(std::move(out));
  }
  return fail(fmt::format("'{}' cannot be sliced", type_name(value)));
}

}  // namespace pagewise::text::jinja
