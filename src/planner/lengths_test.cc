// SPDX-License-Identifier: Apache-2.0
#include "planner/lengths.h"

#include <gtest/gtest.h>

#include "base/temp_folder_testing.h"

namespace pagewise::planner {
namespace {

TEST(Lengths, AreTokensWithOrWithoutANumberOfRequests) {
  EXPECT_EQ(*parse_lengths("1200*3,300,1200"), (Lengths{{300, 1}, {1200, 4}}));
  EXPECT_EQ(*parse_lengths("8"), (Lengths{{8, 1}}));
}

TEST(Lengths, SayWhichPartIsWrong) {
  const auto error_of = [](std::string_view text) {
    const auto lengths = parse_lengths(text);
    return lengths.has_value() ? "(read)" : lengths.error().message;
  };
  EXPECT_EQ(error_of("300,,5"), "'' is not TOKENS or TOKENS*REQUESTS");
  EXPECT_EQ(error_of("300x2"), "'300x2' is not TOKENS or TOKENS*REQUESTS");
  EXPECT_EQ(error_of("-5"), "'-5' is not TOKENS or TOKENS*REQUESTS");
  EXPECT_EQ(error_of("0"), "'0': 0 tokens are not in 1 to 1073741824");
  EXPECT_EQ(error_of("5*0"), "'5*0': 0 requests: from 1 to 4294967295 in all can be planned");
  EXPECT_EQ(error_of("5*4294967295,6"),
            "'6': 1 requests: from 1 to 4294967295 in all can be planned");
}

class LengthsOfATrace : public ::testing::Test {
 protected:
  Result<Lengths> read(std::string_view text) {
    return lengths_of_trace(folder_.write("trace", text));
  }
  std::string error_of(std::string_view text) {
    const auto lengths = read(text);
    if (lengths.has_value()) return "(read)";
    const std::string path = folder_.path("trace") + ": ";
    EXPECT_TRUE(lengths.error().message.starts_with(path)) << lengths.error().message;
    return lengths.error().message.substr(path.size());
  }

  const pagewise::testing::TempFolder folder_;
};

TEST_F(LengthsOfATrace, ArePromptAndAnswerTogether) {
  const auto lengths = read(
      "{\"timestamp\": 0, \"input_length\": 100, \"output_length\": 20, \"hash_ids\": [0]}\n\n"
      "{\"input_length\": 50, \"output_length\": 70}\r\n"
      "{\"input_length\": 7, \"output_length\": 0}");
  ASSERT_TRUE(lengths.has_value()) << lengths.error().message;
  EXPECT_EQ(*lengths, (Lengths{{7, 1}, {120, 2}}));
  const auto csv = read("when, output_length ,input_length\n0,20,100\n1, 1 , 2\n");
  ASSERT_TRUE(csv.has_value()) << csv.error().message;
  EXPECT_EQ(*csv, (Lengths{{3, 1}, {120, 1}}));
}

TEST_F(LengthsOfATrace, NameTheLineThatIsBroken) {
  const std::string good = "{\"input_length\": 1, \"output_length\": 1}\n";
  EXPECT_EQ(error_of(good + "\n{\"input_length\": 1}"), "line 3: output_length is missing");
  EXPECT_EQ(error_of(""), "no requests in it");
}

}  // namespace
}  // namespace pagewise::planner
