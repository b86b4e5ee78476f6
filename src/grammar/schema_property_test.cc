// SPDX-License-Identifier: Apache-2.0
// Random schemas, random outputs: whatever a model samples from the tokens that are allowed, it
// ends, parses, and validates. The validator below knows the meaning of a schema and nothing of
// grammars.
//
// A failing seed is printed; PAGEWISE_TEST_SEED=n begins with it.
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "grammar/test_grammar.h"

namespace pagewise::grammar {
namespace {

// ---- A validator
// -----------------------------------------------------------------------------------

std::size_t characters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

bool is_type(const json::value& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (!value.is_number()) return false;
  return type == "number" || std::floor(value.to_number<double>()) == value.to_number<double>();
}

bool equal(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

class Validator {
 public:
  explicit Validator(const json::value& root) : root_(root) {}

  bool validates(const json::value& value, const json::value& schema) const {
    if (schema.is_bool()) return schema.get_bool();
    const json::object& rules = schema.get_object();
    for (const auto& [key, rule] : rules) {
      if (!follows(value, std::string_view(key.data(), key.size()), rule, rules)) return false;
    }
    return true;
  }

 private:
  bool follows(const json::value& value, std::string_view key, const json::value& rule,
               const json::object& rules) const {
    const auto any = [&](const auto& test) {
      for (const json::value& entry : rule.get_array()) {
        if (test(entry)) return true;
      }
      return false;
    };
    const auto number = [&rule] { return rule.to_number<double>(); };
    if (key == "$ref") {
      const std::string pointer(rule.get_string().c_str() + 1);
      return validates(value, pointer.empty() ? root_ : root_.at_pointer(pointer));
    }
    if (key == "type") {
      if (rule.is_string()) return is_type(value, rule.get_string().c_str());
      return any(
          [&](const json::value& type) { return is_type(value, type.get_string().c_str()); });
    }
    if (key == "enum") return any([&](const json::value& entry) { return equal(value, entry); });
    if (key == "const") return equal(value, rule);
    if (key == "anyOf")
      return any([&](const json::value& entry) { return validates(value, entry); });
    if (key == "minimum") return !value.is_number() || value.to_number<double>() >= number();
    if (key == "maximum") return !value.is_number() || value.to_number<double>() <= number();
    if (key == "exclusiveMinimum")
      return !value.is_number() || value.to_number<double>() > number();
    if (key == "exclusiveMaximum")
      return !value.is_number() || value.to_number<double>() < number();
    if (key == "minLength") return !value.is_string() || length(value) >= number();
    if (key == "maxLength") return !value.is_string() || length(value) <= number();
    if (const json::array* array = value.if_array()) {
      if (key == "minItems") return static_cast<double>(array->size()) >= number();
      if (key == "maxItems") return static_cast<double>(array->size()) <= number();
      if (key == "prefixItems") {
        for (std::size_t i = 0; i < array->size() && i < rule.get_array().size(); ++i) {
          if (!validates((*array)[i], rule.get_array()[i])) return false;
        }
      }
      if (key == "items") {
        const json::value* prefix = rules.if_contains("prefixItems");
        const std::size_t begin = prefix == nullptr ? 0 : prefix->get_array().size();
        for (std::size_t i = begin; i < array->size(); ++i) {
          if (!validates((*array)[i], rule)) return false;
        }
      }
    }
    if (const json::object* object = value.if_object()) {
      const json::value* named = rules.if_contains("properties");
      if (key == "required") {
        for (const json::value& name : rule.get_array()) {
          if (!object->contains(name.get_string())) return false;
        }
      }
      for (const auto& [name, member] : *object) {
        const json::value* own = named == nullptr ? nullptr : named->get_object().if_contains(name);
        if (key == "properties" && own != nullptr && !validates(member, *own)) return false;
        if (key == "additionalProperties" && own == nullptr && !validates(member, rule))
          return false;
      }
    }
    return true;
  }

  static double length(const json::value& value) {
    const json::string& text = value.get_string();
    return static_cast<double>(characters({text.data(), text.size()}));
  }

  const json::value& root_;
};

// ---- Random schemas
// --------------------------------------------------------------------------------

class SchemaMaker {
 public:
  explicit SchemaMaker(Prng& prng) : prng_(prng) {}

  json::value make() {
    json::object root = schema(4).get_object();
    // Mostly something with an inside.
    for (int i = 0; i < 3 && !root.contains("properties") && !root.contains("items"); ++i) {
      root = schema(4).get_object();
    }
    json::object defs;
    for (const std::string& name : names_) defs[name] = schema(2);
    // Definitions that definitions ask for.
    for (bool all = false; !all;) {
      all = true;
      for (const std::string& name : std::set<std::string>(names_)) {
        if (defs.contains(name)) continue;
        defs[name] = schema(1);
        all = false;
      }
    }
    if (!defs.empty()) root["$defs"] = defs;
    return root;
  }

 private:
  bool chance(uint32_t percent) { return prng_.below(100) < percent; }

  json::value scalar() {
    switch (prng_.below(6)) {
      case 0:
        return nullptr;
      case 1:
        return chance(50);
      case 2:
        return static_cast<int64_t>(prng_.below(2000)) - 1000;
      case 3:
        return static_cast<double>(prng_.below(1000)) / 8 - 20;
      default:
        return json::value(word());
    }
  }

  std::string word() {
    static const std::vector<std::string> words = {
        "a",    "b",     "ab",  "abc",  "name", "é",
        "a\"b", "\\",    "",    "\n",   "red",  "n\xF0\x9F\x98\x80",
        "list", "value", "x y", "next", "</x>", "<call>"};
    return words[prng_.below(words.size())];
  }

  json::value schema(uint32_t depth) {
    json::object out;
    if (chance(20)) out["description"] = "something";
    const uint64_t kind = depth == 0 ? prng_.below(7) : prng_.below(13);
    switch (kind) {
      case 0:
        out["type"] = chance(50) ? "null" : "boolean";
        break;
      case 1:
        out["type"] = "integer";
        if (chance(60)) {
          const auto low = static_cast<int64_t>(prng_.below(400)) - 200;
          out["minimum"] = low;
          if (chance(70)) out["maximum"] = low + static_cast<int64_t>(prng_.below(3000));
        }
        break;
      case 2:
        out["type"] = "number";
        if (chance(40)) {
          const auto low = static_cast<int64_t>(prng_.below(40)) - 20;
          out[chance(50) ? "minimum" : "exclusiveMinimum"] = low;
          if (chance(50)) {
            out[chance(50) ? "maximum" : "exclusiveMaximum"] =
                low + 1 + static_cast<int64_t>(prng_.below(30));
          }
        }
        break;
      case 3:
      case 4:
        out["type"] = chance(70) ? json::value("string") : json::value({"string", "null"});
        if (chance(30)) out["minLength"] = prng_.below(6);
        if (chance(30)) out["maxLength"] = 5 + prng_.below(30);
        break;
      case 5: {
        json::array values;
        for (uint64_t i = 0; i <= prng_.below(5); ++i) values.push_back(scalar());
        if (chance(20)) values.push_back(json::object{{"a", json::array{1, "x"}}});
        out["enum"] = values;
        break;
      }
      case 6:
        out["const"] = scalar();
        break;
      case 7: {
        json::array ways;
        for (uint64_t i = 0; i <= prng_.below(3); ++i) ways.push_back(schema(depth - 1));
        if (chance(30)) ways.push_back(reference());
        ways.push_back(json::object{{"type", "null"}});
        out["anyOf"] = ways;
        break;
      }
      case 8:
      case 9: {
        out["type"] = "array";
        uint64_t fixed = 0;
        if (chance(20)) {
          json::array first;
          for (fixed = 0; fixed <= prng_.below(2); ++fixed) first.push_back(schema(depth - 1));
          fixed = first.size();
          out["prefixItems"] = first;
        }
        const uint64_t min = chance(40) ? prng_.below(3) : 0;
        if (min > 0) out["minItems"] = min;
        if (chance(40)) out["maxItems"] = std::max(min, fixed) + prng_.below(4);
        out["items"] = min == 0 && chance(20) ? reference() : schema(depth - 1);
        break;
      }
      case 12:
        if (chance(80)) return schema(depth - 1);
        return json::object();  // anything
      default: {
        out["type"] = "object";
        json::object properties;
        json::array required;
        for (uint64_t i = 0; i < prng_.below(5); ++i) {
          const std::string name = word();
          if (properties.contains(name)) continue;
          const bool needed = chance(60);
          properties[name] = !needed && chance(15) ? reference() : schema(depth - 1);
          if (needed) required.push_back(json::value(name));
        }
        out["properties"] = properties;
        out["required"] = required;
        if (chance(15)) {
          out["additionalProperties"] = schema(0);
        } else {
          out["additionalProperties"] = false;
        }
        break;
      }
    }
    return out;
  }

  json::value reference() {
    if (chance(30)) return json::object{{"$ref", "#"}};
    const std::string name = chance(50) ? "one" : "two";
    names_.insert(name);
    return json::object{{"$ref", "#/$defs/" + name}};
  }

  Prng& prng_;
  std::set<std::string> names_;
};

// ---- A model that knows nothing
// --------------------------------------------------------------------

/// Whether the end of `output` is inside a string, by counting quotes.
bool in_string(std::string_view output) {
  bool inside = false;
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (inside && output[i] == '\\') {
      ++i;
    } else if (output[i] == '"') {
      inside = !inside;
    }
  }
  return inside;
}

/// Samples evenly among the allowed tokens; later always what is most likely to come to an end.
std::string random_output(const GrammarPtr& grammar, const Vocabulary& vocabulary, Prng& prng) {
  Matcher matcher(grammar);
  std::string output;
  const uint64_t patience = 10 + prng.below(200);
  for (uint64_t step = 0; step < 20'000; ++step) {
    if (matcher.must_end()) return output;
    if (matcher.may_end() && (step > patience || prng.below(4) == 0)) return output;
    const std::vector<TokenId> tokens = allowed_tokens(matcher, vocabulary);
    if (tokens.empty()) {
      ADD_FAILURE() << "nothing is allowed after " << output;
      return output;
    }
    TokenId chosen = tokens[prng.below(tokens.size())];
    if (step > patience) {
      const std::string_view order =
          in_string(output) ? std::string_view("\"na0") : std::string_view("}]ntf0123456789:\",[{");
      std::size_t best = order.size();
      for (const TokenId token : tokens) {
        const std::string_view bytes = vocabulary.spelling(token);
        const std::size_t rank = bytes.size() == 1 ? order.find(bytes[0]) : std::string_view::npos;
        if (rank >= best) continue;
        best = rank;
        chosen = token;
      }
    }
    const std::string_view bytes = vocabulary.spelling(chosen);
    output += bytes;
    EXPECT_TRUE(matcher.accept(bytes)) << output;
  }
  ADD_FAILURE() << "never ends: " << output.substr(0, 2000);
  return output;
}

/// What compile refuses for a reason: a schema that nothing finite validates against.
bool refused_rightly(const Error& error) {
  for (const std::string_view reason : {"refers to itself", "levels of nesting", "is not among"}) {
    if (error.message.find(reason) != std::string::npos) return true;
  }
  return false;
}

TEST(SchemaProperty, EveryOutputOfEverySchemaEndsParsesAndValidates) {
  const std::vector<std::string> tokens = awkward_tokens();
  const Vocabulary vocabulary = vocabulary_of(tokens);
  const uint64_t first = test_seed();
  uint64_t schemas = 0;
  uint64_t bytes = 0;
  for (uint64_t seed = first; seed < first + 400; ++seed) {
    SCOPED_TRACE(::testing::Message() << "PAGEWISE_TEST_SEED=" << seed);
    Prng prng(seed);
    const json::value schema = SchemaMaker(prng).make();
    SCOPED_TRACE(json::serialize(schema));
    const Result<GrammarPtr> grammar = grammar_of_schema(schema, "schema");
    if (!grammar) {
      ASSERT_TRUE(refused_rightly(grammar.error())) << grammar.error().message;
      continue;
    }
    ++schemas;
    for (int round = 0; round < 6; ++round) {
      const std::string output = random_output(*grammar, vocabulary, prng);
      bytes += output.size();
      const Result<json::value> value = parse_json(output);
      ASSERT_TRUE(value.has_value()) << value.status().error().message << ": " << output;
      ASSERT_TRUE(Validator(schema).validates(*value, schema)) << output;
    }
  }
  EXPECT_GT(schemas, 300U);
  EXPECT_GT(bytes, 50'000U);
}

TEST(SchemaProperty, TheValidatorRefusesWhatItShould) {
  const auto validates = [](std::string_view value, std::string_view schema_text) {
    const json::value schema = parsed(schema_text);
    return Validator(schema).validates(parsed(value), schema);
  };
  EXPECT_TRUE(validates("1", R"({"type":"integer"})"));
  EXPECT_FALSE(validates("1.5", R"({"type":"integer"})"));
  EXPECT_FALSE(validates("null", R"({"type":["string","integer"]})"));
  EXPECT_FALSE(validates("\"b\"", R"({"enum":["a",1]})"));
  EXPECT_FALSE(validates("2", R"({"const":1})"));
  EXPECT_FALSE(validates("2", R"({"anyOf":[{"const":1},{"type":"null"}]})"));
  EXPECT_FALSE(validates("2", R"({"minimum":3})"));
  EXPECT_FALSE(validates("4", R"({"maximum":3})"));
  EXPECT_FALSE(validates("3", R"({"exclusiveMinimum":3})"));
  EXPECT_FALSE(validates("3", R"({"exclusiveMaximum":3})"));
  EXPECT_FALSE(validates("\"é\"", R"({"minLength":2})"));
  EXPECT_FALSE(validates("\"ab\"", R"({"maxLength":1})"));
  EXPECT_FALSE(validates("[1]", R"({"minItems":2})"));
  EXPECT_FALSE(validates("[1]", R"({"maxItems":0})"));
  EXPECT_FALSE(validates("[1,2]", R"({"prefixItems":[{}],"items":{"type":"null"}})"));
  EXPECT_FALSE(validates("[1]", R"({"prefixItems":[{"type":"null"}]})"));
  EXPECT_FALSE(validates("{}", R"({"required":["a"]})"));
  EXPECT_FALSE(validates(R"({"a":1})", R"({"properties":{"a":{"type":"null"}}})"));
  EXPECT_FALSE(validates(R"({"b":1})", R"({"properties":{"a":{}},"additionalProperties":false})"));
  EXPECT_FALSE(
      validates("[[1]]", R"({"items":{"$ref":"#/$defs/x"},"$defs":{"x":{"maxItems":0}}})"));
}

}  // namespace
}  // namespace pagewise::grammar
