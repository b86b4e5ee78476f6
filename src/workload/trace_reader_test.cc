// SPDX-License-Identifier: Apache-2.0
#include "workload/trace_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "base/temp_folder_testing.h"

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

class TraceLengths : public ::testing::Test {
 protected:
  Status read(std::string_view text) {
    seen_.clear();
    return read_lengths(folder_.write("trace", text), [&](const RequestLengths& request) {
      seen_.emplace_back(request.input_tokens, request.output_tokens);
      return Status::ok();
    });
  }
  std::string error_of(std::string_view text) {
    const Status status = read(text);
    if (status) return "(read)";
    const std::string path = folder_.path("trace") + ": ";
    EXPECT_TRUE(status.error().message.starts_with(path)) << status.error().message;
    return status.error().message.substr(path.size());
  }

  const pagewise::testing::TempFolder folder_;
  std::vector<std::pair<uint32_t, uint32_t>> seen_;
};

TEST_F(TraceLengths, NeedNoTimeNoOrderAndNoIds) {
  using Seen = std::vector<std::pair<uint32_t, uint32_t>>;
  const Status json = read(
      R"({"timestamp": 9, "input_length": 100, "output_length": 20, "hash_ids": [0]})"
      "\n\n"
      R"({"timestamp": "2026-11-30T20:15:00Z", "input_length": 600, "output_length": 0, "hash_ids": 7})"
      "\r\n"
      R"({"input_length": 7, "output_length": 1})");
  ASSERT_TRUE(json.has_value()) << json.error().message;
  EXPECT_EQ(seen_, (Seen{{100, 20}, {600, 0}, {7, 1}}));
  const Status csv =
      read("\xef\xbb\xbfwhen, output_length ,input_length,timestamp\nnow,20,100,x\nthen, 1 , 2,\n");
  ASSERT_TRUE(csv.has_value()) << csv.error().message;
  EXPECT_EQ(seen_, (Seen{{100, 20}, {2, 1}}));
}

TEST_F(TraceLengths, AreThoseOfTheWholeTrace) {
  const std::string path =
      std::string(PAGEWISE_SOURCE_DIR) + "/tests/data/traces/conversation_head.jsonl";
  const Trace trace = read_trace(path).value();
  std::size_t at = 0;
  const Status status = read_lengths(path, [&](const RequestLengths& request) {
    const TraceRequest& whole = trace.requests()[at++];
    EXPECT_EQ(request.input_tokens, whole.prompt_tokens);
    EXPECT_EQ(request.output_tokens, whole.output_tokens);
    return Status::ok();
  });
  EXPECT_TRUE(status.has_value());
  EXPECT_EQ(at, 100U);
}

TEST_F(TraceLengths, NameTheLineThatIsBrokenInTheWordsOfTheWholeTrace) {
  const std::string good = R"({"input_length": 1, "output_length": 1})"
                           "\n";
  const std::pair<std::string, std::string> cases[] = {
      {good + "\n" + R"({"input_length": 1})", "line 3: output_length is missing"},
      {good + R"({"input_length": -1, "output_length": 1})",
       "line 2: input_length: not a whole number from 0 to 9007199254740991"},
      {good + R"({"input_length": 1.5, "output_length": 1})",
       "line 2: input_length: not a whole number from 0 to 9007199254740991"},
      {good + "[1]", "line 2: not a JSON object"},
      {R"({"input_length": 0, "output_length": 0})",
       "line 1: input_length: 0 is not in 1 to 16777216 tokens"},
      {R"({"input_length": 1099511627776, "output_length": 0})",
       "line 1: input_length: 1099511627776 is not in 1 to 16777216 tokens"},
      {"a,b\n1,2\n",
       "line 1: no column 'input_length'; a CSV trace begins with a line of names: "
       "input_length,output_length"},
      {"input_length,output_length\n1\n", "line 2: fewer than 2 columns"},
      {"input_length,output_length\n1,x\n", "line 2: output_length: 'x' is not a whole number"},
      {"input_length,output_length\n", "no requests in it"},
      {"", "no requests in it"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(error_of(text), message) << text;
  EXPECT_TRUE(error_of(good + good + "{oops").starts_with("line 3: not valid JSON"));
}

TEST_F(TraceLengths, SayWhatTheAskerDoesNotTake) {
  const std::string path = folder_.write("trace", "input_length,output_length\n1,1\n2,1\n");
  const Status status = read_lengths(path, [&](const RequestLengths& request) {
    return request.input_tokens == 1 ? Status::ok() : Status(ErrorCode::kMalformed, "two");
  });
  EXPECT_EQ(status.error().message, path + ": line 3: two");
}

TEST_F(TraceLengths, AreNotLookedForInLinesWithoutEnd) {
  const std::string line = R"({"input_length": 1, "output_length": 1})";
  EXPECT_EQ(error_of(line + "\n" + std::string((16 << 20) + 1, ' ')),
            "line 2: longer than 16.0 MiB");
  EXPECT_TRUE(read(line + std::string((16 << 20) - line.size(), ' ') + "\n" + line).has_value());
  EXPECT_EQ(seen_.size(), 2U);
}

TEST_F(TraceLengths, NeedAFile) {
  const auto none = [](const RequestLengths&) { return Status::ok(); };
  EXPECT_EQ(read_lengths("/nonexistent", none).error().message,
            "/nonexistent: No such file or directory");
  EXPECT_NE(read_lengths(folder_.path(), none).error().message.find("a directory; give a trace"),
            std::string::npos);
  EXPECT_EQ(read_lengths("/proc/self/mem", none).error().message,
            "/proc/self/mem: Input/output error");
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
