// SPDX-License-Identifier: Apache-2.0
#include "workload/trace_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/prng.h"

namespace pagewise::workload {
namespace {

void expect_equal(const Trace& a, const Trace& b) {
  ASSERT_EQ(a.requests().size(), b.requests().size());
  for (std::size_t i = 0; i < a.requests().size(); ++i) {
    const TraceRequest& one = a.requests()[i];
    const TraceRequest& other = b.requests()[i];
    EXPECT_EQ(one.arrival_ns, other.arrival_ns);
    EXPECT_EQ(one.output_tokens, other.output_tokens);
    EXPECT_EQ(a.prompt(one), b.prompt(other));
  }
}

TEST(TraceReader, ReadsTheLinesOfThePublicTraces) {
  const std::string path =
      std::string(PAGEWISE_SOURCE_DIR) + "/tests/data/traces/conversation_head.jsonl";
  const Result<Trace> trace = read_trace(path);
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  ASSERT_EQ(trace->requests().size(), 100U);
  const TraceRequest& first = trace->requests()[0];
  EXPECT_EQ(first.prompt_tokens, 6758U);
  EXPECT_EQ(first.output_tokens, 500U);
  ASSERT_EQ(first.pieces, 14U);
  EXPECT_EQ(trace->pieces(first)[12].tokens, 512U);
  EXPECT_EQ(trace->pieces(first)[13].tokens, 6758U - 13 * 512);
  // All of the first five begin with block 0.
  for (std::size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(trace->pieces(trace->requests()[i])[0], trace->pieces(first)[0]);
    EXPECT_NE(trace->pieces(trace->requests()[i])[1], trace->pieces(first)[1]);
  }
}

TEST(TraceReader, ReadsTheSameFromJsonLinesAndCsv) {
  const Trace json =
      parse_trace(
          R"({"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [7, 9007199254740991]}

{"timestamp": 1.5, "input_length": 512, "output_length": 0, "hash_ids": [7], "more": true}
)",
          "t")
          .value();
  const Trace csv = parse_trace(
                        "output_length, timestamp,input_length,hash_ids,user\r\n"
                        "3,0,600,7 9007199254740991,ann\r\n\r\n"
                        "0,1.5,512, 7 ,bob\r\n",
                        "t")
                        .value();
  expect_equal(json, csv);
  EXPECT_EQ(json.requests()[1].arrival_ns, 1'500'000);
}

TEST(TraceReader, WithoutIdsNothingIsShared) {
  const Trace trace =
      parse_trace("timestamp,input_length,output_length\n0,40,1\n0,40,1\n", "t").value();
  EXPECT_NE(trace.prompt(trace.requests()[0])[0], trace.prompt(trace.requests()[1])[0]);
}

TEST(TraceReader, NamesTheLineAndTheFieldOfABrokenTrace) {
  const std::string good = R"({"timestamp": 5, "input_length": 10, "output_length": 1})"
                           "\n";
  const std::pair<std::string, std::string> cases[] = {
      {"", "t: no requests in it"},
      {"\n\n", "t: no requests in it"},
      {good + "{", "t: line 2: not valid JSON"},
      {good + "[]", "t: line 2: not a JSON object"},
      {"a,b\n1,2\n", "t: line 1: no column 'timestamp'"},
      {good + good + R"({"input_length": 10, "output_length": 1})",
       "t: line 3: timestamp is missing"},
      {R"({"timestamp": "1", "input_length": 10, "output_length": 1})",
       "t: line 1: timestamp: not a number"},
      {R"({"timestamp": -1, "input_length": 10, "output_length": 1})",
       "t: line 1: timestamp: -1 is not in 0 to"},
      {R"({"timestamp": 1e300, "input_length": 10, "output_length": 1})",
       "t: line 1: timestamp: 1e+300 is not in"},
      {good + R"({"timestamp": 4.9, "input_length": 10, "output_length": 1})",
       "t: line 2: timestamp: before that of the line above"},
      {R"({"timestamp": 0, "input_length": 0, "output_length": 1})",
       "t: line 1: input_length: 0 is not in 1 to 16777216 tokens"},
      {R"({"timestamp": 0, "input_length": 1.5, "output_length": 1})",
       "t: line 1: input_length: not a whole number"},
      {R"({"timestamp": 0, "input_length": 99999999, "output_length": 1})",
       "t: line 1: input_length: 99999999 is not in"},
      {R"({"timestamp": 0, "input_length": 1, "output_length": -3})",
       "t: line 1: output_length: not a whole number"},
      {R"({"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1]})",
       "t: line 1: hash_ids: 1 of them, but 600 tokens are 2 blocks of 512"},
      {R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": 1})",
       "t: line 1: hash_ids: not a list"},
      {R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": ["x"]})",
       "t: line 1: hash_ids: not a whole number"},
      {"timestamp,input_length,output_length\n1,2\n", "t: line 2: fewer than 3 columns"},
      {"timestamp,input_length,output_length\n1,2,3,4\n", "t: line 2: more than 3 columns"},
      {"timestamp,input_length,output_length\nx,2,3\n",
       "t: line 2: timestamp: 'x' is not a number"},
      {"timestamp,input_length,output_length\nnan,2,3\n", "t: line 2: timestamp: nan is not in"},
      {"timestamp,input_length,output_length\n1,2.5,3\n",
       "t: line 2: input_length: '2.5' is not a whole number"},
  };
  for (const auto& [text, message] : cases) {
    const Result<Trace> trace = parse_trace(text, "t");
    ASSERT_FALSE(trace.has_value()) << text;
    EXPECT_EQ(trace.error().code, ErrorCode::kMalformed);
    EXPECT_TRUE(trace.error().message.starts_with(message)) << trace.error().message;
    EXPECT_EQ(trace.error().message.find('\n'), std::string::npos);
  }
}

TEST(TraceReader, SurvivesWhatIsNoTrace) {
  const std::string line =
      R"({"timestamp": 12, "input_length": 600, "output_length": 3, "hash_ids": [7, 8]})";
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Prng prng(mix64(seed));
    std::string text = line + "\n" + line + "\n";
    for (uint64_t i = 0, changes = 1 + prng.below(4); i < changes; ++i) {
      text[prng.below(text.size())] = static_cast<char>(prng.below(256));
    }
    const Result<Trace> trace = parse_trace(text, "t");
    if (trace.has_value()) {
      EXPECT_LE(trace->requests().size(), 2U);
    } else {
      EXPECT_EQ(trace.error().message.substr(0, 2), "t:");
    }
  }
}

}  // namespace
}  // namespace pagewise::workload
