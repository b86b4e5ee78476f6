// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/strings.h"
#include "text/provenance.h"
#include "text/utf8.h"

namespace pagewise::text::jinja {

namespace {

constexpr uint64_t kWeightMax = uint64_t{1} << 60;

Error too_deep() {
  return {ErrorCode::kInvalidArgument,
          fmt::format("lists and dictionaries nest deeper than {}", kValueDepthMax)};
}

void append_template(Rope& rope, std::string_view text) { rope.append(text, kTemplateOrigin); }

/// A quoted string; what must be escaped keeps the origin of the byte it stands for.
template <typename Escape>
Rope quoted(const Rope& text, char quote, const Escape& escape) {
  Rope out;
  append_template(out, std::string_view(&quote, 1));
  std::size_t plain = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string replacement = escape(text.bytes()[i]);
    if (replacement.empty()) continue;
    out.append(text, plain, i);
    out.append(replacement, text.origin_at(i));
    plain = i + 1;
  }
  out.append(text, plain, text.size());
  append_template(out, std::string_view(&quote, 1));
  return out;
}

Rope text_literal(const Rope& text) {
  const bool has_single = text.bytes().find('\'') != std::string_view::npos;
  const bool has_double = text.bytes().find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  return quoted(text, quote, [quote](char c) -> std::string {
    if (c == quote || c == '\\') return std::string("\\") + c;
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return fmt::format("\\x{:02x}", c);
    return {};
  });
}

std::string json_escape(char c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      break;
  }
  if (static_cast<unsigned char>(c) < 0x20) return fmt::format("\\u{:04x}", c);
  return {};
}

/// Other than ASCII as \uXXXX.
Rope to_ascii(const Rope& text) {
  Rope out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.bytes().substr(at);
    const Utf8Unit unit = utf8_unit(rest);
    if (static_cast<unsigned char>(rest[0]) < 0x80) {
      out.append(text, at, at + 1);
    } else {
      const uint32_t c =
          unit.kind == Utf8Kind::kCharacter ? utf8_decode(rest.substr(0, unit.length)) : 0xFFFD;
      const std::string escaped =
          c < 0x10000 ? fmt::format("\\u{:04x}", c)
                      : fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10),
                                    0xDC00 + ((c - 0x10000) & 0x3FF));
      out.append(escaped, text.origin_at(at));
    }
    at += unit.length;
  }
  return out;
}

Rope json_string(const Rope& text, const JsonStyle& style) {
  const Rope escaped = quoted(text, '"', json_escape);
  return style.ascii ? to_ascii(escaped) : escaped;
}

/// Appends `value` in JSON; `level` is how many containers enclose it.
Status append_json(const Value& value, const JsonStyle& style, int level, Rope& out) {
  const auto line = [&](int depth) {
    if (style.indent < 0) return;
    append_template(out, "\n");
    append_template(out, std::string(static_cast<std::size_t>(style.indent * depth), ' '));
  };
  if (value.text() != nullptr) {
    out.append(json_string(*value.text(), style));
  } else if (value.is_none()) {
    append_template(out, "null");
  } else if (value.boolean() != nullptr) {
    append_template(out, *value.boolean() ? "true" : "false");
  } else if (value.integer() != nullptr) {
    append_template(out, std::to_string(*value.integer()));
  } else if (value.floating() != nullptr) {
    append_template(out, format_float(*value.floating()));
  } else if (const List* list = value.list()) {
    append_template(out, "[");
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) append_template(out, style.comma);
      line(level + 1);
      PW_RETURN_IF_ERROR(append_json(list->items[i], style, level + 1, out));
    }
    if (!list->items.empty()) line(level);
    append_template(out, "]");
  } else if (const Dict* dict = value.dict()) {
    append_template(out, "{");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict->entries) entries.push_back(&entry);
    if (style.sort_keys) {
      std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
        return a->first.text()->bytes() < b->first.text()->bytes();
      });
    }
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) append_template(out, style.comma);
      line(level + 1);
      out.append(json_string(*entries[i]->first.text(), style));
      append_template(out, style.colon);
      PW_RETURN_IF_ERROR(append_json(entries[i]->second, style, level + 1, out));
    }
    if (!entries.empty()) line(level);
    append_template(out, "}");
  } else {
    return {ErrorCode::kInvalidArgument, fmt::format("'{}' has no JSON form", type_name(value))};
  }
  return Status::ok();
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.text()->bytes() == key) return &value;
  }
  return nullptr;
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [key, value] : values) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [key, old] : values) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  values.emplace_back(name, std::move(value));
}

Value Loop::attribute(std::string_view name) const {
  const auto at = static_cast<int64_t>(index);
  const auto count = static_cast<int64_t>(items->items.size());
  if (name == "index") return at + 1;
  if (name == "index0") return at;
  if (name == "revindex") return count - at;
  if (name == "revindex0") return count - at - 1;
  if (name == "first") return at == 0;
  if (name == "last") return at + 1 == count;
  if (name == "length") return count;
  // Only recursive loops, which are refused, get any deeper.
  if (name == "depth") return int64_t{1};
  if (name == "depth0") return int64_t{0};
  if (name == "previtem" && at > 0) return items->items[index - 1];
  if (name == "nextitem" && at + 1 < count) return items->items[index + 1];
  return Undefined{"loop." + std::string(name)};
}

uint32_t depth_of(const Value& value) {
  if (value.list() != nullptr) return value.list()->depth;
  if (value.dict() != nullptr) return value.dict()->depth;
  if (value.loop() != nullptr) return value.loop()->items->depth;
  return 0;
}

uint64_t weight_of(const Value& value) {
  constexpr uint64_t kSelf = 16;
  if (value.text() != nullptr) return kSelf + value.text()->size();
  if (value.list() != nullptr) return kSelf + value.list()->weight;
  if (value.dict() != nullptr) return kSelf + value.dict()->weight;
  return kSelf;
}

Result<Value> make_list(std::vector<Value> items, bool is_tuple) {
  auto list = std::make_shared<List>();
  list->is_tuple = is_tuple;
  for (const Value& item : items) {
    list->depth = std::max(list->depth, depth_of(item) + 1);
    list->weight = std::min(kWeightMax, list->weight + weight_of(item));
  }
  if (list->depth > kValueDepthMax) return too_deep();
  list->items = std::move(items);
  return Value(ListPtr(std::move(list)));
}

Result<Value> make_group(Value grouper, Value members) {
  PW_ASSIGN_OR_RETURN(const Value pair, make_list({std::move(grouper), std::move(members)}, true));
  auto group = std::make_shared<List>(*pair.list());
  group->is_group = true;
  return Value(ListPtr(std::move(group)));
}

Result<Value> make_dict(std::vector<std::pair<Value, Value>> entries) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : entries) {
    dict->depth = std::max(dict->depth, depth_of(value) + 1);
    dict->weight = std::min(kWeightMax, dict->weight + weight_of(key) + weight_of(value));
  }
  if (dict->depth > kValueDepthMax) return too_deep();
  dict->entries = std::move(entries);
  return Value(DictPtr(std::move(dict)));
}

Value make_text(std::string_view text) { return Rope(text, kTemplateOrigin); }

bool truthy(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_integral()) return value.integral() != 0;
  if (value.floating() != nullptr) return *value.floating() != 0;
  if (value.text() != nullptr) return !value.text()->empty();
  if (value.list() != nullptr) return !value.list()->items.empty();
  if (value.dict() != nullptr) return !value.dict()->entries.empty();
  return true;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integral() == b.integral();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.text() != nullptr && b.text() != nullptr) return a.text()->bytes() == b.text()->bytes();
  if (a.is_none() || a.is_undefined()) {
    return a.is_none() ? b.is_none() : b.is_undefined();
  }
  if (a.list() != nullptr && b.list() != nullptr) {
    return a.list() == b.list() ||
           (a.list()->is_tuple == b.list()->is_tuple &&
            std::equal(a.list()->items.begin(), a.list()->items.end(), b.list()->items.begin(),
                       b.list()->items.end(), equal));
  }
  if (a.dict() != nullptr && b.dict() != nullptr) {
    if (a.dict() == b.dict()) return true;
    if (a.dict()->entries.size() != b.dict()->entries.size()) return false;
    return std::all_of(a.dict()->entries.begin(), a.dict()->entries.end(), [&](const auto& entry) {
      const Value* other = b.dict()->find(entry.first.text()->bytes());
      return other != nullptr && equal(entry.second, *other);
    });
  }
  if (a.name_space() != nullptr) return a.name_space() == b.name_space();
  if (a.callable() != nullptr && b.callable() != nullptr) {
    return a.callable()->macro == b.callable()->macro &&
           a.callable()->builtin == b.callable()->builtin;
  }
  return a.loop() != nullptr && a.loop() == b.loop();
}

std::string_view type_name(const Value& value) {
  if (value.is_undefined()) return "undefined";
  if (value.is_none()) return "none";
  if (value.boolean() != nullptr) return "bool";
  if (value.integer() != nullptr) return "int";
  if (value.floating() != nullptr) return "float";
  if (value.text() != nullptr) return "str";
  if (value.list() != nullptr) return value.list()->is_tuple ? "tuple" : "list";
  if (value.dict() != nullptr) return "dict";
  if (value.callable() != nullptr) return "function";
  return value.loop() != nullptr ? "loop" : "namespace";
}

std::string format_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  // Shortest round-trip digits; an exponent below -4 or from 16 on, as template authors see
  // elsewhere.
  const double magnitude = std::fabs(value);
  const bool exponent = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value,
                    exponent ? std::chars_format::scientific : std::chars_format::fixed)
          .ptr;
  std::string text(buffer, end);
  if (!exponent && text.find('.') == std::string::npos) text += ".0";
  return text;
}

Result<Rope> to_text(const Value& value) {
  if (value.text() != nullptr) return *value.text();
  if (value.is_undefined()) return Rope();
  return to_literal(value);
}

Result<Rope> to_literal(const Value& value) {
  Rope out;
  if (value.text() != nullptr) return text_literal(*value.text());
  if (value.is_undefined()) {
    append_template(out, "Undefined");
  } else if (value.is_none()) {
    append_template(out, "None");
  } else if (value.boolean() != nullptr) {
    append_template(out, *value.boolean() ? "True" : "False");
  } else if (value.integer() != nullptr) {
    append_template(out, std::to_string(*value.integer()));
  } else if (value.floating() != nullptr) {
    append_template(out, format_float(*value.floating()));
  } else if (const List* list = value.list()) {
    append_template(out, list->is_tuple ? "(" : "[");
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) append_template(out, ", ");
      PW_ASSIGN_OR_RETURN(const Rope item, to_literal(list->items[i]));
      out.append(item);
    }
    if (list->is_tuple && list->items.size() == 1) append_template(out, ",");
    append_template(out, list->is_tuple ? ")" : "]");
  } else if (const Dict* dict = value.dict()) {
    append_template(out, "{");
    for (std::size_t i = 0; i < dict->entries.size(); ++i) {
      if (i > 0) append_template(out, ", ");
      PW_ASSIGN_OR_RETURN(const Rope key, to_literal(dict->entries[i].first));
      PW_ASSIGN_OR_RETURN(const Rope item, to_literal(dict->entries[i].second));
      out.append(key);
      append_template(out, ": ");
      out.append(item);
    }
    append_template(out, "}");
  } else {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("a '{}' cannot be printed", type_name(value))};
  }
  return out;
}

Result<Rope> to_json(const Value& value, const JsonStyle& style) {
  Rope out;
  PW_RETURN_IF_ERROR(append_json(value, style, 0, out));
  return out;
}

}  // namespace pagewise::text::jinja
