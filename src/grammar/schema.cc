// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/contains.h"
#include "base/percent.h"
#include "grammar/formats.h"
#include "grammar/number_range.h"

namespace pagewise::grammar {
namespace {

// Left out one by one, so each is an alternative that is followed at the same time.
constexpr std::size_t kOptionalMax = 256;
constexpr std::size_t kAlternativesMax = 256;
// A bound from below is a promise to write so much.
constexpr uint32_t kCountMinMax = 100'000;
constexpr uint32_t kCountMax = 1'000'000;
constexpr std::size_t kWordBytesMax = std::size_t{1} << 20;

// Says something about the schema, and nothing about what validates.
constexpr std::array<std::string_view, 14> kAnnotations = {
    "title",     "description", "default",     "examples",        "example",
    "$schema",   "$id",         "$comment",    "deprecated",      "readOnly",
    "writeOnly", "$defs",       "definitions", "contentMediaType"};
constexpr std::array<std::string_view, 7> kTypes = {"object",  "array",   "string", "number",
                                                    "integer", "boolean", "null"};

/// Keywords that bound values of one type.
struct TypeKeywords {
  std::string_view type;
  std::vector<std::string_view> keywords;
};
const std::vector<TypeKeywords>& type_keywords() {
  static const std::vector<TypeKeywords> table = {
      {"object", {"properties", "required", "additionalProperties"}},
      {"array", {"items", "prefixItems", "minItems", "maxItems"}},
      {"string", {"minLength", "maxLength", "format"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}},
  };
  return table;
}

/// What others write to say nothing.
bool says_nothing(std::string_view keyword, const json::value& value) {
  if (keyword == "uniqueItems" || keyword == "nullable")
    return value.is_bool() && !value.get_bool();
  if (keyword == "minProperties" || keyword == "minContains") return value == 0;
  return keyword == "allOf" && value.is_array() && value.get_array().empty();
}

std::string_view text_of(const json::string& text) { return {text.data(), text.size()}; }

bool is_integer(const json::value& value) {
  if (value.is_int64() || value.is_uint64()) return true;
  return value.is_double() && std::nearbyint(value.get_double()) == value.get_double();
}

bool has_type(const json::value& value, std::string_view type) {
  switch (value.kind()) {
    case json::kind::object:
      return type == "object";
    case json::kind::array:
      return type == "array";
    case json::kind::string:
      return type == "string";
    case json::kind::bool_:
      return type == "boolean";
    case json::kind::null:
      return type == "null";
    default:
      return type == "number" || (type == "integer" && is_integer(value));
  }
}

std::string scalar_text(const json::value& value) {
  if (!value.is_double()) return json::serialize(value);
  return fmt::format("{}", value.get_double());  // the shortest that reads as the same
}

/// What somebody sent, for a message of one line.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 40;
  std::string out(text.substr(0, kMost));
  if (text.size() > kMost) {
    while (!out.empty() && (static_cast<uint8_t>(out.back()) & 0xC0) == 0x80) out.pop_back();
    if (!out.empty() && static_cast<uint8_t>(out.back()) >= 0xC0) out.pop_back();
    out += "...";
  }
  for (char& c : out) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return out;
}

Error refusal(std::string_view path, std::string_view keyword, std::string_view reason) {
  return {ErrorCode::kUnsupported,
          fmt::format("{}{}{}: {}", path, keyword.empty() ? "" : ".", shown(keyword), reason)};
}

Error not_supported(std::string_view path, std::string_view keyword) {
  return refusal(path, keyword,
                 "this keyword is not supported in a schema that an answer must "
                 "follow");
}

Error wrong(std::string_view path, std::string_view keyword, std::string_view reason) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("{}{}{}: {}", path, keyword.empty() ? "" : ".", shown(keyword), reason)};
}

/// An error of the grammar, with the schema's place in the request.
Error at_place(std::string_view where, const Error& error) {
  return {error.code, fmt::format("{}: {}", where, error.message)};
}

}  // namespace

Result<NodeId> SchemaCompiler::compile() {
  PW_ASSIGN_OR_RETURN(const NodeId node, schema_node(root_, where_));
  // A queue, not recursion: a chain of references may be as long as it likes.
  while (!pending_.empty()) {
    const auto [pointer, forward] = pending_.front();
    pending_.pop_front();
    boost::system::error_code error;
    const json::value* target = root_.find_pointer(pointer, error);
    PW_CHECK(target != nullptr);  // reference() has seen it
    std::string path = where_;
    for (std::size_t at = 0; at < pointer.size();) {  // "/$defs/node"
      const std::size_t end = std::min(pointer.find('/', at + 1), pointer.size());
      path += '.' + shown(std::string_view(pointer).substr(at + 1, end - at - 1));
      at = end;
    }
    PW_ASSIGN_OR_RETURN(const NodeId part, schema_node(*target, path));
    builder_.define(forward, part);
  }
  return node;
}

Result<NodeId> SchemaCompiler::schema_node(const json::value& schema, const std::string& path) {
  if (const bool* any = schema.if_bool()) {
    if (*any) return builder_.json_value();
    return wrong(path, "", "false: nothing validates against it");
  }
  const json::object* object = schema.if_object();
  if (object == nullptr) return wrong(path, "", "a schema must be an object");
  if (builder_.is_full()) return refusal(path, "", "this schema is too large");

  std::vector<std::string_view> bounds;  // keywords that bound the values of a type
  std::string_view whole;                // a keyword that says all: $ref, anyOf, enum, ...
  for (const auto& [key, value] : *object) {
    const std::string_view keyword(key.data(), key.size());
    if (contains(kAnnotations, keyword) || keyword == "type" || says_nothing(keyword, value))
      continue;
    if (contains(std::array<std::string_view, 5>{"$ref", "anyOf", "allOf", "enum", "const"},
                 keyword)) {
      if (!whole.empty()) {
        return refusal(path, keyword, fmt::format("is not supported beside '{}'", whole));
      }
      whole = keyword;
      continue;
    }
    const bool known =
        std::any_of(type_keywords().begin(), type_keywords().end(),
                    [&](const TypeKeywords& row) { return contains(row.keywords, keyword); });
    if (!known) return not_supported(path, keyword);
    bounds.push_back(keyword);
  }
  if (!whole.empty() && !bounds.empty()) {
    return refusal(path, bounds.front(), fmt::format("is not supported beside '{}'", whole));
  }
  if (whole == "enum" || whole == "const") return values(*object, path);
  if (!whole.empty() && object->contains("type")) {
    return refusal(path, "type", fmt::format("is not supported beside '{}'", whole));
  }
  if (whole == "$ref") return reference(object->at("$ref"), path);
  if (whole == "anyOf" || whole == "allOf") return alternatives(*object, whole, path);

  PW_ASSIGN_OR_RETURN(std::vector<std::string_view> wanted, types(*object, path));
  if (wanted.empty()) {  // what it bounds is what it means
    for (const TypeKeywords& row : type_keywords()) {
      const bool bounded =
          std::any_of(bounds.begin(), bounds.end(),
                      [&row](std::string_view keyword) { return contains(row.keywords, keyword); });
      if (bounded) wanted.push_back(row.type);
    }
    if (wanted.empty()) return builder_.json_value();
  }
  std::vector<NodeId> ways;
  for (const std::string_view type : wanted) {
    // Every integer is a number: of both, the number alone.
    if (type == "integer" && contains(wanted, std::string_view("number"))) continue;
    PW_ASSIGN_OR_RETURN(const NodeId way, of_type(type, *object, path));
    ways.push_back(way);
  }
  return builder_.choice(ways);
}

Result<NodeId> SchemaCompiler::reference(const json::value& target, const std::string& path) {
  const json::string* text = target.if_string();
  if (text == nullptr) return wrong(path, "$ref", "must be a string");
  const std::string_view uri = text_of(*text);
  if (uri != "#" && !uri.starts_with("#/")) {
    return refusal(path, "$ref",
                   fmt::format("'{}' is not supported: only references into this "
                               "schema, '#' or '#/...'",
                               shown(uri)));
  }
  const std::string pointer = percent_decoded(uri.substr(1));
  const auto known = references_.find(pointer);
  if (known != references_.end()) return known->second;
  boost::system::error_code error;
  if (root_.find_pointer(pointer, error) == nullptr) {
    return wrong(path, "$ref", fmt::format("'{}' names nothing in this schema", shown(uri)));
  }
  const NodeId forward = builder_.forward();
  references_.emplace(pointer, forward);
  pending_.emplace_back(pointer, forward);
  return forward;
}

Result<NodeId> SchemaCompiler::alternatives(const json::object& schema, std::string_view keyword,
                                            const std::string& path) {
  const json::array* list = schema.at(keyword).if_array();
  if (list == nullptr || list->empty()) {
    return wrong(path, keyword, "must be an array of at least one schema");
  }
  if (keyword == "allOf" && list->size() > 1) {
    return refusal(path, keyword, "more than one schema is not supported");
  }
  if (list->size() > kAlternativesMax) {
    return refusal(path, keyword,
                   fmt::format("has {} alternatives, at most {} are supported", list->size(),
                               kAlternativesMax));
  }
  std::vector<NodeId> ways;
  for (std::size_t i = 0; i < list->size(); ++i) {
    PW_ASSIGN_OR_RETURN(const NodeId way,
                        schema_node((*list)[i], fmt::format("{}.{}[{}]", path, keyword, i)));
    ways.push_back(way);
  }
  return builder_.choice(ways);
}

Result<std::vector<std::string_view>> SchemaCompiler::types(const json::object& schema,
                                                            const std::string& path) {
  std::vector<std::string_view> found;
  const json::value* type = schema.if_contains("type");
  if (type == nullptr) return found;
  const auto add = [&found](const json::value& value) {
    const json::string* name = value.if_string();
    if (name == nullptr || !contains(kTypes, text_of(*name))) return false;
    if (!contains(found, text_of(*name))) found.push_back(text_of(*name));
    return true;
  };
  bool good = false;
  if (const json::array* list = type->if_array()) {
    good = !list->empty() && std::all_of(list->begin(), list->end(), add);
  } else {
    good = add(*type);
  }
  if (!good) {
    return wrong(path, "type",
                 "must be one or several of object, array, string, number, integer, "
                 "boolean, null");
  }
  return found;
}

Result<NodeId> SchemaCompiler::of_type(std::string_view type, const json::object& schema,
                                       const std::string& path) {
  if (type == "object") return object(schema, path);
  if (type == "array") return array(schema, path);
  if (type == "string") return string(schema, path);
  if (type == "boolean") return builder_.words({"true", "false"});
  if (type == "null") return builder_.literal("null");
  return number(type == "integer", schema, path);
}

// ---- Values
// ----------------------------------------------------------------------------------------

/// Exactly this value, objects in their own order.
NodeId SchemaCompiler::fixed(const json::value& value) {
  if (builder_.is_full()) return builder_.literal("");  // will be refused as a whole
  if (const json::object* object = value.if_object()) {
    std::vector<NodeId> parts = {builder_.literal("{")};
    for (const auto& [key, member] : *object) {
      if (parts.size() > 1) parts.push_back(builder_.comma());
      parts.push_back(builder_.literal(json::serialize(json::string(key))));
      parts.push_back(builder_.colon());
      parts.push_back(fixed(member));
    }
    parts.push_back(builder_.literal("}"));
    return builder_.nest(builder_.sequence(parts));
  }
  if (const json::array* array = value.if_array()) {
    std::vector<NodeId> items;
    for (const json::value& item : *array) items.push_back(fixed(item));
    return array_of(items, std::nullopt);
  }
  return builder_.literal(scalar_text(value));
}

Result<NodeId> SchemaCompiler::values(const json::object& schema, const std::string& path) {
  PW_ASSIGN_OR_RETURN(const std::vector<std::string_view> wanted, types(schema, path));
  const auto fits = [&wanted](const json::value& value) {
    return wanted.empty() ||
           std::any_of(wanted.begin(), wanted.end(),
                       [&value](std::string_view type) { return has_type(value, type); });
  };
  if (const json::value* value = schema.if_contains("const")) {
    if (!fits(*value)) return wrong(path, "const", "is not of the schema's type");
    return fixed(*value);
  }
  const json::array* list = schema.at("enum").if_array();
  if (list == nullptr || list->empty()) {
    return wrong(path, "enum", "must be an array of at least one value");
  }
  std::vector<std::string> words;
  std::vector<NodeId> ways;
  std::size_t word_bytes = 0;
  for (const json::value& value : *list) {
    if (!fits(value)) continue;
    if (value.is_structured()) {
      ways.push_back(fixed(value));
    } else {
      words.push_back(scalar_text(value));
      word_bytes += words.back().size();
      if (word_bytes > kWordBytesMax) {
        return refusal(
            path, "enum",
            fmt::format("more than {} bytes of values are not supported", kWordBytesMax));
      }
    }
  }
  if (!words.empty()) ways.push_back(builder_.words(words));
  if (ways.empty()) return wrong(path, "enum", "none of the values is of the schema's type");
  if (ways.size() > kAlternativesMax) {
    return refusal(
        path, "enum",
        fmt::format("more than {} objects and arrays are not supported", kAlternativesMax));
  }
  return builder_.choice(ways);
}

/// A bound on how many; absent: nullopt.
Result<std::optional<uint32_t>> SchemaCompiler::count(const json::object& schema,
                                                      std::string_view keyword,
                                                      const std::string& path) {
  const json::value* value = schema.if_contains(keyword);
  if (value == nullptr) return std::optional<uint32_t>();
  if (!value->is_number() || !is_integer(*value) || value->to_number<double>() < 0) {
    return wrong(path, keyword, "must be a whole number, 0 or more");
  }
  const double number = value->to_number<double>();
  const bool lower = keyword.starts_with("min");
  if (lower && number > kCountMinMax) {
    return refusal(path, keyword, fmt::format("at most {} is supported", kCountMinMax));
  }
  // No answer is ever that long.
  if (number > kCountMax) return std::optional<uint32_t>();
  return std::optional<uint32_t>(static_cast<uint32_t>(number));
}

Result<NodeId> SchemaCompiler::string(const json::object& schema, const std::string& path) {
  if (const json::value* format = schema.if_contains("format")) {
    const json::string* name = format->if_string();
    if (name == nullptr) return wrong(path, "format", "must be a string");
    for (const std::string_view bound : {"minLength", "maxLength"}) {
      if (schema.contains(bound)) return refusal(path, bound, "is not supported beside 'format'");
    }
    if (const auto node = string_of_format(builder_, text_of(*name))) return *node;
    return refusal(
        path, "format",
        fmt::format("'{}' is not supported; there are: {}", shown(text_of(*name)), kFormatNames));
  }
  PW_ASSIGN_OR_RETURN(const std::optional<uint32_t> min, count(schema, "minLength", path));
  PW_ASSIGN_OR_RETURN(const std::optional<uint32_t> max, count(schema, "maxLength", path));
  if (!min && !max) return builder_.json_string();
  StringRule rule;
  rule.min = min.value_or(0);
  rule.max = max.value_or(kUnbounded);
  if (rule.min > rule.max) return wrong(path, "minLength", "is more than maxLength");
  return builder_.string_node(rule);
}

/// The tighter bound of `keyword` and its exclusive form, nullopt for none that a number of
/// kIntegerDigitsMax digits could miss. A bound of `integer` is the last integer within it.
Result<std::optional<NumberBound>> SchemaCompiler::bound(const json::object& schema, bool lower,
                                                         bool integer, const std::string& path) {
  constexpr auto kMost = static_cast<double>(kIntegerMax);
  std::optional<NumberBound> tightest;
  for (const bool exclusive : {false, true}) {
    const std::string_view keyword = lower ? (exclusive ? "exclusiveMinimum" : "minimum")
                                           : (exclusive ? "exclusiveMaximum" : "maximum");
    const json::value* value = schema.if_contains(keyword);
    if (value == nullptr) continue;
    if (!value->is_number()) return wrong(path, keyword, "must be a number");
    const double asked = value->to_number<double>();
    double whole = lower ? std::ceil(asked) : std::floor(asked);
    NumberBound found;
    found.exclusive = exclusive && whole == asked;
    if (integer) {
      if (found.exclusive) whole += lower ? 1 : -1;
      found.exclusive = false;
    } else if (whole != asked) {
      return refusal(path, keyword, "of the type 'number' only whole numbers are supported here");
    }
    if (lower ? whole > kMost : whole < -kMost) {
      return refusal(
          path, keyword,
          fmt::format("numbers of more than {} digits are not supported", kIntegerDigitsMax));
    }
    if (std::abs(whole) > kMost) continue;
    found.value = static_cast<int64_t>(whole);
    const bool tighter = !tightest ||
                         (lower ? found.value > tightest->value : found.value < tightest->value) ||
                         (found.value == tightest->value && found.exclusive);
    if (tighter) tightest = found;
  }
  return tightest;
}

Result<NodeId> SchemaCompiler::number(bool integer, const json::object& schema,
                                      const std::string& path) {
  PW_ASSIGN_OR_RETURN(const auto min, bound(schema, true, integer, path));
  PW_ASSIGN_OR_RETURN(const auto max, bound(schema, false, integer, path));
  if (!min && !max) return integer ? builder_.json_integer() : builder_.json_number();
  if (min && max &&
      (min->value > max->value ||
       (min->value == max->value && (min->exclusive || max->exclusive)))) {
    return wrong(path, "", "no number is within its bounds");
  }
  if (!integer) return numbers_between(builder_, min, max);
  return integers_between(builder_, min ? min->value : -kIntegerMax,
                          max ? max->value : kIntegerMax);
}

// ---- Arrays and objects
// ----------------------------------------------------------------------------

/// An array of exactly these items, behind which `more`, with its own commas, may follow.
NodeId SchemaCompiler::array_of(const std::vector<NodeId>& items, std::optional<NodeId> more) {
  std::vector<NodeId> parts = {builder_.literal("[")};
  for (const NodeId item : items) {
    if (parts.size() > 1) parts.push_back(builder_.comma());
    parts.push_back(item);
  }
  if (more) parts.push_back(*more);
  parts.push_back(builder_.literal("]"));
  return builder_.nest(builder_.sequence(parts));
}

Result<NodeId> SchemaCompiler::array(const json::object& schema, const std::string& path) {
  PW_ASSIGN_OR_RETURN(const std::optional<uint32_t> asked_min, count(schema, "minItems", path));
  PW_ASSIGN_OR_RETURN(const std::optional<uint32_t> asked_max, count(schema, "maxItems", path));
  const uint32_t min = asked_min.value_or(0);
  const uint32_t max = asked_max.value_or(kUnbounded);
  if (min > max) return wrong(path, "minItems", "is more than maxItems");

  std::vector<NodeId> first;  // what prefixItems asks for, all of it that maxItems has room for
  if (const json::value* value = schema.if_contains("prefixItems")) {
    const json::array* list = value->if_array();
    if (list == nullptr || list->empty()) {
      return wrong(path, "prefixItems", "must be an array of at least one schema");
    }
    for (std::size_t i = 0; i < list->size() && i < max; ++i) {
      PW_ASSIGN_OR_RETURN(const NodeId item,
                          schema_node((*list)[i], fmt::format("{}.prefixItems[{}]", path, i)));
      first.push_back(item);
    }
  }
  const auto fixed_count = static_cast<uint32_t>(first.size());
  const json::value* items = schema.if_contains("items");
  if (items != nullptr && items->is_array()) {
    return refusal(path, "items", "a list of schemas is not supported, 'prefixItems' is");
  }
  const bool none = items != nullptr && items->is_bool() && !items->get_bool();
  if (none && min > fixed_count)
    return wrong(path, "minItems", "asks for items that 'items' forbids");
  // `items` is not compiled where nothing may follow: what it says is never asked for.
  if (none || max == fixed_count) return array_of(first, std::nullopt);
  NodeId item;
  if (items != nullptr) {
    PW_ASSIGN_OR_RETURN(item, schema_node(*items, path + ".items"));
  } else {
    item = builder_.json_value();
  }
  if (first.empty()) return builder_.json_array_of(item, min, max);
  const uint32_t more_min = min - std::min(min, fixed_count);
  const uint32_t more_max = max == kUnbounded ? max : max - fixed_count;
  return array_of(first, builder_.repeat(builder_.sequence({builder_.comma(), item}), std::nullopt,
                                         more_min, more_max));
}

/// What properties that are not named may hold; nullopt: there are none.
Result<std::optional<NodeId>> SchemaCompiler::additional(const json::object& schema,
                                                         const std::string& path) {
  const json::value* value = schema.if_contains("additionalProperties");
  if (value == nullptr || (value->is_bool() && !value->get_bool())) return std::optional<NodeId>();
  PW_ASSIGN_OR_RETURN(const NodeId node, schema_node(*value, path + ".additionalProperties"));
  return std::optional<NodeId>(node);
}

Result<NodeId> SchemaCompiler::object(const json::object& schema, const std::string& path) {
  const json::value* named = schema.if_contains("properties");
  const json::value* required = schema.if_contains("required");
  const json::value* others = schema.if_contains("additionalProperties");
  if (named == nullptr && required == nullptr && others == nullptr) return builder_.json_object();
  if (named != nullptr && !named->is_object()) {
    return wrong(path, "properties", "must be an object of schemas");
  }
  if (required != nullptr && !required->is_array()) {
    return wrong(path, "required", "must be an array of names");
  }
  PW_ASSIGN_OR_RETURN(const std::optional<NodeId> other, additional(schema, path));

  std::vector<Property> properties;
  if (named != nullptr) {
    for (const auto& [key, value] : named->get_object()) {
      const std::string_view name(key.data(), key.size());
      PW_ASSIGN_OR_RETURN(const NodeId node,
                          schema_node(value, fmt::format("{}.properties.{}", path, shown(name))));
      properties.push_back({name, node, false});
    }
  }
  std::map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < properties.size(); ++i) places.emplace(properties[i].name, i);
  if (required != nullptr) {
    for (const json::value& value : required->get_array()) {
      if (!value.is_string()) return wrong(path, "required", "must be an array of names");
      const std::string_view name = text_of(value.get_string());
      const auto [place, fresh] = places.emplace(name, properties.size());
      if (fresh) {
        if (others != nullptr && !other) {
          return wrong(path, "required",
                       fmt::format("'{}' is not among the properties", shown(name)));
        }
        properties.push_back({name, other ? *other : builder_.json_value(), false});
      }
      properties[place->second].required = true;
    }
  }
  const auto optional = static_cast<std::size_t>(std::count_if(
      properties.begin(), properties.end(), [](const Property& p) { return !p.required; }));
  if (optional > kOptionalMax) {
    return refusal(path, "properties",
                   fmt::format("{} of them may be left out, at most {} are "
                               "supported",
                               optional, kOptionalMax));
  }
  return members(properties, other);
}

/// Braces and what is between: properties in their order, then any number of others.
NodeId SchemaCompiler::members(const std::vector<Property>& properties,
                               std::optional<NodeId> additional) {
  const NodeId close = builder_.literal("}");
  // What may follow in front of property i: as the first member, or behind another.
  NodeId first = close;
  NodeId later = close;
  if (additional) {
    NodeId key = builder_.json_string();
    if (!properties.empty()) {
      std::vector<std::string> names;
      for (const Property& property : properties) names.emplace_back(property.name);
      StringRule rule;
      rule.escapes = false;  // or a name could be written in another way
      rule.except = static_cast<int32_t>(builder_.add_words(names));
      key = builder_.string_node(rule);
    }
    const NodeId member = builder_.sequence({key, builder_.colon(), *additional});
    first = builder_.sequence({builder_.repeat(member, builder_.comma(), 0, kUnbounded), close});
    later = builder_.sequence({builder_.repeat(builder_.sequence({builder_.comma(), member}),
                                               std::nullopt, 0, kUnbounded),
                               close});
  }
  for (auto property = properties.rbegin(); property != properties.rend(); ++property) {
    const NodeId key = builder_.literal(json::serialize(json::string(property->name)));
    const NodeId member = builder_.sequence({key, builder_.colon(), property->value, later});
    const NodeId behind = builder_.sequence({builder_.comma(), member});
    first = property->required ? member : builder_.choice({member, first});
    later = property->required ? behind : builder_.choice({behind, later});
  }
  return builder_.nest(builder_.sequence({builder_.literal("{"), first}));
}

// ---- For everybody ------------------------------------------------------------------------------

Result<NodeId> Builder::json_schema(const json::value& schema, std::string_view where) {
  const Mark before = mark();
  SchemaCompiler compiler(*this, schema, where);
  Result<NodeId> node = compiler.compile();
  if (node) {
    const Status status = check_part(*node);
    if (!status) node = at_place(where, status.error());
  }
  if (!node) go_back(before);
  return node;
}

Result<std::shared_ptr<const Grammar>> grammar_of_schema(const json::value& schema,
                                                         std::string_view where) {
  Builder builder;
  SchemaCompiler compiler(builder, schema, where);
  PW_ASSIGN_OR_RETURN(const NodeId root, compiler.compile());
  Result<std::shared_ptr<const Grammar>> grammar = builder.build(root);
  if (!grammar) return at_place(where, grammar.error());
  return grammar;
}

}  // namespace pagewise::grammar
