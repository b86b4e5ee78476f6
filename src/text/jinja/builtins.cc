// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/builtins.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>

#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/provenance.h"

namespace pagewise::text::jinja {

namespace {

Error fail(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

/// The subject of a text method.
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

/// Argument `index` as text; null when absent or none.
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

// ---- stripping
// ------------------------------------------------------------------------------------

enum Side { kLeft = 1, kRight = 2, kBoth = 3 };

/// Without the white space on the sides asked for.
Rope strip(const Rope& text, int sides) {
  std::string_view bytes = text.bytes();
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  if ((sides & kLeft) != 0) begin = leading_space(bytes);
  if ((sides & kRight) != 0 && begin < end) end -= trailing_space(bytes.substr(begin));
  return text.slice(begin, end);
}

/// Without the characters of `set` on the sides asked for.
Result<Rope> strip_set(const Rope& text, const Rope& set, int sides, Session& session) {
  const std::string_view bytes = text.bytes();
  PW_RETURN_IF_ERROR(session.spend((text.size() + set.size()) / 4));
  const std::vector<uint32_t> offsets = character_offsets(bytes);
  const std::vector<uint32_t> set_offsets = character_offsets(set.bytes());
  // Each look is paid for as it happens: most texts need one or two.
  Status paid;
  const auto in_set = [&](std::size_t character) {
    if (paid) paid = session.spend(1 + set.size() / 4);
    if (!paid) return false;
    const std::string_view c =
        bytes.substr(offsets[character], offsets[character + 1] - offsets[character]);
    for (std::size_t i = 0; i + 1 < set_offsets.size(); ++i) {
      if (set.bytes().substr(set_offsets[i], set_offsets[i + 1] - set_offsets[i]) == c) return true;
    }
    return false;
  };
  std::size_t first = 0;
  std::size_t last = offsets.size() - 1;
  while ((sides & kLeft) != 0 && first < last && in_set(first)) ++first;
  while ((sides & kRight) != 0 && first < last && in_set(last - 1)) --last;
  PW_RETURN_IF_ERROR(paid);
  return text.slice(offsets[first], offsets[last]);
}

Result<Value> strip_call(const Call& call, const Rope& text, int sides) {
  PW_ASSIGN_OR_RETURN(const Rope* set, text_argument(call, 0));
  PW_RETURN_IF_ERROR(call.session.spend_text(text.size()));
  if (set == nullptr) return Value(strip(text, sides));
  PW_ASSIGN_OR_RETURN(Rope stripped, strip_set(text, *set, sides, call.session));
  return Value(std::move(stripped));
}

template <int kSides>
Result<Value> method_strip(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  return strip_call(call, *text, kSides);
}

Result<Value> filter_trim(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope text, print(call.subject, call.session));
  return strip_call(call, text, kBoth);
}

// ---- letter case
// ----------------------------------------------------------------------------------

enum class Case {
  kUpper,
  kLower,
  kCapitalize,
  kTitle,       // the method: behind whatever is no letter
  kTitleWords,  // the filter: behind white space, '-' and opening brackets
};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Does `c` at `at` begin what gets a capital?
bool begins_capital(std::string_view text, std::size_t at, Case to) {
  if (to == Case::kUpper) return true;
  if (to == Case::kLower) return false;
  if (at == 0) return true;
  if (to == Case::kCapitalize) return false;
  if (to == Case::kTitle) return !is_letter(text[at - 1]);
  return std::string_view("- \t\n\r\v\f\x1c\x1d\x1e\x1f({[<").find(text[at - 1]) !=
         std::string_view::npos;
}

/// Only ASCII letters have a case here: templates change the case of roles, not of content.
Result<Value> change_case(const Call& call, const Rope& text, Case to) {
  PW_RETURN_IF_ERROR(call.session.spend_text(text.size()));
  std::string changed(text.bytes());
  for (std::size_t i = 0; i < changed.size(); ++i) {
    char& c = changed[i];
    if (static_cast<unsigned char>(c) >= 0x80) {
      return fail(fmt::format("'{}' is offered for ASCII text only", call.name));
    }
    const bool upper = begins_capital(text.bytes(), i, to);
    if (upper && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    if (!upper && c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  Rope out;
  std::size_t begin = 0;
  for (const Rope::Run& run : text.runs()) {
    out.append(std::string_view(changed).substr(begin, run.end - begin), run.origin);
    begin = run.end;
  }
  return Value(std::move(out));
}

template <Case kTo>
Result<Value> method_case(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  return change_case(call, *text, kTo);
}

template <Case kTo>
Result<Value> filter_case(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope text, print(call.subject, call.session));
  return change_case(call, text, kTo);
}

// ---- searching, cutting, joining
// ------------------------------------------------------------------

template <bool kAtEnd>
Result<Value> method_affix(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  std::vector<const Value*> choices{&*call.arguments[0]};
  if (const List* list = choices[0]->list(); list != nullptr && list->is_tuple) {
    choices.clear();
    for (const Value& item : list->items) choices.push_back(&item);
  }
  for (const Value* choice : choices) {
    if (choice->text() == nullptr) {
      return fail(fmt::format("'{}' needs text, not '{}'", call.name, type_name(*choice)));
    }
    const std::string_view affix = choice->text()->bytes();
    PW_RETURN_IF_ERROR(call.session.spend_text(affix.size()));
    if (kAtEnd ? text->bytes().ends_with(affix) : text->bytes().starts_with(affix))
      return Value(true);
  }
  return Value(false);
}

template <bool kAtEnd>
Result<Value> method_remove_affix(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  PW_ASSIGN_OR_RETURN(const Rope* affix, text_argument(call, 0));
  if (affix == nullptr) return fail(fmt::format("'{}' needs text", call.name));
  PW_RETURN_IF_ERROR(call.session.spend_text(text->size()));
  if (kAtEnd && text->bytes().ends_with(affix->bytes())) {
    return Value(text->slice(0, text->size() - affix->size()));
  }
  if (!kAtEnd && text->bytes().starts_with(affix->bytes())) {
    return Value(text->slice(affix->size(), text->size()));
  }
  return call.subject;
}

Result<Value> method_find(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  PW_ASSIGN_OR_RETURN(const Rope* wanted, text_argument(call, 0));
  if (wanted == nullptr) return fail("'find' needs text");
  PW_RETURN_IF_ERROR(call.session.spend_find(text->size(), wanted->size()));
  const std::size_t at = wanted->empty() ? 0 : find_text(text->bytes(), wanted->bytes());
  if (at == std::string_view::npos) return Value(int64_t{-1});
  return Value(static_cast<int64_t>(character_count(text->bytes().substr(0, at))));
}

/// How often one text stands in another, without overlaps.
Result<Value> method_count(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  PW_ASSIGN_OR_RETURN(const Rope* wanted, text_argument(call, 0));
  if (wanted == nullptr || wanted->empty()) return fail("'count' needs a text that is not empty");
  int64_t count = 0;
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t found = find_text(text->bytes(), wanted->bytes(), at);
    const std::size_t end = found == std::string_view::npos ? text->size() : found;
    PW_RETURN_IF_ERROR(call.session.spend_find(end - at, wanted->size()));
    if (found == std::string_view::npos) break;
    ++count;
    at = found + wanted->size();
  }
  return Value(count);
}

/// The ranges [begin, end) between white space, at most `cuts` cuts; the last takes the rest.
void split_at_space(std::string_view bytes, int64_t cuts,
                    std::vector<std::pair<std::size_t, std::size_t>>& parts) {
  const std::vector<uint32_t> offsets = character_offsets(bytes);
  const auto is_space = [&](std::size_t character) {
    return leading_space(
               bytes.substr(offsets[character], offsets[character + 1] - offsets[character])) > 0;
  };
  const std::size_t count = offsets.size() - 1;
  std::size_t at = 0;
  while (true) {
    while (at < count && is_space(at)) ++at;
    if (at == count) return;
    const std::size_t begin = at;
    if (cuts == 0) {
      parts.emplace_back(offsets[begin], offsets[count]);
      return;
    }
    while (at < count && !is_space(at)) ++at;
    parts.emplace_back(offsets[begin], offsets[at]);
    --cuts;
  }
}

/// `cuts` < 0: as many as there are.
void split_at(std::string_view bytes, std::string_view separator, int64_t cuts, bool from_right,
              std::vector<std::pair<std::size_t, std::size_t>>& parts) {
  if (!from_right) {
    std::size_t begin = 0;
    while (cuts != 0) {
      const std::size_t found = find_text(bytes, separator, begin);
      if (found == std::string_view::npos) break;
      parts.emplace_back(begin, found);
      begin = found + separator.size();
      --cuts;
    }
    parts.emplace_back(begin, bytes.size());
    return;
  }
  std::size_t end = bytes.size();
  while (cuts != 0 && end >= separator.size()) {
    const std::size_t found = bytes.rfind(separator, end - separator.size());
    if (found == std::string_view::npos) break;
    parts.emplace_back(found + separator.size(), end);
    end = found;
    --cuts;
  }
  parts.emplace_back(0, end);
  std::reverse(parts.begin(), parts.end());
}

template <bool kFromRight>
Result<Value> method_split(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  PW_ASSIGN_OR_RETURN(const Rope* separator, text_argument(call, 0));
  PW_ASSIGN_OR_RETURN(const int64_t cuts, integer_argument(call, 1, -1));
  if (separator != nullptr && separator->empty())
    return fail("'split' needs a separator that is not empty");
  PW_RETURN_IF_ERROR(call.session.spend_text(text->size()));
  std::vector<std::pair<std::size_t, std::size_t>> parts;
  if (separator != nullptr) {
    PW_RETURN_IF_ERROR(call.session.spend_find(text->size(), separator->size()));
    // The search from the right may compare the whole separator at each place.
    if (kFromRight) PW_RETURN_IF_ERROR(call.session.spend(text->size() * separator->size() / 64));
    split_at(text->bytes(), separator->bytes(), cuts, kFromRight, parts);
  } else if (kFromRight && cuts >= 0) {
    return fail("'rsplit' with a limit needs a separator");
  } else {
    PW_RETURN_IF_ERROR(call.session.spend(text->size()));
    split_at_space(text->bytes(), cuts, parts);
  }
  PW_RETURN_IF_ERROR(call.session.spend_text_list(parts.size()));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const auto& [begin, end] : parts) items.emplace_back(text->slice(begin, end));
  return make_list(std::move(items));
}

Result<Value> replace(const Call& call, const Rope& text) {
  PW_ASSIGN_OR_RETURN(const Rope* from, text_argument(call, 0));
  PW_ASSIGN_OR_RETURN(const Rope* to, text_argument(call, 1));
  PW_ASSIGN_OR_RETURN(int64_t count, integer_argument(call, 2, -1));
  if (from == nullptr || to == nullptr) return fail("'replace' needs two texts");
  if (from->empty()) return fail("'replace' of an empty text is not offered");
  PW_RETURN_IF_ERROR(call.session.spend_find(text.size(), from->size()));
  Rope out;
  std::size_t begin = 0;
  for (; count != 0; --count) {
    const std::size_t found = find_text(text.bytes(), from->bytes(), begin);
    if (found == std::string_view::npos) break;
    PW_RETURN_IF_ERROR(call.session.spend_text(out.size() + to->size() > Session::kTextBytesMax
                                                   ? out.size() + to->size()
                                                   : found - begin + to->size()));
    out.append(text, begin, found);
    out.append(*to);
    begin = found + from->size();
  }
  PW_RETURN_IF_ERROR(call.session.spend_text(text.size()));
  out.append(text, begin, text.size());
  return Value(std::move(out));
}

Result<Value> method_replace(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  return replace(call, *text);
}

Result<Value> filter_replace(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope text, print(call.subject, call.session));
  return replace(call, text);
}

Result<Value> join(const Call& call, const Value& items, const Rope& separator, bool only_text) {
  PW_ASSIGN_OR_RETURN(const Value list, to_list(items, call.session));
  Rope out;
  bool first = true;
  for (const Value& item : list.list()->items) {
    if (only_text && item.text() == nullptr) {
      return fail(fmt::format("'join' needs texts, not '{}'", type_name(item)));
    }
    PW_ASSIGN_OR_RETURN(const Rope text, print(item, call.session));
    const std::size_t added = text.size() + separator.size();
    PW_RETURN_IF_ERROR(call.session.spend_text(
        out.size() + added > Session::kTextBytesMax ? out.size() + added : added));
    if (!first) out.append(separator);
    out.append(text);
    first = false;
  }
  return Value(std::move(out));
}

Result<Value> method_join(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* separator, subject_text(call));
  return join(call, *call.arguments[0], *separator, true);
}

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
      PW_ASSIGN_OR_RETURN(value, get_attribute(value, part, session));
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
  PW_ASSIGN_OR_RETURN(const Rope* key, text_argument(call, 0));
  PW_RETURN_IF_ERROR(call.session.spend_search(dict->entries.size()));
  const Value* found = key != nullptr ? dict->find(key->bytes()) : nullptr;
  if (found != nullptr) return *found;
  return call.arguments[1] ? *call.arguments[1] : Value(None{});
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

Result<Value> filter_int(const Call& call) {
  const Value otherwise = call.arguments[0] ? *call.arguments[0] : Value(int64_t{0});
  if (call.subject.is_integral()) return Value(call.subject.integral());
  if (const double* number = call.subject.floating()) {
    if (!(*number > -9.2e18 && *number < 9.2e18)) return otherwise;
    return Value(static_cast<int64_t>(*number));
  }
  if (const Rope* text = call.subject.text()) {
    const Rope stripped = strip(*text, kBoth);
    std::string_view digits = stripped.bytes();
    if (digits.starts_with('+')) digits.remove_prefix(1);
    int64_t value = 0;
    const auto end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error == std::errc() && stop == end && !digits.empty()) return Value(value);
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
    const Rope stripped = strip(*text, kBoth);
    std::string_view digits = stripped.bytes();
    if (digits.starts_with('+')) digits.remove_prefix(1);
    double value = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc() && stop == digits.data() + digits.size() && !digits.empty()) {
      return Value(value);
    }
  }
  return call.arguments[0] ? *call.arguments[0] : Value(0.0);
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
  return change_case(call, *value.text(), Case::kLower);
}

/// The places of `keys` in ascending order; equal ones keep theirs.
Result<std::vector<std::size_t>> sorted_places(const Call& call, const std::vector<Value>& keys,
                                               bool reverse) {
  uint64_t weight = 0;
  for (const Value& key : keys) {
    weight += 32 + (key.text() != nullptr ? key.text()->size() : 0);
    const bool as_first =
        key.is_number() ? keys[0].is_number() : key.text() != nullptr && keys[0].text() != nullptr;
    if (!as_first) {
      return fail(fmt::format("'{}' orders numbers or texts, not '{}' and '{}'", call.name,
                              type_name(keys[0]), type_name(key)));
    }
  }
  PW_RETURN_IF_ERROR(call.session.spend(weight));  // about log n comparisons an item
  std::vector<std::size_t> places(keys.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
  std::stable_sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) {
    const int compared = compare_order(keys[a], keys[b]);
    return reverse ? compared > 0 : compared < 0;
  });
  return places;
}

bool flag(const Call& call, std::size_t index) {
  return call.arguments[index] && truthy(*call.arguments[index]);
}

Result<Value> filter_sort(const Call& call) {  // reverse, case_sensitive, attribute
  PW_ASSIGN_OR_RETURN(const Value list, to_list(call.subject, call.session));
  std::vector<Value> keys;
  for (const Value& item : list.list()->items) {
    Value key = item;
    if (call.arguments[2] && !call.arguments[2]->is_none()) {
      PW_ASSIGN_OR_RETURN(key, by_attribute(item, *call.arguments[2], call.session));
    }
    PW_ASSIGN_OR_RETURN(key, sort_key(call, key, flag(call, 1)));
    keys.push_back(std::move(key));
  }
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

Result<Value> function_dict(const Call& call) {
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : call.named) entries.emplace_back(make_text(name), value);
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
      {"capitalize", filter_case<Case::kCapitalize>, {}, 0},
      {"count", filter_length, {}, 0},
      {"d", filter_default, {"default_value", "boolean"}, 0},
      {"default", filter_default, {"default_value", "boolean"}, 0},
      {"dictsort", filter_dictsort, {"case_sensitive", "by", "reverse"}, 0},
      {"first", filter_end_item<false>, {}, 0},
      {"float", filter_float, {"default"}, 0},
      {"int", filter_int, {"default"}, 0},
      {"items", filter_items, {}, 0},
      {"join", filter_join, {"d", "attribute"}, 0},
      {"last", filter_end_item<true>, {}, 0},
      {"length", filter_length, {}, 0},
      {"list", filter_list, {}, 0},
      {"lower", filter_case<Case::kLower>, {}, 0},
      {"map", filter_map, {}, 0, true, true},
      {"reject", filter_select<false, false>, {}, 0, true},
      {"rejectattr", filter_select<true, false>, {}, 0, true},
      {"replace", filter_replace, {"old", "new", "count"}, 2},
      {"reverse", filter_reverse, {}, 0},
      {"safe", filter_safe, {}, 0},
      {"select", filter_select<false, true>, {}, 0, true},
      {"selectattr", filter_select<true, true>, {}, 0, true},
      {"sort", filter_sort, {"reverse", "case_sensitive", "attribute"}, 0},
      {"string", filter_string, {}, 0},
      {"title", filter_case<Case::kTitleWords>, {}, 0},
      {"tojson", filter_tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0},
      {"trim", filter_trim, {"chars"}, 0},
      {"unique", filter_unique, {"case_sensitive", "attribute"}, 0},
      {"upper", filter_case<Case::kUpper>, {}, 0},
  };
  return find(table, name);
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
      {"sequence", test_sequence, {}, 0},
      {"string", test_string, {}, 0},
      {"true", test_true, {}, 0},
      {"undefined", test_undefined, {}, 0},
  };
  return find(table, name);
}

const Builtin* find_method(std::string_view name) {
  static const std::vector<Builtin> table = {
      {"capitalize", method_case<Case::kCapitalize>, {}, 0},
      {"count", method_count, {"sub"}, 1},
      {"cycle", method_cycle, {}, 0, true},
      {"endswith", method_affix<true>, {"suffix"}, 1},
      {"find", method_find, {"sub"}, 1},
      {"get", method_get, {"key", "default"}, 1},
      {"items", method_entries<Entry::kPair>, {}, 0},
      {"join", method_join, {"iterable"}, 1},
      {"keys", method_entries<Entry::kKey>, {}, 0},
      {"lower", method_case<Case::kLower>, {}, 0},
      {"lstrip", method_strip<kLeft>, {"chars"}, 0},
      {"removeprefix", method_remove_affix<false>, {"prefix"}, 1},
      {"removesuffix", method_remove_affix<true>, {"suffix"}, 1},
      {"replace", method_replace, {"old", "new", "count"}, 2},
      {"rsplit", method_split<true>, {"sep", "maxsplit"}, 0},
      {"rstrip", method_strip<kRight>, {"chars"}, 0},
      {"split", method_split<false>, {"sep", "maxsplit"}, 0},
      {"startswith", method_affix<false>, {"prefix"}, 1},
      {"strip", method_strip<kBoth>, {"chars"}, 0},
      {"title", method_case<Case::kTitle>, {}, 0},
      {"upper", method_case<Case::kUpper>, {}, 0},
      {"values", method_entries<Entry::kValue>, {}, 0},
  };
  return find(table, name);
}

const Builtin* find_function(std::string_view name) {
  static const std::vector<Builtin> table = {
      {"dict", function_dict, {}, 0, false, true},
      {"namespace", function_namespace, {}, 0, false, true},
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
