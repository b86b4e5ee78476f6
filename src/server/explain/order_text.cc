// SPDX-License-Identifier: Apache-2.0
#include "server/explain/order_text.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/explain/plain_text.h"

namespace pagewise::server::explain {
namespace {

constexpr std::size_t kReach = 256 * 1024;  // bytes looked at on either side
constexpr std::size_t kTries = 24;          // JSON values tried, outermost first
constexpr std::size_t kItemsMax = 4000;     // of a permuted list

// ---- JSON -------------------------------------------------------------------------------------

/// The end of the JSON value that opens at `begin`; npos when its brackets do not close.
std::size_t json_end(std::string_view text, std::size_t begin) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = begin; i < text.size() && i - begin < kReach; ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

bool is_tool(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr) return false;
  if (object->contains("function")) return true;
  return object->contains("name") &&
         (object->contains("description") || object->contains("parameters") ||
          object->contains("input_schema") || object->contains("inputSchema") ||
          object->contains("type") || object->contains("arguments"));
}

/// Keys sorted, for comparing values whose keys stand in another order.
std::string canonical(const json::value& value) {
  if (const json::object* object = value.if_object()) {
    std::map<std::string, std::string> members;
    for (const auto& member : *object) {
      members.emplace(std::string(member.key()), canonical(member.value()));
    }
    std::string out = "{";
    for (const auto& [key, text] : members)
      out += json::serialize(json::string(key)) + ":" + text + ",";
    return out + "}";
  }
  if (const json::array* array = value.if_array()) {
    std::string out = "[";
    for (const json::value& item : *array) out += canonical(item) + ",";
    return out + "]";
  }
  return json::serialize(value);
}

struct JsonDifference {
  bool equal = true;  // but for order
  // What stands in another order: keys or plain values, tools, other objects.
  bool keys = false, tools = false, items = false;
};

void compare(const json::value& a, const json::value& b, bool tools, JsonDifference& found) {
  if (!found.equal) return;
  const json::object* object_a = a.if_object();
  const json::object* object_b = b.if_object();
  if (object_a != nullptr && object_b != nullptr) {
    if (object_a->size() != object_b->size()) {
      found.equal = false;
      return;
    }
    auto at = object_b->begin();
    for (const auto& member : *object_a) {
      const json::value* other = object_b->if_contains(member.key());
      if (other == nullptr) {
        found.equal = false;
        return;
      }
      found.keys = found.keys || at->key() != member.key();
      const bool names_tools = member.key() == "tools" || member.key() == "functions";
      compare(member.value(), *other, names_tools, found);
      ++at;
    }
    return;
  }
  const json::array* array_a = a.if_array();
  const json::array* array_b = b.if_array();
  if (array_a == nullptr || array_b == nullptr) {
    found.equal = found.equal && a == b;
    return;
  }
  if (array_a->size() != array_b->size()) {
    found.equal = false;
    return;
  }
  JsonDifference in_order;
  for (std::size_t i = 0; i < array_a->size(); ++i) {
    compare((*array_a)[i], (*array_b)[i], false, in_order);
  }
  if (in_order.equal) {
    found.keys = found.keys || in_order.keys;
    found.tools = found.tools || in_order.tools;
    found.items = found.items || in_order.items;
    return;
  }
  std::vector<std::string> items_a, items_b;
  for (const json::value& item : *array_a) items_a.push_back(canonical(item));
  for (const json::value& item : *array_b) items_b.push_back(canonical(item));
  std::sort(items_a.begin(), items_a.end());
  std::sort(items_b.begin(), items_b.end());
  if (items_a != items_b) {
    found.equal = false;
    return;
  }
  const bool all_tools =
      tools || std::all_of(array_a->begin(), array_a->end(),
                           [](const json::value& item) { return is_tool(item); });
  const bool scalars = std::none_of(array_a->begin(), array_a->end(), [](const json::value& item) {
    return item.is_object() || item.is_array();
  });
  (all_tools ? found.tools : scalars ? found.keys : found.items) = true;
}

/// Values that differ may still stand under the same keys in another order.
bool same_keys_permuted(const json::value& a, const json::value& b) {
  const json::object* object_a = a.if_object();
  const json::object* object_b = b.if_object();
  if (object_a == nullptr || object_b == nullptr || object_a->size() != object_b->size())
    return false;
  bool permuted = false;
  auto at = object_b->begin();
  for (const auto& member : *object_a) {
    if (!object_b->contains(member.key())) return false;
    permuted = permuted || at->key() != member.key();
    ++at;
  }
  return permuted;
}

std::optional<OrderChange> json_change(std::string_view a, std::string_view b, std::size_t offset) {
  // Where brackets are open at the place of parting; the same in both.
  std::vector<std::size_t> open;
  bool quoted = false;
  const std::size_t from = offset > kReach ? offset - kReach : 0;
  for (std::size_t i = from; i < offset; ++i) {
    const char c = a[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == '\n') {
      quoted = false;  // a quotation mark in prose opened nothing
    } else if (!quoted && (c == '{' || c == '[')) {
      open.push_back(i);
    } else if (!quoted && (c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
    }
  }
  const std::size_t tries = std::min(open.size(), kTries);
  for (std::size_t t = 0; t < tries; ++t) {
    const std::size_t begin = open[t];
    const std::size_t end_a = json_end(a, begin), end_b = json_end(b, begin);
    if (end_a == std::string_view::npos || end_b == std::string_view::npos) continue;
    if (end_a <= offset || end_b <= offset) continue;
    const auto value_a = parse_json(a.substr(begin, end_a - begin));
    const auto value_b = parse_json(b.substr(begin, end_b - begin));
    if (!value_a || !value_b) continue;
    JsonDifference found;
    compare(*value_a, *value_b, false, found);
    const bool innermost = t + 1 == tries;
    if (found.equal && (found.keys || found.tools || found.items)) {
      const Cause cause = found.tools  ? Cause::kToolOrder
                          : found.keys ? Cause::kKeyOrder
                                       : Cause::kMoved;
      return OrderChange{cause, begin, end_b};
    }
    if (innermost && same_keys_permuted(*value_a, *value_b)) {
      return OrderChange{Cause::kKeyOrder, begin, end_b};
    }
  }
  return std::nullopt;
}

// ---- Lines and items --------------------------------------------------------------------------

/// Without brackets, quotes and bullets at the ends, which stay where they are when items move.
std::string_view bare(std::string_view item) {
  constexpr std::string_view kEdges = "{}[]()<>\"'`,;&*-•/ \t\r";
  while (!item.empty() && kEdges.find(item.front()) != std::string_view::npos)
    item.remove_prefix(1);
  while (!item.empty() && kEdges.find(item.back()) != std::string_view::npos) item.remove_suffix(1);
  return item;
}

/// key: value, key=value, "key": value.
bool is_pair(std::string_view item) {
  const std::size_t at = item.find_first_of(":=");
  if (at == std::string_view::npos || at == 0 || at > 48) return false;
  return std::all_of(item.begin(), item.begin() + static_cast<std::ptrdiff_t>(at), [](char c) {
    return is_word(c) || c == '_' || c == '-' || c == '.' || c == '"' || c == '\'' || c == ' ' ||
           c == '`' || c == '@';
  });
}

/// "- name", "3. name", "name: what it does", "name(arguments)".
bool is_entry(std::string_view item) {
  constexpr std::string_view kBullets = "-*{<#0123456789";
  if (!item.empty() && kBullets.find(item.front()) != std::string_view::npos) return true;
  const std::size_t end = item.find_first_of(":( ");
  return end != std::string_view::npos && end > 0 && item[end] != ' ';
}

bool speaks_of_tools(std::string_view text) {
  const std::string words = lowered(text);
  for (const std::string_view word : {"tool", "function", "def ", "\"parameters\"", "command"}) {
    if (words.find(word) != std::string::npos) return true;
  }
  return false;
}

std::vector<Range> split(std::string_view text, Range range, std::string_view separators) {
  std::vector<Range> items;
  std::size_t begin = range.begin;
  for (std::size_t i = range.begin; i <= range.end && items.size() < kItemsMax; ++i) {
    if (i < range.end && separators.find(text[i]) == std::string_view::npos) continue;
    items.push_back({begin, i});
    begin = i + 1;
  }
  return items;
}

struct Permutation {
  std::size_t items = 0;  // leading ones that are the same on both sides, in another order
  std::size_t told_apart = 0;
};

/// The shortest beginning of both lists that has the same items on both sides.
Permutation permutation(std::string_view a, const std::vector<Range>& items_a, std::string_view b,
                        const std::vector<Range>& items_b) {
  std::map<std::string_view, int> balance;
  std::size_t open = 0, blank = 0;
  const auto count = [&](std::string_view item, int by) {
    if (item.empty()) {
      ++blank;
      return;
    }
    int& held = balance[item];
    open -= held != 0;
    held += by;
    open += held != 0;
  };
  for (std::size_t i = 0; i < std::min(items_a.size(), items_b.size()); ++i) {
    count(bare(a.substr(items_a[i].begin, items_a[i].size())), 1);
    count(bare(b.substr(items_b[i].begin, items_b[i].size())), -1);
    if (open == 0 && !balance.empty()) return {i + 1, balance.size()};
  }
  return {};
}

std::optional<OrderChange> list_change(std::string_view a, std::string_view b, std::size_t offset,
                                       std::string_view separators) {
  std::size_t begin = offset;
  const std::size_t from = offset > kReach ? offset - kReach : 0;
  while (begin > from && separators.find(a[begin - 1]) == std::string_view::npos) --begin;
  const std::vector<Range> items_a =
      split(a, {begin, std::min(a.size(), offset + kReach)}, separators);
  const std::vector<Range> items_b =
      split(b, {begin, std::min(b.size(), offset + kReach)}, separators);
  const Permutation found = permutation(a, items_a, b, items_b);
  if (found.told_apart < 2) return std::nullopt;
  const std::size_t end = items_b[found.items - 1].end;
  const std::string_view body = b.substr(begin, end - begin);
  std::size_t pairs = 0, filled = 0, tools = 0, entries = 0;
  for (std::size_t i = 0; i < found.items; ++i) {
    const std::string_view item = b.substr(items_b[i].begin, items_b[i].size());
    if (trimmed(item).empty()) continue;
    ++filled;
    pairs += is_pair(bare(item));
    entries += is_entry(trimmed(item));
    if (item.find('{') != std::string_view::npos) {
      const auto value = parse_json(trimmed(item));
      tools += value && is_tool(*value);
    }
  }
  // The heading above says what is listed; the lines between it and here belong to the list.
  const std::size_t above = begin > 400 ? begin - 400 : 0;
  const bool of_tools = tools == filled || body.find("<tool") != std::string_view::npos ||
                        body.find("<function") != std::string_view::npos ||
                        (separators == "\n" && entries * 2 > filled &&
                         speaks_of_tools(a.substr(above, begin - above)));
  OrderChange change{Cause::kMoved, begin, end};
  if (of_tools) {
    change.cause = Cause::kToolOrder;
  } else if (pairs == filled && body.size() / filled <= 160) {
    change.cause = Cause::kKeyOrder;
  } else if (separators != "\n") {
    return std::nullopt;  // words of a sentence
  }
  return change;
}

}  // namespace

std::optional<OrderChange> order_change_at(std::string_view a, std::string_view b,
                                           std::size_t offset) {
  if (auto change = json_change(a, b, offset)) return change;
  for (const std::string_view separators : {"\n", ",\n", ";\n", "&?\n ", "|\n", " \n"}) {
    if (auto change = list_change(a, b, offset, separators)) return change;
  }
  return std::nullopt;
}

}  // namespace pagewise::server::explain
