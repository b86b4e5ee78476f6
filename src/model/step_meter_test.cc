// SPDX-License-Identifier: Apache-2.0
#include "model/step_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "gguf/test_writer.h"
#include "model/cpu_executor.h"
#include "model/passing_executor_for_tests.h"
#include "model/spec.h"
#include "model/test_gguf.h"

namespace pagewise::model {
namespace {

/// Passes everything on, and keeps what the last step was asked and how often it was.
class Watched final : public PassingExecutor {
 public:
  Watched(Executor& inner, SimClock& clock) : PassingExecutor(inner), clock_(clock) {}
  Result<LogitsView> step(std::span<const StepRun> runs) override {
    shapes.clear();
    tables.clear();
    logits_rows = 0;
    for (const StepRun& run : runs) {
      shapes.push_back({static_cast<uint32_t>(run.tokens.size()), run.position});
      for (const auto& table : run.tables) tables.emplace_back(table.begin(), table.end());
      logits_rows += run.logits_rows.size();
    }
    clock_.advance(1000 * static_cast<TimeNs>(++steps));
    return PassingExecutor::step(runs);
  }
  void copy(uint32_t group, BlockId from, BlockId to, uint32_t positions) override {
    ++copies;
    PassingExecutor::copy(group, from, to, positions);
  }

  std::vector<RunShape> shapes;
  std::vector<std::vector<BlockId>> tables;  // [run * groups + group]
  std::size_t logits_rows = 0;
  int steps = 0, copies = 0;

 private:
  SimClock& clock_;
};

/// A small random model with full layers and layers with a window of 40, on two threads.
class StepMeterTest : public ::testing::Test {
 protected:
  void open(uint32_t blocks) {
    testing::LlamaShape shape;
    shape.gemma3 = true;
    shape.sliding_window = 40;
    shape.layers = 7;
    const testing::ModelFile made = testing::llama_model(shape);
    on_disk_.emplace(made.bytes());
    auto file = gguf::File::open(on_disk_->path());
    ASSERT_TRUE(file.has_value()) << file.error().message;
    const ModelSpec spec = spec_from_gguf(**file).value();
    const kv::Geometry geometry = make_geometry(spec, 16, KvType::kF16, KvType::kF16).value();
    ASSERT_EQ(geometry.groups.size(), 2U);
    CpuExecutorOptions options;
    options.threads = 2;
    options.blocks.assign(2, blocks);
    options.step_tokens_max = 100;
    options.step_runs_max = 8;
    options.context_max = 700;
    auto executor = CpuExecutor::create(**file, spec, geometry, options);
    ASSERT_TRUE(executor.has_value()) << executor.error().message;
    executor_ = std::move(*executor);
    watched_ = std::make_unique<Watched>(*executor_, clock_);
  }
  uint32_t group_with_window() const { return executor_->geometry().groups[0].window > 0 ? 0 : 1; }

  std::optional<gguf::testing::TempFile> on_disk_;
  std::unique_ptr<CpuExecutor> executor_;
  SimClock clock_;
  std::unique_ptr<Watched> watched_;
};

TEST_F(StepMeterTest, TimesOneStepOfTheRunsThatWereAsked) {
  open(60);
  uint32_t rows = 0;
  StepMeter meter(*watched_, clock_, [&](const LogitsView& logits) {
    rows = logits.rows;
    clock_.advance(7);
  });
  ASSERT_TRUE(meter.fill().has_value());
  const int before = watched_->steps;
  const std::vector<RunShape> runs = {{1, 300}, {1, 0}, {30, 200}};
  const Result<TimeNs> ns = meter.measure(runs);
  ASSERT_TRUE(ns.has_value()) << ns.error().message;
  EXPECT_EQ(watched_->steps, before + 1);
  EXPECT_EQ(*ns, 1000 * watched_->steps + 7);  // with what is done behind the step
  EXPECT_EQ(rows, 3U);
  EXPECT_EQ(watched_->logits_rows, 3U);
  ASSERT_EQ(watched_->shapes.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(watched_->shapes[i].tokens, runs[i].tokens);
    EXPECT_EQ(watched_->shapes[i].position, runs[i].position);
  }
}

TEST_F(StepMeterTest, EveryRunHasBlocksOfItsOwnAndNoneBehindAWindow) {
  open(60);
  StepMeter meter(*watched_, clock_);
  ASSERT_TRUE(meter.fill().has_value());
  const std::vector<RunShape> runs = {{1, 300}, {1, 300}, {20, 150}};
  ASSERT_TRUE(meter.measure(runs).has_value());
  for (uint32_t g = 0; g < 2; ++g) {
    std::set<uint32_t> seen;
    uint64_t blocks = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::vector<BlockId>& table = watched_->tables[2 * i + g];
      EXPECT_EQ(table.size(), (runs[i].position + runs[i].tokens + 15) / 16);
      const uint32_t window = executor_->geometry().groups[g].window;
      for (std::size_t b = 0; b < table.size(); ++b) {
        const bool is_read = window == 0 || (b + 1) * 16 > runs[i].position + 1 - window;
        EXPECT_EQ(table[b].valid(), is_read) << "block " << b << " of run " << i;
        if (!table[b].valid()) continue;
        ++blocks;
        EXPECT_TRUE(seen.insert(table[b].value).second) << "shared";
      }
    }
    EXPECT_EQ(blocks, blocks_needed(executor_->geometry(), runs, g));
  }
  EXPECT_LT(blocks_needed(executor_->geometry(), runs, group_with_window()), 20U);
}

TEST_F(StepMeterTest, ContextIsCopiedOnceAndHoldsRealKeysAndValues) {
  open(60);
  StepMeter meter(*watched_, clock_);
  ASSERT_TRUE(meter.fill().has_value());
  const std::vector<RunShape> runs = {{1, 600}};
  ASSERT_TRUE(meter.measure(runs).has_value());
  const int copies = watched_->copies;
  EXPECT_GT(copies, 20);
  ASSERT_TRUE(meter.measure(runs).has_value());
  EXPECT_EQ(watched_->copies, copies);
  const uint32_t full = 1 - group_with_window();
  for (const BlockId block : watched_->tables[full]) {
    std::vector<std::byte> bytes(executor_->geometry().block_bytes(full));
    executor_->export_block(full, block, bytes);
    const auto zeros = std::count(bytes.begin(), bytes.end(), std::byte{0});
    EXPECT_LT(zeros, static_cast<std::ptrdiff_t>(bytes.size() / 4)) << "block " << block.value;
  }
}

TEST_F(StepMeterTest, KnowsWhatDoesNotFit) {
  open(40);
  const StepMeter meter(*watched_, clock_);
  const auto fits = [&](std::vector<RunShape> runs) { return meter.fits(runs); };
  EXPECT_TRUE(fits({{1, 600}}));
  EXPECT_FALSE(fits({{1, 640}}));            // 41 blocks of a group that has 40
  EXPECT_FALSE(fits({{1, 320}, {1, 319}}));  // together
  EXPECT_TRUE(fits({{1, 303}, {1, 303}}));
  EXPECT_FALSE(fits({{1, 700}}));  // context
  EXPECT_FALSE(fits({{101, 0}}));  // tokens of a step
  EXPECT_FALSE(fits({{60, 0}, {41, 0}}));
  EXPECT_FALSE(fits(std::vector<RunShape>(9, RunShape{1, 0})));  // runs of a step
  EXPECT_FALSE(fits({{0, 5}}));
  EXPECT_FALSE(fits({}));
}

}  // namespace
}  // namespace pagewise::model
