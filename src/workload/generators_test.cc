// SPDX-License-Identifier: Apache-2.0
#include "workload/generators.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace pagewise::workload {
namespace {

constexpr std::string_view kKinds[] = {"chat", "agent", "rag", "batch", "scan", "mix"};

/// Prompt tokens that an earlier request of the trace had, too, behind the same beginning.
double share_seen_before(const Trace& trace) {
  std::set<std::vector<std::pair<uint32_t, uint32_t>>> seen;
  uint64_t again = 0;
  for (const TraceRequest& request : trace.requests()) {
    std::vector<std::pair<uint32_t, uint32_t>> prefix;
    for (const Piece& piece : trace.pieces(request)) {
      prefix.emplace_back(piece.id, piece.tokens);
      if (!seen.insert(prefix).second) again += piece.tokens;
    }
    prefix.emplace_back(kAnswerPiece, request.output_tokens);
    seen.insert(prefix);
  }
  return static_cast<double>(again) / static_cast<double>(trace.prompt_tokens());
}

TEST(Generators, EqualSeedsGiveEqualTracesAndOthersGiveOthers) {
  for (const std::string_view kind : kKinds) {
    SCOPED_TRACE(std::string(kind));
    const Trace a = generate(kind, {500, 7, 2}).value();
    const Trace b = generate(kind, {500, 7, 2}).value();
    const Trace c = generate(kind, {500, 8, 2}).value();
    ASSERT_EQ(a.requests().size(), 500U);
    bool differs = false;
    for (std::size_t i = 0; i < a.requests().size(); ++i) {
      EXPECT_EQ(a.requests()[i].arrival_ns, b.requests()[i].arrival_ns);
      EXPECT_TRUE(std::ranges::equal(a.pieces(a.requests()[i]), b.pieces(b.requests()[i])));
      differs = differs || a.requests()[i].prompt_tokens != c.requests()[i].prompt_tokens;
    }
    EXPECT_TRUE(differs);
  }
}

TEST(Generators, RequestsComeAtTheRateThatWasAskedFor) {
  for (const std::string_view kind : kKinds) {
    SCOPED_TRACE(std::string(kind));
    const Trace trace = generate(kind, {20'000, 3, 5}).value();
    const double span_s = static_cast<double>(trace.requests().back().arrival_ns) / 1e9;
    EXPECT_NEAR(20'000 / span_s, 5, 1.5);
  }
}

TEST(Generators, EachKindRepeatsWhatItsWorkRepeats) {
  const std::map<std::string_view, std::pair<double, double>> shares = {
      {"chat", {0.6, 0.99}}, {"agent", {0.8, 0.99}}, {"rag", {0.97, 1}},
      {"batch", {0.2, 0.6}}, {"scan", {0.02, 0.4}},  {"mix", {0.5, 0.99}}};
  for (const auto& [kind, bounds] : shares) {
    const double share = share_seen_before(generate(kind, {5'000, 1, 1}).value());
    EXPECT_GT(share, bounds.first) << kind;
    EXPECT_LT(share, bounds.second) << kind;
  }
}

TEST(Generators, AConversationsNextPromptBeginsWithItsLastOneAndTheAnswer) {
  const Trace trace = generate("chat", {200, 5, 1}).value();
  std::size_t continued = 0;
  for (std::size_t i = 0; i < trace.requests().size(); ++i) {
    const std::span<const Piece> pieces = trace.pieces(trace.requests()[i]);
    if (pieces.size() < 4) continue;
    for (std::size_t j = 0; j < i; ++j) {
      const std::span<const Piece> before = trace.pieces(trace.requests()[j]);
      if (before.size() + 2 != pieces.size() ||
          !std::ranges::equal(before, pieces.first(before.size()))) {
        continue;
      }
      const Piece answer = {kAnswerPiece, trace.requests()[j].output_tokens};
      EXPECT_EQ(pieces[before.size()], answer);
      ++continued;
    }
  }
  EXPECT_GT(continued, 50U);
}

TEST(Generators, RefuseByName) {
  EXPECT_EQ(generate("chta", {}).error().message,
            "'chta' is no kind of trace; known: chat, agent, rag, batch, scan, mix");
  EXPECT_FALSE(generate("chat", {0, 1, 1}).has_value());
  EXPECT_FALSE(generate("chat", {kGeneratedRequestsMax + 1, 1, 1}).has_value());
  EXPECT_FALSE(generate("chat", {1, 1, 0}).has_value());
}

}  // namespace
}  // namespace pagewise::workload
