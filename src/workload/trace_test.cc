// SPDX-License-Identifier: Apache-2.0
#include "workload/trace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pagewise::workload {
namespace {

std::size_t common(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

Trace trace_of(const std::vector<std::vector<Piece>>& prompts) {
  Trace trace;
  for (const std::vector<Piece>& pieces : prompts) trace.add(0, pieces, 1);
  return trace;
}

TEST(Trace, PromptsShareTheTokensOfEqualPiecesAtTheirFront) {
  const Trace trace = trace_of({{{1, 512}, {2, 100}}, {{1, 512}, {3, 100}}, {{4, 512}, {2, 100}}});
  std::vector<std::vector<TokenId>> prompts;
  for (const TraceRequest& request : trace.requests()) {
    prompts.push_back(trace.prompt(request));
    EXPECT_EQ(prompts.back().size(), 612U);
    for (const TokenId token : prompts.back()) {
      EXPECT_GT(token.value, kAnswerToken.value);
      EXPECT_LT(token.value, static_cast<int32_t>(kVocabSize));
    }
  }
  EXPECT_EQ(common(prompts[0], prompts[1]), 512U);
  EXPECT_EQ(common(prompts[0], prompts[2]), 0U);
}

TEST(Trace, DifferentIdsDifferWithinTheirFirstFourTokens) {
  constexpr uint32_t kDigit = kVocabSize - 1;
  const uint32_t ids[] = {
      1, 2, kDigit, kDigit + 1, 1 + kDigit * kDigit, kDigit * kDigit * kDigit + 1, 4'000'000'000};
  std::vector<std::vector<TokenId>> seen;
  for (const uint32_t id : ids) {
    const Trace trace = trace_of({{{id, 8}}});
    seen.push_back(trace.prompt(trace.requests()[0]));
    for (std::size_t i = 0; i + 1 < seen.size(); ++i) {
      EXPECT_LT(common(seen.back(), seen[i]), 4U) << id;
    }
  }
}

TEST(Trace, AnAnswerInAPromptIsWhatTheModelSays) {
  const Trace trace = trace_of({{{7, 20}, {kAnswerPiece, 5}, {8, 3}}});
  const std::vector<TokenId> prompt = trace.prompt(trace.requests()[0]);
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    EXPECT_EQ(prompt[i] == kAnswerToken, i >= 20 && i < 25) << i;
  }
}

TEST(Trace, IsCutToARangeScaledAndSpedUp) {
  Trace trace;
  for (uint32_t i = 0; i < 10; ++i) {
    const std::vector<Piece> pieces = {{1, 512}, {2 + i, 100 + i}};
    trace.add(i * TimeNs{1'000'000'000}, pieces, i);
  }
  const Trace part = changed(trace, {3, 7, 16, 2}).value();
  ASSERT_EQ(part.requests().size(), 4U);
  for (uint32_t i = 0; i < 4; ++i) {
    const TraceRequest& request = part.requests()[i];
    EXPECT_EQ(request.arrival_ns, i * TimeNs{500'000'000});
    EXPECT_EQ(part.pieces(request)[0], (Piece{1, 32}));
    EXPECT_EQ(part.pieces(request)[1], (Piece{5 + i, 7}));
    EXPECT_EQ(request.prompt_tokens, 39U);
    EXPECT_EQ(request.output_tokens, 1U);
  }
  EXPECT_EQ(part.prompt_tokens(), 4U * 39);
  EXPECT_EQ(part.output_tokens(), 4U);
}

TEST(Trace, RefusesRangesWithoutRequestsAndArrivalsThatNeverCome) {
  Trace trace;
  const std::vector<Piece> pieces = {{1, 1}};
  trace.add(0, pieces, 1);
  trace.add(TimeNs{1} << 50, pieces, 1);
  EXPECT_EQ(changed(trace, {2, UINT64_MAX, 1, 1}).error().message,
            "there is no request from 2 on: the trace has 2");
  EXPECT_EQ(changed(trace, {0, UINT64_MAX, 1, 1e-4}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(changed(trace, {0, UINT64_MAX, 1, 1}).has_value());
}

}  // namespace
}  // namespace pagewise::workload
