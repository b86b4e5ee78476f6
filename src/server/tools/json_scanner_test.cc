// SPDX-License-Identifier: Apache-2.0
#include "server/tools/json_scanner.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/tools/call_object.h"

namespace pagewise::server::tools {
namespace {

using State = JsonScanner::State;

State scan(std::string_view text) {
  JsonScanner scanner;
  State state = State::kMore;
  for (const char c : text) state = scanner.push(c);
  return state;
}

TEST(JsonScanner, AcceptsWhatIsJsonAndEndsWithItsLastByte) {
  for (const char* text :
       {"{}", "[]", R"({"a":1})", R"( {"a" : [1, -2.5e+3, 0, 0.1, true, false, null, "x"] })",
        R"(["\u00e9\n\"\\\/", {"b": {}}, [[]]])", R"("text")", "true", R"({"a":1,"b":[1,2]})",
        R"({"a":"}"})", R"([0,1E5,2e-1])"}) {
    EXPECT_EQ(scan(text), State::kEnd) << text;
    EXPECT_EQ(scan(std::string(text) + "x"), State::kBad) << text;
    EXPECT_TRUE(parse_json(text)) << text;
    for (std::size_t length = 1; length < std::string_view(text).size(); ++length) {
      EXPECT_EQ(scan(std::string_view(text).substr(0, length)), State::kMore)
          << text << " up to " << length;
    }
  }
}

TEST(JsonScanner, RefusesAtTheFirstWrongByte) {
  for (const char* text : {"{a",
                           "{,",
                           "[,",
                           "[1,]",
                           R"({"a")"
                           "}",
                           R"({"a":})",
                           R"({"a":1,})",
                           "[01",
                           "[1.]",
                           "[-]",
                           "[1e]",
                           "[.5",
                           "[tru]",
                           "[nulL",
                           R"(["\x)",
                           R"(["\u12g)",
                           "[\"\n",
                           "}",
                           "]",
                           "[}",
                           "{]",
                           "[1 2",
                           R"({"a":1 "b)",
                           "'a",
                           "[+1"}) {
    EXPECT_EQ(scan(text), State::kBad) << text;
    const std::string_view view(text);
    EXPECT_EQ(scan(view.substr(0, view.size() - 1)), State::kMore) << text;
  }
  EXPECT_EQ(scan(std::string(JsonScanner::kDepthMax, '[')), State::kMore);
  EXPECT_EQ(scan(std::string(JsonScanner::kDepthMax + 1, '[')), State::kBad);
}

TEST(JsonScanner, ClosesWhatWasCutAtItsLastCompleteValue) {
  const std::vector<std::pair<const char*, const char*>> rows = {
      {"", "{}"},
      {"{", "{}"},
      {R"({"a)", "{}"},
      {R"({"a":)", "{}"},
      {R"({"a":"x)", "{}"},
      {R"({"a":"x")", R"({"a":"x"})"},
      {R"({"a":"x",)", R"({"a":"x"})"},
      {R"({"a":12)", R"({"a":12})"},  // as clients read it, though it may begin 123
      {R"({"a":1.)", "{}"},
      {R"({"a":-)", "{}"},
      {R"({"a":12,)", R"({"a":12})"},
      {R"({"a":12 )", R"({"a":12 })"},
      {R"({"a":[1, {"b":2},)", R"({"a":[1, {"b":2}]})"},
      {R"({"a":[1, {"b":2)", R"({"a":[1, {"b":2}]})"},
      {R"({"a":[12])", R"({"a":[12]})"},
      {R"({"a":tru)", "{}"},
      {R"({"a":1})", R"({"a":1})"},
      {"no", "{}"},
  };
  for (const auto& [prefix, closed] : rows) EXPECT_EQ(closed_json(prefix), closed) << prefix;
}

CallObject read(std::string_view text, State expected = State::kEnd) {
  CallObject object;
  State state = State::kMore;
  for (const char c : text) state = object.push(c);
  EXPECT_EQ(state, expected) << text;
  return object;
}

TEST(CallObject, FindsNameAndArgumentsInAnyOrderAmongOthers) {
  for (const char* text :
       {R"({"name": "f", "arguments": {"a": {"name": "no"}}})",
        R"({"arguments": {"a": {"name": "no"}}, "name": "f"})",
        R"({"id": 7, "tool_name": "f", "parameters": {"a": {"name": "no"}}, "x": [1, {"y": 2}]})",
        R"({"type": "function", "function": "f", "n": 1.5, "parameters":{"a": {"name": "no"}}})",
        R"({"name": "f", "arguments": "{\"a\": {\"name\": \"no\"}}"})"}) {
    const CallObject object = read(text);
    EXPECT_EQ(object.name(), "f") << text;
    EXPECT_EQ(object.whole_arguments(), R"({"a": {"name": "no"}})") << text;
  }
  EXPECT_EQ(read(R"({"name":"f"})").whole_arguments(), "{}");
  EXPECT_EQ(read(R"({"name":"f","arguments":null})").whole_arguments(), std::nullopt);
  EXPECT_EQ(read(R"({"name":"f","arguments":"[]"})").whole_arguments(), std::nullopt);
  EXPECT_FALSE(read(R"({"arguments":{}})").name());
  read(R"({"name":1)"
       ",",
       State::kBad);
  read(R"({"name":"a","name":"b")", State::kBad);
}

}  // namespace
}  // namespace pagewise::server::tools
