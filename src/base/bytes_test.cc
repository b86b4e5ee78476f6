// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <gtest/gtest.h>

namespace pagewise {
namespace {

TEST(ParseSize, ReadsPlainBytesAndBinaryUnitsInAnyCase) {
  EXPECT_EQ(*parse_size("0"), 0u);
  EXPECT_EQ(*parse_size("1073741824"), kGiB);
  EXPECT_EQ(*parse_size("512KiB"), 512 * kKiB);
  EXPECT_EQ(*parse_size("40gib"), 40 * kGiB);
  EXPECT_EQ(*parse_size("1.5GiB"), kGiB + kGiB / 2);
}

TEST(ParseSize, RefusesWhatIsNoSizeAndNamesTheText) {
  for (const char* text : {"", "GiB", "12XB", "-1", "1.5", "1e3", "0x10", "1 GiB", "1..2GiB",
                           "99999999999GiB", "18446744073709551616"}) {
    const auto result = parse_size(text);
    ASSERT_FALSE(result.has_value()) << text;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(result.error().message.find(text), std::string::npos);
  }
}

TEST(FormatSize, PicksTheLargestUnitThatGivesAtLeastOne) {
  EXPECT_EQ(format_size(512), "512 B");
  EXPECT_EQ(format_size(kKiB), "1.0 KiB");
  EXPECT_EQ(format_size(kGiB), "1.0 GiB");
  EXPECT_EQ(format_size(256 * kGiB), "256.0 GiB");
}

}  // namespace
}  // namespace pagewise
