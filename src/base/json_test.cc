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

}  // namespace
}  // namespace pagewise
