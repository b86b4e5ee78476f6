// SPDX-License-Identifier: Apache-2.0
#include "base/percent.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace pagewise {
namespace {

TEST(PercentDecoded, EveryByteInEitherCase) {
  constexpr std::string_view kLower = "0123456789abcdef";
  constexpr std::string_view kUpper = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::string wanted(1, static_cast<char>(byte));
    for (const std::string_view high : {kLower, kUpper}) {
      for (const std::string_view low : {kLower, kUpper}) {
        EXPECT_EQ(percent_decoded(std::string{'%', high[byte / 16], low[byte % 16]}), wanted);
      }
    }
  }
  EXPECT_EQ(percent_decoded("a%2Fb%20%c3%A9"), "a/b \xC3\xA9");
}

TEST(PercentDecoded, OnceAndNotWhatIsNoCode) {
  EXPECT_EQ(percent_decoded(""), "");
  EXPECT_EQ(percent_decoded("a+b/c"), "a+b/c");
  EXPECT_EQ(percent_decoded("%2541"), "%41");
  EXPECT_EQ(percent_decoded("%%41"), "%A");
  for (const char* text : {"%", "%4", "a%", "a%4", "%g1", "%1g", "%G1", "%@1", "%`1", "%:1", "%/1",
                           "% 1", "%+1", "%\xC1."}) {
    EXPECT_EQ(percent_decoded(text), text);
  }
}

}  // namespace
}  // namespace pagewise
