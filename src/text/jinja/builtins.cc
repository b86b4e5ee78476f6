// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/builtins.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <optional>

#include "text/jinja/builtins_internal.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"

namespace pagewise::text::jinja {

Result<const Rope*> subject_text(const Call& call) {
  if (call.subject.is_undefined()) return undefined_error(call.subject);
  if (call.subject.text() == nullptr) {
    return fail(fmt::format("'{}' has no method '{}'", type_name(call.subject), call.name));
  }
  return call.subject.text();
}

Result<const Dict*> subject_dict(const Call& call) {
  if (call.subject.is_undefined()) return undefined_error(call.subject);
  if (call.subject.dict() == nullptr) {
    return fail(fmt::format("'{}' has no method '{}'", type_name(call.subject), call.name));
  }
  return call.subject.dict();
}

Result<const Rope*> text_argument(const Call& call, std::size_t index) {
  const auto& argument = call.arguments[index];
  if (!argument || argument->is_none()) return static_cast<const Rope*>(nullptr);
  if (argument->text() == nullptr) {
    return fail(fmt::format("'{}' needs text, not '{}'", call.name, type_name(*argument)));
  }
  return argument->text();
}

Result<int64_t> integer_argument(const Call& call, std::size_t index, int64_t otherwise) {
  const auto& argument = call.arguments[index];
  if (!argument || argument->is_none()) return otherwise;
  if (!argument->is_integral()) {
    return fail(
        fmt::format("'{}' needs a whole number, not '{}'", call.name, type_name(*argument)));
  }
  return argument->integral();
}

bool flag(const Call& call, std::size_t index) {
  return call.arguments[index] && truthy(*call.arguments[index]);
}

namespace {

// ---- containers
// -----------------------------------------------------------------------------------

enum class Entry { kKey, kValue, kPair };

Result<Value> entries_of(const Call& call, const Dict& dict, Entry entry) {
  PW_RETURN_IF_ERROR(call.session.spend_list(dict.entries.size()));
  std::vector<Value> items;
  items.reserve(dict.entries.size());
  for (const auto& [key, value] : dict.entries) {
    if (entry == Entry::kPair) {
      PW_ASSIGN_OR_RETURN(Value pair, make_list({key, value}, true));
      items.push_back(std::move(pair));
    } else {
      items.push_back(entry == Entry::kKey ? key : value);
    }
  }
  return make_list(std::move(items));
}

template <Entry kEntry>
Result<Value> method_entries(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Dict* dict, subject_dict(call));
  return entries_of(call, *dict, kEntry);
}

Result<Value> filter_items(const Call& call) {
  if (call.subject.is_undefined()) return make_list({});
  if (call.subject.dict() == nullptr) {
    return fail(fmt::format("'items' needs a dictionary, not '{}'", type_name(call.subject)));
  }
  return entries_of(call, *call.subject.dict(), Entry::kPair);
}

Result<Value> method_get(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Dict* dict, subject_dict(call));
  // Keys are texts, so another value is none of them; what cannot be a key is an error, as in
  // Python.
  const Value& wanted = *call.arguments[0];
  if (wanted.dict() != nullptr || (wanted.list() != nullptr && !wanted.list()->is_tuple)) {
    return fail(fmt::format("a '{}' cannot be a key", type_name(wanted)));
  }
  PW_RETURN_IF_ERROR(call.session.spend_search(dict->entries.size()));
  const Value* found = wanted.text() != nullptr ? dict->find(wanted.text()->bytes()) : nullptr;
  if (found != nullptr) return *found;
  return call.arguments[1] ? *call.arguments[1] : Value(None{});
}

Result<Value> method_copy(const Call& call) {
  if (call.subject.list() != nullptr || call.subject.dict() != nullptr) return call.subject;
  return fail(fmt::format("'{}' has no method 'copy'", type_name(call.subject)));
}

/// Whether the values differ from those of the last call in this loop.
Result<Value> method_changed(const Call& call) {
  if (call.subject.loop() == nullptr) {
    return fail(fmt::format("'{}' has no method 'changed'", type_name(call.subject)));
  }
  Loop::State& state = *call.subject.loop()->state;
  PW_ASSIGN_OR_RETURN(const Value now, make_list(call.rest, true));
  if (state.seen) {
    PW_ASSIGN_OR_RETURN(const bool same, compare_equal(*state.seen, now, call.session));
    if (same) return Value(false);
  }
  state.seen = std::make_shared<const Value>(now);
  return Value(true);
}

Result<Value> method_cycle(const Call& call) {
  if (call.subject.loop() == nullptr) {
    return fail(fmt::format("'{}' has no method 'cycle'", type_name(call.subject)));
  }
  if (call.rest.empty()) return fail("'cycle' needs at least one value");
  return call.rest[call.subject.loop()->index % call.rest.size()];
}

Result<Value> filter_length(const Call& call) {
  const Value& value = call.subject;
  if (value.is_undefined()) return Value(int64_t{0});
  if (const Rope* text = value.text()) {
    PW_RETURN_IF_ERROR(call.session.spend_text(text->size()));
    return Value(static_cast<int64_t>(character_count(text->bytes())));
  }
  if (value.list() != nullptr) return Value(static_cast<int64_t>(value.list()->items.size()));
  if (value.dict() != nullptr) return Value(static_cast<int64_t>(value.dict()->entries.size()));
  return fail(fmt::format("'{}' has no length", type_name(value)));
}

template <bool kLast>
Result<Value> filter_end_item(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Value list, to_list(call.subject, call.session));
  const std::vector<Value>& items = list.list()->items;
  if (items.empty()) return Value(Undefined{std::string(call.name)});
  return kLast ? items.back() : items.front();
}

Result<Value> filter_list(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Value list, to_list(call.subject, call.session));
  return list.list()->is_tuple ? make_list(list.list()->items) : Result<Value>(list);
}

Result<Value> filter_reverse(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Value list, to_list(call.subject, call.session));
  std::vector<Value> items = list.list()->items;
  std::reverse(items.begin(), items.end());
  if (call.subject.text() == nullptr) return make_list(std::move(items));
  Rope out;
  for (const Value& item : items) out.append(*item.text());
  return Value(std::move(out));
}

// ---- other filters
// --------------------------------------------------------------------------------

Result<Value> filter_default(const Call& call) {
  const bool also_false = call.arguments[1] && truthy(*call.arguments[1]);
  if (!call.subject.is_undefined() && (!also_false || truthy(call.subject))) return call.subject;
  return call.arguments[0] ? *call.arguments[0] : Value(Rope());
}

Result<Value> filter_string(const Call& call) {
  PW_ASSIGN_OR_RETURN(Rope text, print(call.subject, call.session));
  return Value(std::move(text));
}

Result<Value> filter_safe(const Call& call) { return filter_string(call); }

/// The whole number that `digits` are in `base`; the sign's and the base's prefixes are allowed.
std::optional<int64_t> parse_integer(std::string_view digits, int base) {
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  const auto prefix = [&](std::string_view small, std::string_view large, int its_base) {
    if (!digits.starts_with(small) && !digits.starts_with(large)) return;
    if (base != 0 && base != its_base) return;
    base = its_base;
    digits.remove_prefix(2);
  };
  prefix("0x", "0X", 16);
  prefix("0o", "0O", 8);
  prefix("0b", "0B", 2);
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  int64_t value = 0;
  const std::string signed_digits = (negative ? "-" : "") + std::string(digits);
  const char* end = signed_digits.data() + signed_digits.size();
  const auto [stop, error] =
      std::from_chars(signed_digits.data(), end, value, base == 0 ? 10 : base);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<double> parse_number(const Rope& text) {
  const Rope stripped = strip(text, kBoth);
  std::string_view digits = stripped.bytes();
  if (digits.starts_with('+')) digits.remove_prefix(1);
  double value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || stop != digits.data() + digits.size() || digits.empty()) {
    return std::nullopt;
  }
  return value;
}

Result<Value> filter_int(const Call& call) {  // default, base
  PW_ASSIGN_OR_RETURN(const int64_t base, integer_argument(call, 1, 10));
  if (base != 0 && (base < 2 || base > 36)) return fail("'int' takes a base from 2 to 36");
  const Value otherwise = call.arguments[0] ? *call.arguments[0] : Value(int64_t{0});
  if (call.subject.is_integral()) return Value(call.subject.integral());
  if (const double* number = call.subject.floating()) {
    if (!(*number > -9.2e18 && *number < 9.2e18)) return otherwise;
    return Value(static_cast<int64_t>(*number));
  }
  if (const Rope* text = call.subject.text()) {
    const Rope stripped = strip(*text, kBoth);
    if (const auto value = parse_integer(stripped.bytes(), static_cast<int>(base))) {
      return Value(*value);
    }
    const std::optional<double> number = parse_number(*text);
    if (number && *number > -9.2e18 && *number < 9.2e18)
      return Value(static_cast<int64_t>(*number));
  }
  return otherwise;
}

Result<Value> filter_abs(const Call& call) {
  if (call.subject.floating() != nullptr) {
    return Value(*call.subject.floating() < 0 ? -*call.subject.floating()
                                              : *call.subject.floating());
  }
  if (!call.subject.is_integral() || call.subject.integral() == INT64_MIN) {
    return fail(fmt::format("'abs' needs a number, not '{}'", type_name(call.subject)));
  }
  const int64_t value = call.subject.integral();
  return Value(value < 0 ? -value : value);
}

Result<Value> filter_tojson(const Call& call) {
  JsonStyle style;
  style.ascii = call.arguments[0] && truthy(*call.arguments[0]);
  PW_ASSIGN_OR_RETURN(const int64_t indent, integer_argument(call, 1, -1));
  if (indent > 16) return fail("'tojson' indents by at most 16");
  style.indent = static_cast<int>(std::max<int64_t>(indent, -1));
  if (indent >= 0) style.comma = ",";
  if (call.arguments[2] && !call.arguments[2]->is_none()) {
    const List* pair = call.arguments[2]->list();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].text() == nullptr ||
        pair->items[1].text() == nullptr || pair->items[0].text()->size() > 16 ||
        pair->items[1].text()->size() > 16) {
      return fail("'tojson' needs two short texts as separators");
    }
    style.comma = pair->items[0].text()->bytes();
    style.colon = pair->items[1].text()->bytes();
  }
  style.sort_keys = call.arguments[3] && truthy(*call.arguments[3]);
  // Indenting can put up to indent * depth spaces before each item.
  const uint64_t spaces = indent > 0 ? static_cast<uint64_t>(indent) * depth_of(call.subject) : 0;
  PW_RETURN_IF_ERROR(call.session.spend_text(weight_of(call.subject) / 16 * (16 + spaces)));
  // Escapes and sorting take their time too.
  PW_RETURN_IF_ERROR(call.session.spend(weight_of(call.subject) / 4));
  PW_ASSIGN_OR_RETURN(Rope text, to_json(call.subject, style));
  return Value(std::move(text));
}

Result<Value> filter_float(const Call& call) {
  if (call.subject.is_number()) return Value(call.subject.number());
  if (const Rope* text = call.subject.text()) {
    if (const std::optional<double> value = parse_number(*text)) return Value(*value);
  }
  return call.arguments[0] ? *call.arguments[0] : Value(0.0);
}

/// To `precision` digits behind the point: to the nearest, of two the even one; or up, or down.
Result<Value> filter_round(const Call& call) {  // precision, method
  if (call.subject.is_undefined()) return undefined_error(call.subject);
  if (!call.subject.is_number()) {
    return fail(fmt::format("'round' needs a number, not '{}'", type_name(call.subject)));
  }
  PW_ASSIGN_OR_RETURN(const int64_t precision, integer_argument(call, 0, 0));
  PW_ASSIGN_OR_RETURN(const Rope* given, text_argument(call, 1));
  const std::string_view method = given != nullptr ? given->bytes() : "common";
  if (precision < -18 || precision > 30) return fail("'round' takes a precision from -18 to 30");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(call.subject.number() * scale) / scale);
  if (method == "floor") return Value(std::floor(call.subject.number() * scale) / scale);
  if (method != "common") return fail("'round' knows the methods common, ceil and floor");
  if (call.subject.is_integral() && precision >= 0) return Value(call.subject.integral());
  if (precision < 0) {
    const double rounded = std::nearbyint(call.subject.number() * scale) / scale;
    if (call.subject.is_integral()) return Value(static_cast<int64_t>(std::nearbyint(rounded)));
    return Value(rounded);
  }
  // The digits of the exact value decide, not those of a product.
  const std::string digits =
      fmt::format("{:.{}f}", call.subject.number(), static_cast<int>(precision));
  double rounded = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
  return Value(rounded);
}

// ---- tests
// ----------------------------------------------------------------------------------------

Result<Value> test_defined(const Call& call) { return Value(!call.subject.is_undefined()); }
Result<Value> test_undefined(const Call& call) { return Value(call.subject.is_undefined()); }
Result<Value> test_none(const Call& call) { return Value(call.subject.is_none()); }
Result<Value> test_string(const Call& call) { return Value(call.subject.text() != nullptr); }
Result<Value> test_number(const Call& call) { return Value(call.subject.is_number()); }
Result<Value> test_integer(const Call& call) { return Value(call.subject.integer() != nullptr); }
Result<Value> test_float(const Call& call) { return Value(call.subject.floating() != nullptr); }
Result<Value> test_boolean(const Call& call) { return Value(call.subject.boolean() != nullptr); }
Result<Value> test_mapping(const Call& call) { return Value(call.subject.dict() != nullptr); }
Result<Value> test_true(const Call& call) {
  return Value(call.subject.boolean() != nullptr && *call.subject.boolean());
}
Result<Value> test_false(const Call& call) {
  return Value(call.subject.boolean() != nullptr && !*call.subject.boolean());
}
Result<Value> test_sameas(const Call& call) {
  const Value& other = *call.arguments[0];
  if (other.is_none()) return Value(call.subject.is_none());
  if (other.boolean() != nullptr) {
    return Value(call.subject.boolean() != nullptr && *call.subject.boolean() == *other.boolean());
  }
  return fail("'sameas' is offered for true, false and none only");
}
Result<Value> test_callable(const Call& call) { return Value(call.subject.callable() != nullptr); }
Result<Value> test_sequence(const Call& call) {
  const Value& value = call.subject;
  return Value(value.is_undefined() || value.text() != nullptr || value.list() != nullptr ||
               value.dict() != nullptr);
}
Result<Value> test_equal(const Call& call) {
  PW_ASSIGN_OR_RETURN(const bool same,
                      compare_equal(call.subject, *call.arguments[0], call.session));
  return Value(same);
}
Result<Value> test_unequal(const Call& call) {
  PW_ASSIGN_OR_RETURN(const bool same,
                      compare_equal(call.subject, *call.arguments[0], call.session));
  return Value(!same);
}

template <Operator kOperator>
Result<Value> test_comparison(const Call& call) {
  PW_ASSIGN_OR_RETURN(const bool holds,
                      apply_comparison(kOperator, call.subject, *call.arguments[0], call.session));
  return Value(holds);
}

Result<int64_t> remainder_of(const Call& call, int64_t divisor) {
  if (!call.subject.is_integral()) {
    return fail(
        fmt::format("'{}' needs a whole number, not '{}'", call.name, type_name(call.subject)));
  }
  if (divisor == 0) return fail("division by zero");
  return divisor == -1 ? 0 : call.subject.integral() % divisor;
}
Result<Value> test_odd(const Call& call) {
  PW_ASSIGN_OR_RETURN(const int64_t rest, remainder_of(call, 2));
  return Value(rest != 0);
}
Result<Value> test_even(const Call& call) {
  PW_ASSIGN_OR_RETURN(const int64_t rest, remainder_of(call, 2));
  return Value(rest == 0);
}
Result<Value> test_divisible(const Call& call) {
  PW_ASSIGN_OR_RETURN(const int64_t divisor, integer_argument(call, 0, 0));
  PW_ASSIGN_OR_RETURN(const int64_t rest, remainder_of(call, divisor));
  return Value(rest == 0);
}

// ---- functions
// ------------------------------------------------------------------------------------

Result<Value> function_raise(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope message, print(*call.arguments[0], call.session));
  return fail(std::string(message.bytes()));
}

Result<Value> function_namespace(const Call& call) {
  Namespace* result = call.session.make_namespace();
  if (call.rest.size() > 1) return fail("'namespace' takes one dictionary");
  if (call.rest.size() == 1) {
    const Dict* dict = call.rest[0].dict();
    if (dict == nullptr) return fail("'namespace' takes a dictionary and named values");
    PW_RETURN_IF_ERROR(call.session.spend_list(dict->entries.size()));
    PW_RETURN_IF_ERROR(call.session.spend(dict->entries.size() * dict->entries.size() / 16));
    for (const auto& [key, value] : dict->entries) result->set(key.text()->bytes(), value);
  }
  for (const auto& [name, value] : call.named) result->set(name, value);
  return Value(result);
}

/// strftime_now(format): a part of the date and time that the caller of the rendering gave.
Result<Value> function_strftime(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* format, text_argument(call, 0));
  if (format == nullptr) return fail("'strftime_now' needs a format");
  PW_RETURN_IF_ERROR(call.session.spend_text(16 * format->size()));
  const auto seconds = static_cast<std::time_t>(*call.session.now);
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return fail("the time is out of range");
  std::string out;
  const std::string_view bytes = format->bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '%') {
      out.push_back(bytes[i]);
      continue;
    }
    std::string directive = "%";
    if (++i < bytes.size() && bytes[i] == '-') directive.push_back(bytes[i++]);
    const char kind = i < bytes.size() ? bytes[i] : '\0';
    if (kind == '\0' ||
        std::string_view("aAbBdejHIklmMpSuwyYZFTDR%").find(kind) == std::string_view::npos) {
      return fail(fmt::format("'strftime_now' does not offer '{}'", std::string(bytes)));
    }
    directive.push_back(kind);
    char part[64];
    out.append(part, std::strftime(part, sizeof(part), directive.c_str(), &parts));
  }
  return make_text(out);
}

/// dict(a=1), dict({'a': 1}, b=2), dict([('a', 1)]).
Result<Value> function_dict(const Call& call) {
  std::vector<std::pair<Value, Value>> entries;
  const auto put = [&](const Value& key, const Value& value) -> Status {
    if (key.text() == nullptr) {
      return fail(fmt::format("a dictionary's key must be text, not '{}'", type_name(key)));
    }
    PW_RETURN_IF_ERROR(call.session.spend(1 + entries.size() / 16));
    for (auto& [known, old] : entries) {
      if (!equal(known, key)) continue;
      old = value;
      return Status::ok();
    }
    entries.emplace_back(key, value);
    return Status::ok();
  };
  if (call.rest.size() > 1) return fail("'dict' takes one dictionary or list of pairs");
  if (call.rest.size() == 1 && call.rest[0].dict() != nullptr) {
    PW_RETURN_IF_ERROR(call.session.spend_list(call.rest[0].dict()->entries.size()));
    entries = call.rest[0].dict()->entries;
  } else if (call.rest.size() == 1) {
    PW_ASSIGN_OR_RETURN(const Value pairs, to_list(call.rest[0], call.session));
    for (const Value& pair : pairs.list()->items) {
      PW_ASSIGN_OR_RETURN(const Value two, to_list(pair, call.session));
      if (two.list()->items.size() != 2) return fail("'dict' needs pairs");
      PW_RETURN_IF_ERROR(put(two.list()->items[0], two.list()->items[1]));
    }
  }
  for (const auto& [name, value] : call.named) PW_RETURN_IF_ERROR(put(make_text(name), value));
  return make_dict(std::move(entries));
}

Result<Value> function_range(const Call& call) {
  PW_ASSIGN_OR_RETURN(int64_t start, integer_argument(call, 0, 0));
  PW_ASSIGN_OR_RETURN(int64_t stop, integer_argument(call, 1, 0));
  PW_ASSIGN_OR_RETURN(const int64_t step, integer_argument(call, 2, 1));
  if (!call.arguments[1]) {
    stop = start;
    start = 0;
  }
  if (step == 0) return fail("'range' needs a step that is not 0");
  std::vector<Value> items;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    PW_RETURN_IF_ERROR(
        call.session.spend_list(items.size() + 1 > Session::kListItemsMax ? items.size() + 1 : 1));
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return make_list(std::move(items));
}

const Builtin* find(std::span<const Builtin> table, std::string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

}  // namespace

Status Session::spend(uint64_t units) {
  if (units > kWorkMax - spent_) {
    spent_ = kWorkMax;
    return {ErrorCode::kInvalidArgument,
            fmt::format("rendering takes more than {} steps", kWorkMax)};
  }
  spent_ += units;
  return Status::ok();
}

Status Session::spend_text(std::size_t bytes) {
  if (bytes > kTextBytesMax) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("rendering makes a text of over {} MiB", kTextBytesMax >> 20)};
  }
  return spend(1 + bytes / 16);
}

Status Session::spend_growth(std::size_t size, std::size_t added) {
  return spend_text(size + added > kTextBytesMax ? size + added : added);
}

Status Session::spend_text_list(std::size_t items) {
  PW_RETURN_IF_ERROR(spend_list(items));
  return spend(8 * items);
}

Status Session::spend_list(std::size_t items) {
  if (items > kListItemsMax) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("rendering makes a list of over {} items", kListItemsMax)};
  }
  return spend(1 + 2 * items);
}

Namespace* Session::make_namespace() { return &namespaces_.emplace_back(); }

const Builtin& strftime_function() {
  static const Builtin builtin = {"strftime_now", function_strftime, {"format"}, 1};
  return builtin;
}

const Builtin* find_filter(std::string_view name) {
  static const std::vector<Builtin> table = {
      {"abs", filter_abs, {}, 0},
      {"count", filter_length, {}, 0},
      {"d", filter_default, {"default_value", "boolean"}, 0},
      {"default", filter_default, {"default_value", "boolean"}, 0},
      {"first", filter_end_item<false>, {}, 0},
      {"float", filter_float, {"default"}, 0},
      {"int", filter_int, {"default", "base"}, 0},
      {"items", filter_items, {}, 0},
      {"last", filter_end_item<true>, {}, 0},
      {"length", filter_length, {}, 0},
      {"list", filter_list, {}, 0},
      {"reverse", filter_reverse, {}, 0},
      {"round", filter_round, {"precision", "method"}, 0},
      {"safe", filter_safe, {}, 0},
      {"string", filter_string, {}, 0},
      {"tojson", filter_tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0},
  };
  const Builtin* found = find(table, name);
  if (found == nullptr) found = find(text_filters(), name);
  return found != nullptr ? found : find(list_filters(), name);
}

const Builtin* find_test(std::string_view name) {
  static const std::vector<Builtin> table = {
      {"!=", test_unequal, {"other"}, 1},
      {"<", test_comparison<Operator::kLess>, {"other"}, 1},
      {"<=", test_comparison<Operator::kLessEqual>, {"other"}, 1},
      {"==", test_equal, {"other"}, 1},
      {">", test_comparison<Operator::kGreater>, {"other"}, 1},
      {">=", test_comparison<Operator::kGreaterEqual>, {"other"}, 1},
      {"boolean", test_boolean, {}, 0},
      {"callable", test_callable, {}, 0},
      {"defined", test_defined, {}, 0},
      {"divisibleby", test_divisible, {"num"}, 1},
      {"eq", test_equal, {"other"}, 1},
      {"equalto", test_equal, {"other"}, 1},
      {"even", test_even, {}, 0},
      {"false", test_false, {}, 0},
      {"float", test_float, {}, 0},
      {"ge", test_comparison<Operator::kGreaterEqual>, {"other"}, 1},
      {"greaterthan", test_comparison<Operator::kGreater>, {"other"}, 1},
      {"gt", test_comparison<Operator::kGreater>, {"other"}, 1},
      {"in", test_comparison<Operator::kIn>, {"seq"}, 1},
      {"integer", test_integer, {}, 0},
      {"iterable", test_sequence, {}, 0},
      {"le", test_comparison<Operator::kLessEqual>, {"other"}, 1},
      {"lessthan", test_comparison<Operator::kLess>, {"other"}, 1},
      {"lt", test_comparison<Operator::kLess>, {"other"}, 1},
      {"mapping", test_mapping, {}, 0},
      {"ne", test_unequal, {"other"}, 1},
      {"none", test_none, {}, 0},
      {"number", test_number, {}, 0},
      {"odd", test_odd, {}, 0},
      {"sameas", test_sameas, {"other"}, 1},
      {"sequence", test_sequence, {}, 0},
      {"string", test_string, {}, 0},
      {"true", test_true, {}, 0},
      {"undefined", test_undefined, {}, 0},
  };
  const Builtin* found = find(table, name);
  return found != nullptr ? found : find(text_tests(), name);
}

const Builtin* find_method(std::string_view name) {
  static const std::vector<Builtin> table = {
      {"changed", method_changed, {}, 0, true},
      {"copy", method_copy, {}, 0},
      {"cycle", method_cycle, {}, 0, true},
      {"get", method_get, {"key", "default"}, 1},
      {"items", method_entries<Entry::kPair>, {}, 0},
      {"keys", method_entries<Entry::kKey>, {}, 0},
      {"values", method_entries<Entry::kValue>, {}, 0},
  };
  const Builtin* found = find(table, name);
  return found != nullptr ? found : find(text_methods(), name);
}

const Builtin* find_function(std::string_view name) {
  static const std::vector<Builtin> table = {
      {"dict", function_dict, {}, 0, true, true},
      {"namespace", function_namespace, {}, 0, true, true},
      {"raise_exception", function_raise, {"message"}, 1, false, false, true},
      {"range", function_range, {"start", "stop", "step"}, 1},
  };
  return find(table, name);
}

Result<Rope> print(const Value& value, Session& session) {
  PW_RETURN_IF_ERROR(session.spend_text(weight_of(value)));
  return to_text(value);
}

Result<bool> compare_equal(const Value& a, const Value& b, Session& session) {
  PW_RETURN_IF_ERROR(session.spend(1 + std::min(weight_of(a), weight_of(b)) / 16));
  return equal(a, b);
}

Result<Value> to_list(const Value& value, Session& session) {
  if (value.list() != nullptr) return value;
  if (value.is_undefined()) return make_list({});
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    PW_RETURN_IF_ERROR(session.spend_list(dict->entries.size()));
    for (const auto& entry : dict->entries) items.push_back(entry.first);
  } else if (const Rope* text = value.text()) {
    const std::vector<uint32_t> offsets = character_offsets(text->bytes());
    PW_RETURN_IF_ERROR(session.spend_text_list(offsets.size() - 1));
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      items.emplace_back(text->slice(offsets[i], offsets[i + 1]));
    }
  } else {
    return fail(fmt::format("'{}' cannot be walked", type_name(value)));
  }
  return make_list(std::move(items));
}

}  // namespace pagewise::text::jinja
