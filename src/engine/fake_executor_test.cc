// SPDX-License-Identifier: Apache-2.0
// The fake must catch what it is for: a canary for each way of reading the wrong KV.
#include "engine/fake_executor.h"

#include <gtest/gtest.h>

#include <array>

namespace pagewise::engine {
namespace {

std::vector<TokenId> tokens(std::initializer_list<int32_t> ids) {
  std::vector<TokenId> result;
  for (const int32_t id : ids) result.push_back(TokenId(id));
  return result;
}

class FakeExecutorTest : public testing::Test {
 protected:
  FakeExecutorTest() : executor_({.block_tokens = 2, .windows = {0}, .blocks = 8}) {
    const std::array<BlockId, 4> all = {BlockId(0), BlockId(1), BlockId(2), BlockId(3)};
    EXPECT_TRUE(executor_.commit(0, all).has_value());
  }
  /// One run; the last row's logits.
  std::vector<float> run(const std::vector<TokenId>& input, uint32_t position,
                         const std::vector<BlockId>& table) {
    const std::span<const BlockId> view = table;
    const auto last = static_cast<uint32_t>(input.size() - 1);
    const model::StepRun step{input, position, std::span(&view, 1), std::span(&last, 1)};
    const auto logits = executor_.step(std::span(&step, 1));
    EXPECT_TRUE(logits.has_value());
    return {logits->row(0).begin(), logits->row(0).end()};
  }
  bool violated(const char* words) const {
    for (const std::string& violation : executor_.violations()) {
      if (violation.find(words) != std::string::npos) return true;
    }
    return false;
  }

  FakeExecutor executor_;
  const BlockId a_{0}, b_{1}, c_{2}, d_{3}, uncommitted_{6};
};

TEST_F(FakeExecutorTest, LogitsDependOnThePrefixAloneHoweverItWasCut) {
  const auto whole = run(tokens({5, 6, 7}), 0, {a_, b_});
  (void)run(tokens({5}), 0, {c_, d_});
  (void)run(tokens({6}), 1, {c_, d_});
  EXPECT_EQ(run(tokens({7}), 2, {c_, d_}), whole);
  EXPECT_EQ(executor_.logits_after(tokens({5, 6, 7})), whole);
  EXPECT_NE(executor_.logits_after(tokens({6, 5, 7})), whole);
  EXPECT_TRUE(executor_.violations().empty());
}

TEST_F(FakeExecutorTest, CatchesAReadOfWhatWasNeverWritten) {
  (void)run(tokens({5}), 0, {a_, b_});
  (void)run(tokens({7}), 2, {a_, b_});
  EXPECT_TRUE(violated("before it was written"));
}

TEST_F(FakeExecutorTest, CatchesABlockOfAnotherPrefix) {
  (void)run(tokens({5, 6}), 0, {a_});
  (void)run(tokens({5, 9, 8, 8}), 0, {b_, c_});
  (void)run(tokens({7}), 4, {a_, c_, d_});
  EXPECT_TRUE(violated("another prefix"));
}

TEST_F(FakeExecutorTest, CatchesABlockThatIsNotCommitted) {
  (void)run(tokens({5, 6, 7}), 0, {a_, uncommitted_});
  EXPECT_TRUE(violated("does not hold"));
}

TEST_F(FakeExecutorTest, CatchesABlockThatWasGivenBack) {
  (void)run(tokens({5, 6}), 0, {a_});
  executor_.release(0, std::array{a_});
  (void)run(tokens({7}), 2, {a_, b_});
  EXPECT_TRUE(violated("does not hold"));
}

TEST_F(FakeExecutorTest, CatchesAMissingCopyOnWrite) {
  (void)run(tokens({5}), 0, {a_});
  (void)run(tokens({6}), 1, {a_});
  (void)run(tokens({7}), 1, {a_});
  EXPECT_TRUE(violated("overwrites"));
}

TEST_F(FakeExecutorTest, CatchesAReadOfWhatTheSameStepWrites) {
  const std::vector<TokenId> first = tokens({5, 6});
  const std::vector<TokenId> second = tokens({7});
  const std::vector<BlockId> table = {a_, b_};
  const std::span<const BlockId> view = table;
  const std::array runs = {model::StepRun{first, 0, std::span(&view, 1), {}},
                           model::StepRun{second, 2, std::span(&view, 1), {}}};
  (void)executor_.step(runs);
  EXPECT_TRUE(violated("before it was written"));
}

TEST_F(FakeExecutorTest, CopiesOnlyWhatWasWritten) {
  (void)run(tokens({5}), 0, {a_});
  executor_.copy(0, a_, b_, 1);
  EXPECT_EQ(run(tokens({6}), 1, {b_}), executor_.logits_after(tokens({5, 6})));
  EXPECT_TRUE(executor_.violations().empty());
  executor_.copy(0, a_, c_, 2);
  EXPECT_TRUE(violated("unwritten"));
}

TEST_F(FakeExecutorTest, AnExportedBlockServesElsewhere) {
  (void)run(tokens({5, 6}), 0, {a_});
  std::vector<std::byte> bytes(executor_.geometry().block_bytes(0));
  executor_.export_block(0, a_, bytes);
  executor_.release(0, std::array{a_});
  executor_.import_block(0, c_, bytes);
  EXPECT_EQ(run(tokens({7}), 2, {c_, d_}), executor_.logits_after(tokens({5, 6, 7})));
  EXPECT_TRUE(executor_.violations().empty());
}

TEST(FakeExecutor, SlidingGroupsReadOnlyTheirWindow) {
  FakeExecutor executor({.block_tokens = 2, .windows = {0, 2}, .blocks = 8});
  const std::vector<BlockId> full = {BlockId(0), BlockId(1), BlockId(2)};
  std::vector<BlockId> sliding = {BlockId(3), BlockId(4), BlockId(5)};
  for (const auto& [group, ids] : {std::pair(0U, full), std::pair(1U, sliding)}) {
    ASSERT_TRUE(executor.commit(group, ids).has_value());
  }
  const auto run = [&](const std::vector<TokenId>& input, uint32_t position) {
    const std::array<std::span<const BlockId>, 2> tables = {full, sliding};
    const auto last = static_cast<uint32_t>(input.size() - 1);
    const model::StepRun step{input, position, tables, std::span(&last, 1)};
    return executor.step(std::span(&step, 1)).value();
  };
  (void)run(tokens({5, 6, 7}), 0);
  sliding[0] = BlockId();  // behind the window of position 3
  (void)run(tokens({8}), 3);
  EXPECT_TRUE(executor.violations().empty()) << executor.violations()[0];
  sliding[1] = BlockId();  // position 4 sees 3
  (void)run(tokens({9}), 4);
  EXPECT_FALSE(executor.violations().empty());
}

}  // namespace
}  // namespace pagewise::engine
