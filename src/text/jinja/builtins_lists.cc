// SPDX-License-Identifier: Apache-2.0
// Filters over lists: what they pick, order, group and join.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "text/jinja/builtins_internal.h"
#include "text/jinja/operators.h"

namespace pagewise::text::jinja {
namespace {

/// Items of a list by a path of names and numbers: "function.name".
Result<Value> by_path(const Value& item, std::string_view path, Session& session) {
  Value value = item;
  while (true) {
    const std::size_t dot = path.find('.');
    const std::string_view part = path.substr(0, dot);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    if (!part.empty() && error == std::errc() && end == part.data() + part.size()) {
      PW_ASSIGN_OR_RETURN(value, get_item(value, index, session));
    } else {
      PW_ASSIGN_OR_RETURN(value, get_item(value, make_text(part), session));
    }
    if (dot == std::string_view::npos) return value;
    path.remove_prefix(dot + 1);
  }
}

/// The same by a value: text is a path, a number an index.
Result<Value> by_attribute(const Value& item, const Value& attribute, Session& session) {
  PW_RETURN_IF_ERROR(session.spend(1));
  if (attribute.is_integral()) return get_item(item, attribute, session);
  if (attribute.text() == nullptr) {
    return fail(fmt::format("an attribute's name is text, not '{}'", type_name(attribute)));
  }
  return by_path(item, attribute.text()->bytes(), session);
}

Result<Value> filter_join(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* separator, text_argument(call, 0));
  const Rope between = separator != nullptr ? *separator : Rope();
  if (!call.arguments[1]) return join(call, call.subject, between, false);
  PW_ASSIGN_OR_RETURN(const Value list, to_list(call.subject, call.session));
  std::vector<Value> items;
  for (const Value& item : list.list()->items) {
    PW_ASSIGN_OR_RETURN(Value value, by_attribute(item, *call.arguments[1], call.session));
    items.push_back(std::move(value));
  }
  PW_ASSIGN_OR_RETURN(const Value joined, make_list(std::move(items)));
  return join(call, joined, between, false);
}

// ---- filters over lists
// ---------------------------------------------------------------------------

/// Calls the builtin that a template names as text, with call.rest[from..] as its arguments.
Result<Value> apply(const Call& call, const Builtin& builtin, const Value& subject,
                    std::size_t from) {
  PW_RETURN_IF_ERROR(call.session.spend(2));
  const std::size_t given = call.rest.size() - std::min(from, call.rest.size());
  if (given < builtin.required || given > builtin.parameters.size()) {
    return fail(fmt::format("'{}' cannot be applied with {} argument(s)", builtin.name, given));
  }
  Call inner{builtin.name, subject, {}, {}, {}, call.session};
  inner.arguments.resize(builtin.parameters.size());
  for (std::size_t i = 0; i < given; ++i) inner.arguments[i] = call.rest[from + i];
  return builtin.function(inner);
}

Result<std::string_view> name_of(const Call& call, std::size_t index) {
  if (call.rest.size() <= index || call.rest[index].text() == nullptr) {
    return fail(fmt::format("'{}' needs a name", call.name));
  }
  return call.rest[index].text()->bytes();
}

/// select, reject, selectattr, rejectattr: the items of which a test holds, or does not.
template <bool kByAttribute, bool kKeep>
Result<Value> filter_select(const Call& call) {
  const std::size_t place = kByAttribute ? 1 : 0;  // of the test's name
  if (kByAttribute && call.rest.empty()) {
    return fail(fmt::format("'{}' needs an attribute's name", call.name));
  }
  const Builtin* test = nullptr;
  if (call.rest.size() > place) {
    PW_ASSIGN_OR_RETURN(const std::string_view name, name_of(call, place));
    test = find_test(name);
    if (test == nullptr) return fail(fmt::format("there is no test '{}'", name));
  }
  PW_ASSIGN_OR_RETURN(const Value list, to_list(call.subject, call.session));
  PW_RETURN_IF_ERROR(call.session.spend_list(list.list()->items.size()));
  std::vector<Value> kept;
  for (const Value& item : list.list()->items) {
    Value tested = item;
    if (kByAttribute) {
      PW_ASSIGN_OR_RETURN(tested, by_attribute(item, call.rest[0], call.session));
    }
    bool holds = truthy(tested);
    if (test != nullptr) {
      PW_ASSIGN_OR_RETURN(const Value result, apply(call, *test, tested, place + 1));
      holds = truthy(result);
    }
    if (holds == kKeep) kept.push_back(item);
  }
  return make_list(std::move(kept));
}

/// map(attribute=..., default=...) or map('filter', ...).
Result<Value> filter_map(const Call& call) {
  const Value* attribute = nullptr;
  const Value* otherwise = nullptr;
  for (const auto& [name, value] : call.named) {
    if (name != "attribute" && name != "default") {
      return fail(fmt::format("'map' has no argument '{}'", name));
    }
    (name == "attribute" ? attribute : otherwise) = &value;
  }
  const Builtin* filter = nullptr;
  if (attribute == nullptr) {
    PW_ASSIGN_OR_RETURN(const std::string_view name, name_of(call, 0));
    filter = find_filter(name);
    if (filter == nullptr) return fail(fmt::format("there is no filter '{}'", name));
  }
  PW_ASSIGN_OR_RETURN(const Value list, to_list(call.subject, call.session));
  PW_RETURN_IF_ERROR(call.session.spend_list(list.list()->items.size()));
  std::vector<Value> mapped;
  for (const Value& item : list.list()->items) {
    Value value;
    if (filter != nullptr) {
      PW_ASSIGN_OR_RETURN(value, apply(call, *filter, item, 1));
    } else {
      PW_ASSIGN_OR_RETURN(value, by_attribute(item, *attribute, call.session));
      if (value.is_undefined() && otherwise != nullptr) value = *otherwise;
    }
    mapped.push_back(std::move(value));
  }
  return make_list(std::move(mapped));
}

/// What items are ordered and told apart by: text without its case unless that counts.
Result<Value> sort_key(const Call& call, const Value& value, bool with_case) {
  if (value.text() == nullptr || with_case) return value;
  return lower_case(call, *value.text());
}

/// The keys of all items, by themselves or by an attribute; several, separated by commas, make a
/// list.
Result<std::vector<Value>> sort_keys(const Call& call, const std::vector<Value>& items,
                                     const std::optional<Value>& attribute, bool with_case,
                                     const Value* otherwise = nullptr) {
  std::vector<Value> keys;
  for (const Value& item : items) {
    if (!attribute || attribute->is_none()) {
      PW_ASSIGN_OR_RETURN(Value key, sort_key(call, item, with_case));
      keys.push_back(std::move(key));
      continue;
    }
    std::vector<Value> parts;
    std::string_view rest = attribute->text() != nullptr ? attribute->text()->bytes() : "";
    while (true) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      const Value path =
          attribute->text() != nullptr ? make_text(rest.substr(0, comma)) : *attribute;
      PW_ASSIGN_OR_RETURN(Value part, by_attribute(item, path, call.session));
      if (part.is_undefined() && otherwise != nullptr) part = *otherwise;
      PW_ASSIGN_OR_RETURN(part, sort_key(call, part, with_case));
      parts.push_back(std::move(part));
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
    if (parts.size() == 1) {
      keys.push_back(std::move(parts[0]));
    } else {
      PW_ASSIGN_OR_RETURN(Value key, make_list(std::move(parts)));
      keys.push_back(std::move(key));
    }
  }
  return keys;
}

/// The places of `keys` in ascending order; equal ones keep theirs.
Result<std::vector<std::size_t>> sorted_places(const Call& call, const std::vector<Value>& keys,
                                               bool reverse) {
  uint64_t weight = 0;
  for (const Value& key : keys) weight += 16 + weight_of(key);
  PW_RETURN_IF_ERROR(call.session.spend(weight));  // about log n comparisons an item
  std::vector<std::size_t> places(keys.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
  Status comparable;  // after a failure all are alike, which ends the sorting
  std::stable_sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) {
    if (!comparable) return false;
    const Result<int> compared = compare_values(keys[a], keys[b]);
    if (!compared) comparable = compared.status();
    return compared && (reverse ? *compared > 0 : *compared < 0);
  });
  PW_RETURN_IF_ERROR(comparable);
  return places;
}

Result<Value> filter_sort(const Call& call) {  // reverse, case_sensitive, attribute
  PW_ASSIGN_OR_RETURN(const Value list, to_list(call.subject, call.session));
  PW_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                      sort_keys(call, list.list()->items, call.arguments[2], flag(call, 1)));
  PW_ASSIGN_OR_RETURN(const auto places, sorted_places(call, keys, flag(call, 0)));
  std::vector<Value> sorted;
  for (const std::size_t place : places) sorted.push_back(list.list()->items[place]);
  return make_list(std::move(sorted));
}

Result<Value> filter_dictsort(const Call& call) {  // case_sensitive, by, reverse
  if (call.subject.is_undefined()) return undefined_error(call.subject);
  const Dict* dict = call.subject.dict();
  if (dict == nullptr) {
    return fail(fmt::format("'dictsort' needs a dictionary, not '{}'", type_name(call.subject)));
  }
  PW_ASSIGN_OR_RETURN(const Rope* by, text_argument(call, 1));
  const std::string_view part = by != nullptr ? by->bytes() : "key";
  if (part != "key" && part != "value") return fail("'dictsort' sorts by 'key' or by 'value'");
  std::vector<Value> keys;
  for (const auto& [key, value] : dict->entries) {
    PW_ASSIGN_OR_RETURN(Value sorted_by,
                        sort_key(call, part == "key" ? key : value, flag(call, 0)));
    keys.push_back(std::move(sorted_by));
  }
  PW_ASSIGN_OR_RETURN(const auto places, sorted_places(call, keys, flag(call, 2)));
  PW_RETURN_IF_ERROR(call.session.spend_list(places.size()));
  std::vector<Value> items;
  for (const std::size_t place : places) {
    const auto& [key, value] = dict->entries[place];
    PW_ASSIGN_OR_RETURN(Value pair, make_list({key, value}, true));
    items.push_back(std::move(pair));
  }
  return make_list(std::move(items));
}

Result<Value> filter_unique(const Call& call) {  // case_sensitive, attribute
  PW_ASSIGN_OR_RETURN(const Value list, to_list(call.subject, call.session));
  std::vector<Value> keys;
  std::vector<Value> kept;
  for (const Value& item : list.list()->items) {
    Value key = item;
    if (call.arguments[1] && !call.arguments[1]->is_none()) {
      PW_ASSIGN_OR_RETURN(key, by_attribute(item, *call.arguments[1], call.session));
    }
    PW_ASSIGN_OR_RETURN(key, sort_key(call, key, flag(call, 0)));
    bool seen = false;
    for (const Value& other : keys) {
      PW_ASSIGN_OR_RETURN(seen, compare_equal(key, other, call.session));
      if (seen) break;
    }
    if (seen) continue;
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return make_list(std::move(kept));
}

/// min and max: the first of the least or greatest.
template <bool kGreatest>
Result<Value> filter_extreme(const Call& call) {  // case_sensitive, attribute
  PW_ASSIGN_OR_RETURN(const Value list, to_list(call.subject, call.session));
  const std::vector<Value>& items = list.list()->items;
  if (items.empty()) return Value(Undefined{"the extreme of an empty list"});
  PW_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                      sort_keys(call, items, call.arguments[1], flag(call, 0)));
  std::size_t best = 0;
  for (std::size_t i = 1; i < keys.size(); ++i) {
    PW_RETURN_IF_ERROR(call.session.spend(1 + weight_of(keys[i]) / 16));
    PW_ASSIGN_OR_RETURN(const int compared, compare_values(keys[i], keys[best]));
    if (kGreatest ? compared > 0 : compared < 0) best = i;
  }
  return items[best];
}

Result<Value> filter_sum(const Call& call) {  // attribute, start
  PW_ASSIGN_OR_RETURN(const Value list, to_list(call.subject, call.session));
  Value sum = call.arguments[1] ? *call.arguments[1] : Value(int64_t{0});
  if (sum.text() != nullptr) return fail("'sum' adds no texts");
  for (const Value& item : list.list()->items) {
    Value value = item;
    if (call.arguments[0] && !call.arguments[0]->is_none()) {
      PW_ASSIGN_OR_RETURN(value, by_attribute(item, *call.arguments[0], call.session));
    }
    PW_ASSIGN_OR_RETURN(sum, apply_binary(Operator::kAdd, sum, value, call.session));
  }
  return sum;
}

/// Lists of `linecount` items; the last one is filled up.
Result<Value> filter_batch(const Call& call) {  // linecount, fill_with
  PW_ASSIGN_OR_RETURN(const Value list, to_list(call.subject, call.session));
  PW_ASSIGN_OR_RETURN(const int64_t size, integer_argument(call, 0, 0));
  if (size < 1 || size > static_cast<int64_t>(Session::kListItemsMax)) {
    return fail("'batch' needs a whole number of at least 1");
  }
  PW_RETURN_IF_ERROR(call.session.spend_list(
      list.list()->items.size() + (call.arguments[1] ? static_cast<uint64_t>(size) : 0)));
  std::vector<Value> batches;
  std::vector<Value> batch;
  const auto close = [&]() -> Status {
    PW_ASSIGN_OR_RETURN(Value made, make_list(std::exchange(batch, {})));
    batches.push_back(std::move(made));
    return Status::ok();
  };
  for (const Value& item : list.list()->items) {
    if (batch.size() == static_cast<std::size_t>(size)) PW_RETURN_IF_ERROR(close());
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (call.arguments[1] && !call.arguments[1]->is_none()) {
      batch.resize(static_cast<std::size_t>(size), *call.arguments[1]);
    }
    PW_RETURN_IF_ERROR(close());
  }
  return make_list(std::move(batches));
}

/// `slices` lists of about equal length, the longer ones first; shorter ones are filled up.
Result<Value> filter_slice(const Call& call) {  // slices, fill_with
  PW_ASSIGN_OR_RETURN(const Value list, to_list(call.subject, call.session));
  PW_ASSIGN_OR_RETURN(const int64_t slices, integer_argument(call, 0, 0));
  if (slices < 1 || slices > static_cast<int64_t>(Session::kListItemsMax)) {
    return fail("'slice' needs a whole number of at least 1");
  }
  const std::vector<Value>& items = list.list()->items;
  const auto count = static_cast<std::size_t>(slices);
  PW_RETURN_IF_ERROR(call.session.spend_list(items.size() + count));
  std::vector<Value> out;
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool longer = i < items.size() % count;
    const std::size_t end = at + items.size() / count + (longer ? 1 : 0);
    std::vector<Value> slice(items.begin() + static_cast<std::ptrdiff_t>(at),
                             items.begin() + static_cast<std::ptrdiff_t>(end));
    if (!longer && call.arguments[1] && !call.arguments[1]->is_none()) {
      slice.push_back(*call.arguments[1]);
    }
    PW_ASSIGN_OR_RETURN(Value made, make_list(std::move(slice)));
    out.push_back(std::move(made));
    at = end;
  }
  return make_list(std::move(out));
}

/// Pairs of a key and the items that have it, in the keys' order.
Result<Value> filter_groupby(const Call& call) {  // attribute, default, case_sensitive
  PW_ASSIGN_OR_RETURN(const Value list, to_list(call.subject, call.session));
  const std::vector<Value>& items = list.list()->items;
  const Value* otherwise = call.arguments[1] ? &*call.arguments[1] : nullptr;
  const std::optional<Value>& attribute = call.arguments[0];
  PW_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                      sort_keys(call, items, attribute, flag(call, 2), otherwise));
  PW_ASSIGN_OR_RETURN(const std::vector<Value> shown,
                      sort_keys(call, items, attribute, true, otherwise));
  PW_ASSIGN_OR_RETURN(const auto places, sorted_places(call, keys, false));
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < places.size();) {
    std::vector<Value> members;
    std::size_t end = begin;
    for (; end < places.size(); ++end) {
      PW_ASSIGN_OR_RETURN(const bool same,
                          compare_equal(keys[places[begin]], keys[places[end]], call.session));
      if (!same) break;
      members.push_back(items[places[end]]);
    }
    PW_ASSIGN_OR_RETURN(Value together, make_list(std::move(members)));
    PW_ASSIGN_OR_RETURN(Value group, make_group(shown[places[begin]], std::move(together)));
    groups.push_back(std::move(group));
    begin = end;
  }
  return make_list(std::move(groups));
}

}  // namespace

std::span<const Builtin> list_filters() {
  static const std::vector<Builtin> table = {
      {"batch", filter_batch, {"linecount", "fill_with"}, 1},
      {"dictsort", filter_dictsort, {"case_sensitive", "by", "reverse"}, 0},
      {"groupby", filter_groupby, {"attribute", "default", "case_sensitive"}, 1},
      {"join", filter_join, {"d", "attribute"}, 0},
      {"map", filter_map, {}, 0, true, true},
      {"max", filter_extreme<true>, {"case_sensitive", "attribute"}, 0},
      {"min", filter_extreme<false>, {"case_sensitive", "attribute"}, 0},
      {"reject", filter_select<false, false>, {}, 0, true},
      {"rejectattr", filter_select<true, false>, {}, 0, true},
      {"select", filter_select<false, true>, {}, 0, true},
      {"selectattr", filter_select<true, true>, {}, 0, true},
      {"slice", filter_slice, {"slices", "fill_with"}, 1},
      {"sort", filter_sort, {"reverse", "case_sensitive", "attribute"}, 0},
      {"sum", filter_sum, {"attribute", "start"}, 0},
      {"unique", filter_unique, {"case_sensitive", "attribute"}, 0},
  };
  return table;
}

}  // namespace pagewise::text::jinja
