// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

namespace pagewise {
namespace {

TEST(ParseJson, KeepsTheOrderOfKeys_C05) {
  const auto value = parse_json(R"({"zeta":1,"alpha":2,"mid":{"b":1,"a":2}})");
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(json::serialize(*value), R"({"zeta":1,"alpha":2,"mid":{"b":1,"a":2}})");
}

TEST(ParseJson, NamesTheOffsetOfTheTokenThatIsWrong) {
  const auto value = parse_json(R"({"a": tru})");
  ASSERT_FALSE(value.has_value());
  EXPECT_NE(value.error().message.find("byte 6"), std::string::npos) << value.error().message;
}

TEST(ParseJson, RefusesNestingBeyondTheLimitWithoutACrash) {
  const std::string deep(100000, '[');
  EXPECT_FALSE(parse_json(deep).has_value());
  EXPECT_TRUE(parse_json("[[1]]", 2).has_value());
  EXPECT_FALSE(parse_json("[[[1]]]", 2).has_value());
}

TEST(ParseJson, RefusesEmptyTextTrailingTextAndInvalidUtf8) {
  EXPECT_FALSE(parse_json("").has_value());
  EXPECT_FALSE(parse_json("{} {}").has_value());
  EXPECT_FALSE(parse_json("\"\xff\"").has_value());
}

TEST(ParseJson, ToleratesAByteOrderMark) { EXPECT_TRUE(parse_json("\xef\xbb\xbf{}").has_value()); }

TEST(DoubledKey, IsOneThatAnObjectHasTwice) {
  EXPECT_EQ(doubled_key(R"({"a": 1, "b": 2, "a": 3})"), "a");
  EXPECT_EQ(doubled_key(R"({"o": [{"b": "x, \"b\":", "b": null}], "a": 1, "a": 1})"), "b");
  EXPECT_EQ(doubled_key("\xef\xbb\xbf{\"\": 1, \"\": 2}"), "");
  EXPECT_EQ(doubled_key(R"({"a": 1, "\u0061": 2})"), "a") << "the same, written in another way";
  EXPECT_EQ(doubled_key(R"({"a": {"a": {"b": 1}}, "b": [{"a": 1}, {"a": 1}, "a", "a"]})"),
            std::nullopt);
  EXPECT_EQ(doubled_key("[1, -2.5, 18446744073709551615, true, null]"), std::nullopt);
}

}  // namespace
}  // namespace pagewise
