// SPDX-License-Identifier: Apache-2.0
// Every keyword of a schema that is supported, and every refusal.
#include <string>
#include <vector>

#include "grammar/test_grammar.h"

namespace pagewise::grammar {
namespace {

struct Case {
  std::string schema;
  std::vector<std::string> good;
  std::vector<std::string> bad;
};

void expect_cases(const std::vector<Case>& cases) {
  for (const Case& entry : cases) {
    SCOPED_TRACE(entry.schema);
    const GrammarPtr grammar = schema_grammar(entry.schema);
    ASSERT_NE(grammar, nullptr);
    expect_matches(grammar, entry.good, entry.bad);
  }
}

TEST(Schema, TypesAreWhatTheySay) {
  expect_cases({
      {R"({"type":"null"})", {"null"}, {"0", "nullnull", ""}},
      {R"({"type":"boolean"})", {"true", "false"}, {"null", "truefalse"}},
      {R"({"type":"integer"})", {"0", "-7", "120"}, {"1.0", "1e2", "\"1\"", "00"}},
      {R"({"type":"number"})", {"0", "-7.25", "1e2"}, {"true", "1.", "\"1\""}},
      {R"({"type":"string"})", {"\"\"", "\"a\""}, {"a", "1"}},
      {R"({"type":["string","null"]})", {"null", "\"null\""}, {"0"}},
      {R"({"type":["integer","number"]})", {"1", "1.5"}, {"null"}},
      {R"({"type":"object"})", {"{}", R"({"a":[1]})"}, {"[]", "1"}},
      {R"({"type":"array"})", {"[]", R"([1, "a",{}])"}, {"{}"}},
      {"{}", {"{}", "[]", "1", "null", "\"\""}, {"", "x"}},
      {"true", {"{}", "1"}, {"x"}},
  });
}

TEST(Schema, AnnotationsSayNothingAboutValues) {
  expect_cases({{R"({"type":"null","title":"t","description":"d","default":null,"examples":[1],
                    "$schema":"https://json-schema.org/draft/2020-12/schema","$id":"x",
                    "$comment":"c","deprecated":true,"readOnly":true,"writeOnly":false,
                    "uniqueItems":false,"allOf":[],"nullable":false,"minProperties":0})",
                 {"null"},
                 {"1"}}});
}

TEST(Schema, PropertiesComeInTheSchemasOrderAndOptionalOnesMayBeLeftOut) {
  const std::string properties = R"("properties":{"a":{"type":"integer"},"b":{"type":"null"},
                                                  "c":{"type":"boolean"}})";
  expect_cases({
      {R"({"type":"object",)" + properties + R"(,"required":["a","b","c"]})",
       {R"({"a":1,"b":null,"c":true})", R"({"a": 1, "b": null, "c": true})"},
       {"{}", R"({"a":1,"c":true,"b":null})", R"({"a":1,"b":null})",
        R"({"a":1,"b":null,"c":true,})", R"({"a":1,"b":null,"c":true,"d":1})",
        R"({"a":"1","b":null,"c":true})"}},
      {R"({"type":"object",)" + properties + R"(,"required":["b"],"additionalProperties":false})",
       {R"({"b":null})", R"({"a":1,"b":null})", R"({"b":null,"c":true})",
        R"({"a":1,"b":null, "c":false})"},
       {"{}", R"({"a":1})", R"({"c":true,"b":null})", R"({,"b":null})",
        R"({"a":1,"a":1,"b":null})"}},
      {"{" + properties + "}",
       {"{}", R"({"a":1})", R"({"c":true})", R"({"a":1,"c":true})"},
       {R"({"a":1,})", R"({"d":1})"}},
      {R"({"type":"object","properties":{},"required":[]})", {"{}"}, {R"({"a":1})"}},
      {R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"}},
      // Names that need escapes, and names that begin each other.
      {R"({"type":"object","properties":{"a\"b\\\n":{"type":"null"},"é":{"type":"null"},
          "a":{"type":"null"},"ab":{"type":"null"}}})",
       {R"({"a\"b\\\n":null,"é":null,"a":null,"ab":null})", R"({"ab":null})", R"({"a":null})"},
       {R"({"ab":null,"a":null})"}},
      // Named as required only: anything.
      {R"({"required":["x"],"properties":{"a":{"type":"null"}}})",
       {R"({"x":[1]})", R"({"a":null,"x":{}})"},
       {"{}", R"({"a":null})"}},
  });
}

TEST(Schema, AdditionalPropertiesFollowTheNamedOnesUnderOtherNames) {
  expect_cases({
      {R"({"type":"object","additionalProperties":{"type":"integer"}})",
       {"{}", R"({"a":1})", R"({"a":1,"a\n":2})"},
       {R"({"a":"b"})", R"({a:1})"}},
      {R"({"type":"object","properties":{"ab":{"type":"null"},"n":{"type":"null"}},"required":["ab"],
          "additionalProperties":{"type":"integer"}})",
       {R"({"ab":null})", R"({"ab":null,"a":1})", R"({"ab":null,"n":null,"abc":1, "":2})",
        R"({"ab":null,"é":3})"},
       {R"({"ab":null,"ab":1})", R"({"ab":null,"n":1})", R"({"ab":1})", R"({"a":1,"ab":null})",
        R"({"ab":null,"\u0061b":1})", "{}"}},
      {R"({"type":"object","additionalProperties":true,"properties":{"a":{"type":"null"}}})",
       {"{}", R"({"b":[null]})", R"({"a":null,"b":{}})"},
       {R"({"a":1})", R"({"b":1,"a":null})"}},
      {R"({"type":"object","additionalProperties":{"type":"integer"},"required":["z"]})",
       {R"({"z":1})", R"({"z":1,"y":2})"},
       {"{}", R"({"z":null})", R"({"y":1})"}},
  });
}

TEST(Schema, EnumAndConstTakeAnyValue) {
  expect_cases({
      {R"({"enum":["red","green","re"]})", {"\"red\"", "\"re\""}, {"red", "\"r\"", "\"reds\""}},
      {R"({"enum":[1,12,1.5,-0.25,true,null,"1"]})",
       {"1", "12", "1.5", "-0.25", "true", "null", "\"1\""},
       {"2", "false", "1.50"}},
      {R"({"type":"string","enum":["a",1,null]})", {"\"a\""}, {"1", "null"}},
      {R"({"type":["integer","null"],"enum":["a",1,null,2.5,3.0]})", {"1", "null", "3"}, {"2.5"}},
      {R"({"enum":[{"a":[1,"é\""]},[],7]})", {R"({"a": [1, "é\""]})", "[]", "7"}, {"{}", "[7]"}},
      {R"({"const":"x"})", {"\"x\""}, {"x"}},
      {R"({"const":{"b":1,"a":null}})",
       {R"({"b":1,"a":null})", R"({"b": 1, "a": null})"},
       {R"({"a":null,"b":1})", R"({"b":1})"}},
      {R"({"const":null,"type":"null"})", {"null"}, {"0"}},
      {R"({"const":1e300})", {"1e+300"}, {"1"}},
  });
}

TEST(Schema, ArraysHaveItemsAndBounds) {
  expect_cases({
      {R"({"type":"array","items":{"type":"integer"}})",
       {"[]", "[1]", "[1,2, 3]"},
       {"[\"a\"]", "[1,]"}},
      {R"({"items":{"type":"null"},"minItems":2,"maxItems":3})",
       {"[null,null]", "[null,null,null]"},
       {"[]", "[null]", "[null,null,null,null]"}},
      {R"({"type":"array","items":{"type":"null"},"minItems":2})",
       {"[null,null]", "[null,null,null,null,null]"},
       {"[]", "[null]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"type":"array","items":false})", {"[]"}, {"[1]"}},
      {R"({"type":"array","maxItems":99999999999})", {"[]", "[1,1]"}, {"[1"}},
      {R"({"type":"array","prefixItems":[{"type":"null"},{"type":"integer"}],"items":false})",
       {"[null,1]"},
       {"[]", "[null]", "[null,1,2]", "[1,null]"}},
      {R"({"type":"array","prefixItems":[{"type":"null"}],"items":{"type":"integer"},"minItems":2,
          "maxItems":3})",
       {"[null,1]", "[null,1,2]"},
       {"[null]", "[null,1,2,3]", "[null,null]"}},
      {R"({"type":"array","prefixItems":[{"type":"null"},{"type":"null"}],"maxItems":1})",
       {"[null]"},
       {"[null,null]", "[1]"}},
  });
}

TEST(Schema, StringsHaveLengthsInCharacters) {
  expect_cases({
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {"\"ab\"", "\"abc\"", "\"éé\"", R"("\n\u00e9")", R"("a\ud83d\ude00")",
        "\"\xF0\x9F\x98\x80z\""},
       {"\"\"", "\"a\"", "\"abcd\"", R"("\n\n\n\n")", "\"\xF0\x9F\x98\x80\""}},
      {R"({"minLength":1})", {"\"a\"", "\"abcdef\""}, {"\"\"", "1"}},
      {R"({"type":"string","maxLength":0})", {"\"\""}, {"\"a\""}},
  });
}

TEST(Schema, IntegersHaveBounds) {
  expect_cases({
      {R"({"type":"integer","minimum":0,"maximum":10})",
       {"0", "9", "10"},
       {"-1", "11", "-0", "00", "100"}},
      {R"({"type":"integer","minimum":-12,"maximum":7})",
       {"-12", "-9", "-1", "0", "7"},
       {"-13", "8", "10", "-0", "-20"}},
      {R"({"type":"integer","exclusiveMinimum":98,"exclusiveMaximum":1002})",
       {"99", "100", "999", "1000", "1001"},
       {"98", "1002", "0", "10000"}},
      {R"({"type":"integer","minimum":2.5,"maximum":3.5})", {"3"}, {"2", "4"}},
      {R"({"type":"integer","minimum":123})",
       {"123", "130", "200", "999999999999999"},
       {"122", "12", "-123"}},
      {R"({"type":"integer","maximum":-5})", {"-5", "-6", "-10"}, {"-4", "0", "5"}},
  });
}

TEST(Schema, EveryIntegerOfAnIntervalAndNoOther) {
  Prng prng(test_seed());
  SCOPED_TRACE(::testing::Message() << "PAGEWISE_TEST_SEED=" << test_seed());
  for (int round = 0; round < 20; ++round) {
    const auto a = static_cast<int64_t>(prng.below(2400)) - 1200;
    const auto b = static_cast<int64_t>(prng.below(2400)) - 1200;
    const int64_t min = std::min(a, b);
    const int64_t max = std::max(a, b);
    const GrammarPtr grammar =
        schema_grammar(R"({"type":"integer","minimum":)" + std::to_string(min) + R"(,"maximum":)" +
                       std::to_string(max) + "}");
    for (int64_t i = -1300; i <= 1300; ++i) {
      ASSERT_EQ(matches(grammar, std::to_string(i)), min <= i && i <= max)
          << min << " " << i << " " << max;
    }
  }
}

TEST(Schema, NumbersHaveBounds) {
  expect_cases({
      {R"({"type":"number","minimum":0,"maximum":1})",
       {"0", "0.0", "0.5", "0.123456789012345", "1", "1.000"},
       {"-0.1", "1.01", "1.0001", "2", "10", "1e0", "01", ".5", "1."}},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":2})",
       {"0.1", "0.001", "1", "1.999"},
       {"0", "0.0", "-0.1", "2", "2.0"}},
      {R"({"type":"number","minimum":-2,"maximum":3})",
       {"-2", "-2.0", "-1.9", "-0.5", "-0", "0", "2.99", "3.0"},
       {"-2.1", "-3", "3.1", "4"}},
      {R"({"type":"number","exclusiveMaximum":0})",
       {"-0.1", "-1", "-99.5"},
       {"0", "-0", "-0.0", "1"}},
      {R"({"type":"number","minimum":10})",
       {"10", "10.5", "123456", "999999999999999"},
       {"9.9", "0", "-10"}},
      {R"({"type":"number","minimum":5,"maximum":5})", {"5", "5.0"}, {"5.1", "4", "-5"}},
      {R"({"type":"number","minimum":1,"exclusiveMinimum":1})", {"1.5", "2"}, {"1", "1.0"}},
      {R"({"type":"number","maximum":-3})", {"-3", "-3.0", "-3.5", "-4"}, {"-2.9", "3", "0"}},
  });
}

TEST(Schema, FormatsAreTextsOfTheirForm) {
  const auto format = [](const std::string& name, std::vector<std::string> good,
                         std::vector<std::string> bad) {
    for (std::string& text : good) text = "\"" + text + "\"";
    for (std::string& text : bad) text = "\"" + text + "\"";
    return Case{R"({"type":"string","format":")" + name + "\"}", good, bad};
  };
  expect_cases({
      format("date", {"2026-11-30", "1999-02-28", "2000-01-31"},
             {"2026-11-31", "2026-02-30", "2026-13-01", "26-11-30", "2026-00-10", "2026-1-1", ""}),
      format("time", {"00:00:00Z", "23:59:59.25+02:00"},
             {"24:00:00Z", "12:60:00Z", "12:00:00", "12:00Z"}),
      format("date-time", {"2026-11-30T20:15:00Z"}, {"2026-11-30", "2026-11-30 20:15:00Z"}),
      format("duration", {"P1D", "P2DT3H", "PT1H2M3S", "PT5M", "P4W"},
             {"P", "PT", "1D", "P1H", "P1DT", "PT1H9S"}),
      format("uri", {"https://example.org", "http://a.example.org/b/C-1.html/"},
             {"example.org", "ftp://example.org", "https://", "https://example.org/a b"}),
      format("uuid", {"123e4567-e89b-12d3-a456-426614174000"},
             {"123e4567e89b12d3a456426614174000"}),
      format("ipv4", {"127.0.0.1", "255.255.255.0"}, {"256.0.0.1", "1.2.3", "01.2.3.4"}),
      format("ipv6", {"2001:db8:0:0:0:0:0:1"}, {"::1", "2001:db8"}),
      format("hostname", {"example.org", "a-b.c1.example"}, {"-a.org", "a..b", "example"}),
      format("email", {"ann.b+c@example.org"}, {"ann", "@example.org", "ann@example", ".a@b.org"}),
  });
}

TEST(Schema, AnyOfTakesEachOfItsSchemas) {
  expect_cases({
      {R"({"anyOf":[{"type":"null"},{"type":"object","properties":{"a":{"type":"null"}},"required":["a"]},
          {"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}]})",
       {"null", R"({"a":null})", R"({"a":1})"},
       {"{}", R"({"a":true})"}},
      {R"({"allOf":[{"type":"null"}],"description":"d"})", {"null"}, {"1"}},
  });
}

TEST(Schema, ReferencesAndRecursion) {
  expect_cases({
      {R"({"$defs":{"a~/b%":{"type":"null"},"list":{"type":"object","properties":{
             "value":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/list"},{"type":"null"}]}},
             "required":["value","next"]}},
           "type":"array","items":{"anyOf":[{"$ref":"#/$defs/list"},{"$ref":"#/$defs/a~0~1b%25"}]}})",
       {"[]", "[null]", R"([{"value":1,"next":{"value":2,"next":null}}, null])"},
       {"[1]", R"([{"value":1}])"}},
      {R"({"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}}})",
       {"{}", R"({"children":[]})", R"({"children":[{},{"children":[{}]}]})"},
       {R"({"children":[1]})"}},
      {R"({"definitions":{"x":{"type":"null"}},"$ref":"#/definitions/x"})", {"null"}, {"1"}},
  });
}

TEST(Schema, RecursionStopsBeforeItCouldNotBeCompleted) {
  const GrammarPtr grammar =
      schema_grammar(R"({"type":"object","properties":{"v":{"type":"null"},"next":{"$ref":"#"}},
                        "required":["v"]})");
  Matcher matcher(grammar);
  for (uint32_t i = 1; i < kNestMax; ++i) ASSERT_TRUE(matcher.accept(R"({"v":null,"next":)")) << i;
  EXPECT_FALSE(matcher.accept(R"({"v":null,)"));
  EXPECT_TRUE(matcher.accept(R"({"v":null)" + std::string(kNestMax, '}')));
  EXPECT_TRUE(matcher.must_end());
}

TEST(Schema, ALongChainOfReferencesCompiles) {
  std::string defs;
  for (int i = 0; i < 20'000; ++i) {
    defs += "\"d" + std::to_string(i) + "\":{\"$ref\":\"#/$defs/d" + std::to_string(i + 1) + "\"},";
  }
  expect_cases({{"{\"$ref\":\"#/$defs/d0\",\"$defs\":{" + defs + "\"d20000\":{\"type\":\"null\"}}}",
                 {"null"},
                 {"1"}}});
}

TEST(Schema, WhatIsNotSupportedIsRefusedByNameAndPlace) {
  struct Refusal {
    std::string schema, beginning;
  };
  const auto inside = [](const std::string& schema) {
    return R"({"type":"object","properties":{"a b":{"type":"array","items":)" + schema + "}}}";
  };
  const std::string place = "schema.properties.a b.items";
  std::vector<Refusal> cases = {
      {"1", "schema: a schema must be an object"},
      {"false", "schema: false"},
      {R"({"type":"date"})", "schema.type: must be one or several of"},
      {R"({"type":[]})", "schema.type: "},
      {R"({"type":7})", "schema.type: "},
      {R"({"properties":[]})", "schema.properties: "},
      {R"({"properties":{"a":7}})", "schema.properties.a: a schema must be"},
      {R"({"required":{}})", "schema.required: "},
      {R"({"required":[7]})", "schema.required: "},
      {R"({"required":["x"],"additionalProperties":false})", "schema.required: 'x'"},
      {R"({"enum":[]})", "schema.enum: "},
      {R"({"enum":"a"})", "schema.enum: "},
      {R"({"type":"null","enum":["a"]})", "schema.enum: none"},
      {R"({"type":"null","const":1})", "schema.const: "},
      {R"({"enum":["a"],"minLength":1})", "schema.minLength: is not supported beside 'enum'"},
      {R"({"enum":["a"],"const":"a"})", "schema.const: is not supported beside 'enum'"},
      {R"({"$ref":"#","minLength":1})", "schema.minLength: is not supported beside '$ref'"},
      {R"({"anyOf":[{}],"type":"object"})", "schema.type: is not supported beside 'anyOf'"},
      {R"({"anyOf":[]})", "schema.anyOf: "},
      {R"({"anyOf":[{"type":"null"},{"pattern":"a"}]})", "schema.anyOf[1].pattern: "},
      {R"({"allOf":[{},{}]})", "schema.allOf: "},
      {R"({"$ref":7})", "schema.$ref: "},
      {R"({"$ref":"#/$defs/no"})", "schema.$ref: '#/$defs/no' names nothing"},
      {R"({"$ref":"other.json"})", "schema.$ref: 'other.json'"},
      {R"({"$defs":{"x":{"not":{}}},"$ref":"#/$defs/x"})", "schema.$defs.x.not: "},
      {R"({"$ref":"#"})", "schema: refers to itself"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
       "schema: nothing that matches ends"},
      {R"({"type":"array","items":[{}]})", "schema.items: "},
      {R"({"type":"array","items":false,"minItems":1})", "schema.minItems: "},
      {R"({"type":"array","minItems":3,"maxItems":2})", "schema.minItems: is more than maxItems"},
      {R"({"type":"array","minItems":-1})", "schema.minItems: must be a whole number"},
      {R"({"type":"array","minItems":1000000})", "schema.minItems: at most 100000"},
      {R"({"type":"array","prefixItems":{}})", "schema.prefixItems: "},
      {R"({"type":"array","prefixItems":[7]})", "schema.prefixItems[0]: "},
      {R"({"type":"string","minLength":2,"maxLength":1})",
       "schema.minLength: is more than maxLength"},
      {R"({"type":"string","maxLength":1.5})", "schema.maxLength: must be a whole number"},
      {R"({"type":"string","maxLength":"1"})", "schema.maxLength: must be a whole number"},
      {R"({"type":"string","format":"regex"})",
       "schema.format: 'regex' is not supported; there are: date"},
      {R"({"type":"string","format":7})", "schema.format: must be a string"},
      {R"({"type":"string","format":"date","minLength":3})",
       "schema.minLength: is not supported beside"},
      {R"({"type":"integer","minimum":2,"maximum":1})", "schema: no number"},
      {R"({"type":"number","minimum":1,"exclusiveMaximum":1})", "schema: no number"},
      {R"({"type":"integer","minimum":"2"})", "schema.minimum: must be a number"},
      {R"({"type":"number","minimum":0.5})", "schema.minimum: of the type 'number' only whole"},
      {R"({"type":"number","exclusiveMaximum":-1e300})",
       "schema.exclusiveMaximum: numbers of more"},
      {R"({"type":"integer","minimum":1e300})", "schema.minimum: numbers of more than 15 digits"},
      {R"({"type":"array","uniqueItems":true})", "schema.uniqueItems: "},
  };
  for (const std::string keyword : {"pattern",
                                    "multipleOf",
                                    "oneOf",
                                    "not",
                                    "if",
                                    "then",
                                    "else",
                                    "contains",
                                    "minContains",
                                    "maxContains",
                                    "patternProperties",
                                    "propertyNames",
                                    "minProperties",
                                    "maxProperties",
                                    "dependentRequired",
                                    "dependentSchemas",
                                    "unevaluatedItems",
                                    "unevaluatedProperties",
                                    "additionalItems",
                                    "$dynamicRef",
                                    "$anchor",
                                    "nonsense"}) {
    cases.push_back(
        {inside("{\"" + keyword + "\":1}"), place + "." + keyword + ": this keyword is not"});
  }
  std::string many;
  for (int i = 0; i < 300; ++i) many += (i == 0 ? "\"p" : ",\"p") + std::to_string(i) + "\":{}";
  cases.push_back({"{\"properties\":{" + many + "}}", "schema.properties: 300 of them"});
  for (const Refusal& entry : cases) {
    const Result<GrammarPtr> grammar = grammar_of_schema(parsed(entry.schema), "schema");
    ASSERT_FALSE(grammar.has_value()) << entry.schema;
    EXPECT_EQ(grammar.error().message.substr(0, entry.beginning.size()), entry.beginning)
        << entry.schema;
    EXPECT_TRUE(grammar.error().code == ErrorCode::kInvalidArgument ||
                grammar.error().code == ErrorCode::kUnsupported);
  }
}

TEST(Schema, ASchemaThatIsTooLargeIsRefused) {
  std::string values;
  for (int i = 0; i < 120'000; ++i) values += (i == 0 ? "" : ",") + std::string("[]");
  const Result<GrammarPtr> grammar =
      grammar_of_schema(parsed("{\"const\":[" + values + "]}"), "schema");
  ASSERT_FALSE(grammar.has_value());
  EXPECT_NE(grammar.error().message.find("schema: needs more than"), std::string::npos);
}

TEST(Schema, ARefusedSchemaLeavesNothingBehind) {
  const auto build = [](bool with_refused) {
    Builder builder;
    const NodeId first = *builder.json_schema(parsed(R"({"type":"integer"})"), "first");
    if (with_refused) {
      // Much of it compiles before the last property does not.
      EXPECT_FALSE(builder.json_schema(parsed(R"({"type":"object","properties":{
          "s":{"type":"string","maxLength":3},"n":{"type":"number"},"v":{},
          "e":{"enum":["zyx","wv"]},"x":{"not":{}}},"required":["s","n","v","e","x"]})"),
                                       "second"));
    }
    return built(builder, builder.sequence({first, builder.literal(","), builder.json_value()}));
  };
  const GrammarPtr grammar = build(true), plain = build(false);
  EXPECT_EQ(grammar->program().nodes.size(), plain->program().nodes.size());
  EXPECT_EQ(grammar->program().text, plain->program().text);
  EXPECT_EQ(grammar->program().classes, plain->program().classes);
  expect_matches(grammar, {"1,[2.5]", "-7,{\"a\":null}"}, {"1", "1.5,[]"});
}

}  // namespace
}  // namespace pagewise::grammar
