// SPDX-License-Identifier: Apache-2.0
// Filters, tests and methods of texts.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "text/jinja/builtins_internal.h"
#include "text/jinja/format.h"
#include "text/jinja/strings.h"
#include "text/provenance.h"

namespace pagewise::text::jinja {

// ---- stripping
// ------------------------------------------------------------------------------------

Rope strip(const Rope& text, int sides) {
  std::string_view bytes = text.bytes();
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  if ((sides & kLeft) != 0) begin = leading_space(bytes);
  if ((sides & kRight) != 0 && begin < end) end -= trailing_space(bytes.substr(begin));
  return text.slice(begin, end);
}

namespace {

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
  kSwap,
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
    const bool upper =
        to == Case::kSwap ? c >= 'a' && c <= 'z' : begins_capital(text.bytes(), i, to);
    if (upper && c >= 'a' && c <= 'z') {
      c = static_cast<char>(c - 'a' + 'A');
    } else if (!upper && c >= 'A' && c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    }
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

/// The bytes of the characters [argument `first`, argument `first` + 1), Python's way of counting;
/// nullopt when the range begins behind the end.
struct Part {
  std::size_t begin = 0, end = 0;
  int64_t characters_before = 0;
};
Result<std::optional<Part>> part_of(const Call& call, const Rope& text, std::size_t first) {
  const std::string_view bytes = text.bytes();
  if (!call.arguments[first] && !call.arguments[first + 1]) {
    return std::optional<Part>({0, bytes.size(), 0});
  }
  PW_RETURN_IF_ERROR(call.session.spend(1 + bytes.size() / 4));
  const std::vector<uint32_t> offsets = character_offsets(bytes);
  const auto count = static_cast<int64_t>(offsets.size()) - 1;
  PW_ASSIGN_OR_RETURN(int64_t begin, integer_argument(call, first, 0));
  PW_ASSIGN_OR_RETURN(int64_t end, integer_argument(call, first + 1, count));
  if (begin < 0) begin = std::max<int64_t>(begin + count, 0);
  if (end < 0) end = std::max<int64_t>(end + count, 0);
  end = std::min(end, count);
  if (begin > end) return std::optional<Part>();
  return std::optional<Part>(
      {offsets[static_cast<std::size_t>(begin)], offsets[static_cast<std::size_t>(end)], begin});
}

template <bool kAtEnd>
Result<Value> method_affix(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  PW_ASSIGN_OR_RETURN(const auto part, part_of(call, *text, 1));
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
    if (!part) continue;
    const std::string_view bytes = text->bytes().substr(part->begin, part->end - part->begin);
    if (kAtEnd ? bytes.ends_with(affix) : bytes.starts_with(affix)) return Value(true);
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

Result<Value> index_in_list(const Call& call) {
  const std::vector<Value>& items = call.subject.list()->items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    PW_ASSIGN_OR_RETURN(const bool same, compare_equal(items[i], *call.arguments[0], call.session));
    if (same) return Value(static_cast<int64_t>(i));
  }
  return fail("'index': the item is not in the list");
}

/// The place of a text in another in characters; -1 or an error when it is not there.
template <bool kFromRight, bool kMustBe>
Result<Value> method_find(const Call& call) {
  if (kMustBe && !kFromRight && call.subject.list() != nullptr) return index_in_list(call);
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  PW_ASSIGN_OR_RETURN(const Rope* wanted, text_argument(call, 0));
  if (wanted == nullptr) return fail(fmt::format("'{}' needs text", call.name));
  PW_ASSIGN_OR_RETURN(const auto part, part_of(call, *text, 1));
  PW_RETURN_IF_ERROR(call.session.spend_find(text->size(), wanted->size()));
  std::size_t at = std::string_view::npos;
  if (part) {
    const std::string_view bytes = text->bytes().substr(part->begin, part->end - part->begin);
    if (kFromRight) {
      // The search from the right may compare the whole text at each place.
      PW_RETURN_IF_ERROR(call.session.spend(bytes.size() * wanted->size() / 64));
      at = bytes.rfind(wanted->bytes());
    } else {
      at = wanted->empty() ? 0 : find_text(bytes, wanted->bytes());
    }
    if (at != std::string_view::npos) {
      return Value(part->characters_before +
                   static_cast<int64_t>(character_count(bytes.substr(0, at))));
    }
  }
  if (kMustBe) return fail(fmt::format("'{}': the text is not in it", call.name));
  return Value(int64_t{-1});
}

/// How often one text stands in another, without overlaps; or an item in a list.
Result<Value> method_count(const Call& call) {
  if (const List* list = call.subject.list()) {
    int64_t found = 0;
    for (const Value& item : list->items) {
      PW_ASSIGN_OR_RETURN(const bool same, compare_equal(item, *call.arguments[0], call.session));
      found += same ? 1 : 0;
    }
    return Value(found);
  }
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

/// `to` in front of each character and at the end, `count` times at most: what replacing nothing
/// means.
Result<Value> put_between(const Call& call, const Rope& text, const Rope& to, int64_t count) {
  const std::vector<uint32_t> offsets = character_offsets(text.bytes());
  PW_RETURN_IF_ERROR(call.session.spend(offsets.size()));
  PW_RETURN_IF_ERROR(call.session.spend_text(text.size() + offsets.size() * to.size()));
  Rope out;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if (count != 0) {
      out.append(to);
      --count;
    }
    if (i + 1 < offsets.size()) out.append(text, offsets[i], offsets[i + 1]);
  }
  return Value(std::move(out));
}

Result<Value> replace(const Call& call, const Rope& text) {
  PW_ASSIGN_OR_RETURN(const Rope* from, text_argument(call, 0));
  PW_ASSIGN_OR_RETURN(const Rope* to, text_argument(call, 1));
  PW_ASSIGN_OR_RETURN(int64_t count, integer_argument(call, 2, -1));
  if (from == nullptr || to == nullptr) return fail("'replace' needs two texts");
  if (from->empty()) return put_between(call, text, *to, count);
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

Result<Value> method_join(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* separator, subject_text(call));
  return join(call, *call.arguments[0], *separator, true);
}

// ---- widths and lines
// ----------------------------------------------------------------------------------

/// Where `width` characters are, what fills them up goes to the left, the right, or both.
Result<Value> fill_up(const Call& call, const Rope& text, const Rope& fill, int sides) {
  PW_ASSIGN_OR_RETURN(const int64_t width, integer_argument(call, 0, 80));
  if (character_count(fill.bytes()) != 1) {
    return fail(fmt::format("'{}' fills with one character", call.name));
  }
  const auto length = static_cast<int64_t>(character_count(text.bytes()));
  if (width <= length) return Value(text);
  const int64_t missing = width - length;
  if (missing > static_cast<int64_t>(Session::kTextBytesMax)) {
    return fail(fmt::format("'{}' makes too long a text", call.name));
  }
  PW_RETURN_IF_ERROR(
      call.session.spend_text(text.size() + static_cast<std::size_t>(missing) * fill.size()));
  // Of an odd rest the left gets more when the width is odd, as in Python.
  const int64_t left = sides == kLeft    ? missing
                       : sides == kRight ? 0
                                         : missing / 2 + (missing & width & 1);
  Rope out;
  for (int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(text);
  for (int64_t i = left; i < missing; ++i) out.append(fill);
  return Value(std::move(out));
}

template <int kSides>
Result<Value> method_fill(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  PW_ASSIGN_OR_RETURN(const Rope* fill, text_argument(call, 1));
  return fill_up(call, *text, fill != nullptr ? *fill : Rope(" ", kTemplateOrigin), kSides);
}

Result<Value> filter_center(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope text, print(call.subject, call.session));
  return fill_up(call, text, Rope(" ", kTemplateOrigin), kBoth);
}

Result<Value> method_zfill(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  const bool has_sign = text->bytes().starts_with('-') || text->bytes().starts_with('+');
  const Rope digits = text->slice(has_sign ? 1 : 0, text->size());
  PW_ASSIGN_OR_RETURN(const int64_t width, integer_argument(call, 0, 0));
  const int64_t rest = std::max<int64_t>(width, 1) - (has_sign ? 1 : 0);
  Call inner{call.name, call.subject, {Value(rest)}, {}, {}, call.session};
  PW_ASSIGN_OR_RETURN(const Value filled,
                      fill_up(inner, digits, Rope("0", kTemplateOrigin), kLeft));
  Rope out = text->slice(0, has_sign ? 1 : 0);
  out.append(*filled.text());
  return Value(std::move(out));
}

/// The ranges of the lines; `behind` is where the next one begins.
struct Line {
  std::size_t begin, end, behind;
};
std::vector<Line> lines_of(std::string_view bytes) {
  std::vector<Line> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t length = 0;  // of the line's end here
    const std::string_view rest = bytes.substr(at);
    const char c = rest[0];
    if (rest.starts_with("\r\n")) {
      length = 2;
    } else if ((c >= '\n' && c <= '\r') || (c >= '\x1c' && c <= '\x1e')) {
      length = 1;
    } else if (rest.starts_with("\xC2\x85")) {
      length = 2;
    } else if (rest.starts_with("\xE2\x80\xA8") || rest.starts_with("\xE2\x80\xA9")) {
      length = 3;
    }
    if (length == 0) {
      ++at;
      continue;
    }
    lines.push_back({begin, at, at + length});
    begin = at += length;
  }
  if (begin < bytes.size()) lines.push_back({begin, bytes.size(), bytes.size()});
  return lines;
}

Result<Value> method_splitlines(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  PW_RETURN_IF_ERROR(call.session.spend(1 + text->size() / 4));
  const std::vector<Line> lines = lines_of(text->bytes());
  PW_RETURN_IF_ERROR(call.session.spend_text_list(lines.size()));
  std::vector<Value> items;
  for (const Line& line : lines) {
    items.emplace_back(text->slice(line.begin, flag(call, 0) ? line.behind : line.end));
  }
  return make_list(std::move(items));
}

Result<Value> filter_indent(const Call& call) {  // width, first, blank
  PW_ASSIGN_OR_RETURN(Rope text, print(call.subject, call.session));
  Rope indent(std::string(4, ' '), kTemplateOrigin);
  if (call.arguments[0]) {
    if (call.arguments[0]->text() != nullptr) {
      indent = *call.arguments[0]->text();
    } else {
      PW_ASSIGN_OR_RETURN(const int64_t width, integer_argument(call, 0, 4));
      if (width > 1000) return fail("'indent' indents by at most 1000");
      indent = Rope(std::string(static_cast<std::size_t>(std::max<int64_t>(width, 0)), ' '),
                    kTemplateOrigin);
    }
  }
  // With one line end more, so that a last one is kept as an empty line.
  text.append("\n", kTemplateOrigin);
  PW_RETURN_IF_ERROR(call.session.spend(1 + text.size() / 4));
  const std::vector<Line> lines = lines_of(text.bytes());
  PW_RETURN_IF_ERROR(call.session.spend_text(text.size() + lines.size() * indent.size()));
  Rope out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool empty = lines[i].begin == lines[i].end;
    if (i > 0) out.append("\n", kTemplateOrigin);
    if (i == 0 ? flag(call, 1) : !empty || flag(call, 2)) out.append(indent);
    out.append(text, lines[i].begin, lines[i].end);
  }
  return Value(std::move(out));
}

Result<Value> filter_truncate(const Call& call) {  // length, killwords, end, leeway
  PW_ASSIGN_OR_RETURN(const Rope text, print(call.subject, call.session));
  PW_ASSIGN_OR_RETURN(const int64_t length, integer_argument(call, 0, 255));
  PW_ASSIGN_OR_RETURN(const Rope* given, text_argument(call, 2));
  PW_ASSIGN_OR_RETURN(const int64_t leeway, integer_argument(call, 3, 5));
  const Rope end = given != nullptr ? *given : Rope("...", kTemplateOrigin);
  const auto end_length = static_cast<int64_t>(character_count(end.bytes()));
  if (length < end_length || leeway < 0 || length > INT32_MAX || leeway > INT32_MAX) {
    return fail("'truncate' needs a length of at least its end's, and a leeway of at least 0");
  }
  PW_RETURN_IF_ERROR(call.session.spend(1 + text.size() / 4));
  const std::vector<uint32_t> offsets = character_offsets(text.bytes());
  if (static_cast<int64_t>(offsets.size()) - 1 <= length + leeway) return Value(text);
  Rope out = text.slice(0, offsets[static_cast<std::size_t>(length - end_length)]);
  if (!flag(call, 1)) {
    const std::size_t space = out.bytes().rfind(' ');
    if (space != std::string_view::npos) out = out.slice(0, space);
  }
  out.append(end);
  return Value(std::move(out));
}

template <bool kFromRight>
Result<Value> method_partition(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  PW_ASSIGN_OR_RETURN(const Rope* separator, text_argument(call, 0));
  if (separator == nullptr || separator->empty()) {
    return fail(fmt::format("'{}' needs a separator that is not empty", call.name));
  }
  PW_RETURN_IF_ERROR(call.session.spend_text(text->size()));
  PW_RETURN_IF_ERROR(call.session.spend_find(text->size(), separator->size()));
  if (kFromRight) PW_RETURN_IF_ERROR(call.session.spend(text->size() * separator->size() / 64));
  const std::size_t at = kFromRight ? text->bytes().rfind(separator->bytes())
                                    : find_text(text->bytes(), separator->bytes());
  if (at == std::string_view::npos) {
    if (kFromRight) return make_list({Rope(), Rope(), *text}, true);
    return make_list({*text, Rope(), Rope()}, true);
  }
  return make_list({text->slice(0, at), text->slice(at, at + separator->size()),
                    text->slice(at + separator->size(), text->size())},
                   true);
}

// ---- kinds of characters
// -------------------------------------------------------------------------------

enum class Kind { kDigit, kLetter, kLetterOrDigit, kSpace, kUpper, kLower };

bool is_kind(char c, Kind kind) {
  const bool digit = c >= '0' && c <= '9';
  switch (kind) {
    case Kind::kDigit:
      return digit;
    case Kind::kLetter:
      return is_letter(c);
    case Kind::kLetterOrDigit:
      return digit || is_letter(c);
    case Kind::kSpace:
      return leading_space(std::string_view(&c, 1)) == 1;
    case Kind::kUpper:
      return !(c >= 'a' && c <= 'z');
    case Kind::kLower:
      return !(c >= 'A' && c <= 'Z');
  }
  return false;
}

/// Whether all characters are of the kind; for letter cases whether a letter is there and none of
/// the other case.
Result<bool> all_of_kind(const Call& call, const Rope& text, Kind kind) {
  PW_RETURN_IF_ERROR(call.session.spend_text(text.size()));
  const std::string_view bytes = text.bytes();
  const auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (!std::all_of(bytes.begin(), bytes.end(), ascii)) {
    return fail(fmt::format("'{}' is offered for ASCII text only", call.name));
  }
  const bool by_case = kind == Kind::kUpper || kind == Kind::kLower;
  const bool any = by_case ? std::any_of(bytes.begin(), bytes.end(), is_letter) : !bytes.empty();
  return any &&
         std::all_of(bytes.begin(), bytes.end(), [kind](char c) { return is_kind(c, kind); });
}

template <Kind kKind>
Result<Value> method_is(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  PW_ASSIGN_OR_RETURN(const bool all, all_of_kind(call, *text, kKind));
  return Value(all);
}

Result<Value> method_isascii(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  PW_RETURN_IF_ERROR(call.session.spend_text(text->size()));
  const std::string_view bytes = text->bytes();
  return Value(std::all_of(bytes.begin(), bytes.end(),
                           [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

template <Kind kKind>
Result<Value> test_case(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope text, print(call.subject, call.session));
  PW_ASSIGN_OR_RETURN(const bool all, all_of_kind(call, text, kKind));
  return Value(all);
}

// ---- formats
// -------------------------------------------------------------------------------------------

Result<Value> method_format(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope* text, subject_text(call));
  return format_braces(*text, call.rest, call.named, call.session);
}

/// The filter is the '%' of Python.
Result<Value> filter_format(const Call& call) {
  PW_ASSIGN_OR_RETURN(const Rope text, print(call.subject, call.session));
  if (!call.rest.empty() && !call.named.empty()) {
    return fail("'format' takes values in turn or by name, not both");
  }
  if (call.named.empty()) {
    PW_ASSIGN_OR_RETURN(const Value values, make_list(call.rest, true));
    return format_percent(text, values, call.session);
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : call.named) entries.emplace_back(make_text(name), value);
  PW_ASSIGN_OR_RETURN(const Value values, make_dict(std::move(entries)));
  return format_percent(text, values, call.session);
}

}  // namespace

Result<Value> lower_case(const Call& call, const Rope& text) {
  return change_case(call, text, Case::kLower);
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
    PW_RETURN_IF_ERROR(call.session.spend_growth(out.size(), added));
    if (!first) out.append(separator);
    out.append(text);
    first = false;
  }
  return Value(std::move(out));
}

std::span<const Builtin> text_filters() {
  static const std::vector<Builtin> table = {
      {"capitalize", filter_case<Case::kCapitalize>, {}, 0},
      {"center", filter_center, {"width"}, 0},
      {"format", filter_format, {}, 0, true, true},
      {"indent", filter_indent, {"width", "first", "blank"}, 0},
      {"lower", filter_case<Case::kLower>, {}, 0},
      {"replace", filter_replace, {"old", "new", "count"}, 2},
      {"title", filter_case<Case::kTitleWords>, {}, 0},
      {"trim", filter_trim, {"chars"}, 0},
      {"truncate", filter_truncate, {"length", "killwords", "end", "leeway"}, 0},
      {"upper", filter_case<Case::kUpper>, {}, 0},
  };
  return table;
}

std::span<const Builtin> text_tests() {
  static const std::vector<Builtin> table = {
      {"lower", test_case<Kind::kLower>, {}, 0},
      {"upper", test_case<Kind::kUpper>, {}, 0},
  };
  return table;
}

std::span<const Builtin> text_methods() {
  static const std::vector<Builtin> table = {
      {"capitalize", method_case<Case::kCapitalize>, {}, 0},
      {"center", method_fill<kBoth>, {"width", "fillchar"}, 1},
      {"count", method_count, {"sub"}, 1},
      {"endswith", method_affix<true>, {"suffix", "start", "end"}, 1},
      {"find", method_find<false, false>, {"sub", "start", "end"}, 1},
      {"format", method_format, {}, 0, true, true},
      {"index", method_find<false, true>, {"sub", "start", "end"}, 1},
      {"isalnum", method_is<Kind::kLetterOrDigit>, {}, 0},
      {"isalpha", method_is<Kind::kLetter>, {}, 0},
      {"isascii", method_isascii, {}, 0},
      {"isdecimal", method_is<Kind::kDigit>, {}, 0},
      {"isdigit", method_is<Kind::kDigit>, {}, 0},
      {"islower", method_is<Kind::kLower>, {}, 0},
      {"isnumeric", method_is<Kind::kDigit>, {}, 0},
      {"isspace", method_is<Kind::kSpace>, {}, 0},
      {"isupper", method_is<Kind::kUpper>, {}, 0},
      {"join", method_join, {"iterable"}, 1},
      {"ljust", method_fill<kRight>, {"width", "fillchar"}, 1},
      {"lower", method_case<Case::kLower>, {}, 0},
      {"lstrip", method_strip<kLeft>, {"chars"}, 0},
      {"partition", method_partition<false>, {"sep"}, 1},
      {"removeprefix", method_remove_affix<false>, {"prefix"}, 1},
      {"removesuffix", method_remove_affix<true>, {"suffix"}, 1},
      {"replace", method_replace, {"old", "new", "count"}, 2},
      {"rfind", method_find<true, false>, {"sub", "start", "end"}, 1},
      {"rindex", method_find<true, true>, {"sub", "start", "end"}, 1},
      {"rjust", method_fill<kLeft>, {"width", "fillchar"}, 1},
      {"rpartition", method_partition<true>, {"sep"}, 1},
      {"rsplit", method_split<true>, {"sep", "maxsplit"}, 0},
      {"rstrip", method_strip<kRight>, {"chars"}, 0},
      {"split", method_split<false>, {"sep", "maxsplit"}, 0},
      {"splitlines", method_splitlines, {"keepends"}, 0},
      {"startswith", method_affix<false>, {"prefix", "start", "end"}, 1},
      {"strip", method_strip<kBoth>, {"chars"}, 0},
      {"swapcase", method_case<Case::kSwap>, {}, 0},
      {"title", method_case<Case::kTitle>, {}, 0},
      {"upper", method_case<Case::kUpper>, {}, 0},
      {"zfill", method_zfill, {"width"}, 1},
  };
  return table;
}

}  // namespace pagewise::text::jinja
