// SPDX-License-Identifier: Apache-2.0
#include "planner/device.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "planner/plan.h"

namespace pagewise::planner {
namespace {

Layout grouped_heads(uint32_t kv_heads) {
  return {.groups = {{.layers = 32, .kv_heads = kv_heads, .key_dim = 128, .value_dim = 128}}};
}

DeviceInput device(std::string_view engine, uint64_t bytes, uint32_t devices = 1) {
  return {.device_bytes = bytes, .devices = devices, .engine = find_engine_rule(engine)};
}

DevicePlan plan_of(const DeviceInput& input, const Layout& layout, uint64_t weights) {
  const auto plan = plan_device(input, layout, weights);
  EXPECT_TRUE(plan.has_value()) << plan.error().message;
  return *plan;
}

std::string error_of(const DeviceInput& input, uint32_t kv_heads = 8) {
  const auto plan = plan_device(input, grouped_heads(kv_heads), kGiB);
  return plan.has_value() ? "(planned)" : plan.error().message;
}

TEST(Device, IsDividedByEachEnginesOwnRule) {
  const Layout layout = grouped_heads(8);
  const DevicePlan own = plan_of(device("pagewise", 24 * kGiB), layout, 15 * kGiB);
  EXPECT_EQ(own.kv_bytes, (24 * kGiB - 15 * kGiB - 128 * kMiB) / 2);
  const DevicePlan vllm = plan_of(device("vllm", 25 * kGiB), layout, 15 * kGiB);
  EXPECT_EQ(vllm.usable_bytes, 23 * kGiB);
  EXPECT_EQ(vllm.kv_bytes, 8 * kGiB);
  const DevicePlan llama = plan_of(device("llama.cpp", 24 * kGiB, 2), layout, 15 * kGiB);
  EXPECT_EQ(llama.usable_bytes, 46 * kGiB);
  EXPECT_EQ(llama.kv_bytes, 31 * kGiB);
}

TEST(Device, HoldsNoKvWhenTheWeightsDoNotFit) {
  EXPECT_EQ(plan_of(device("vllm", 10 * kGiB), grouped_heads(8), 15 * kGiB).kv_bytes, 0u);
  EXPECT_EQ(plan_of(device("pagewise", kMiB), grouped_heads(8), 0).kv_bytes, 0u);
}

TEST(Device, CountsCopiesOfHeadsOnSeveralDevicesOnce) {
  const uint64_t free = plan_of(device("vllm", 25 * kGiB, 4), grouped_heads(8), 4 * kGiB).kv_bytes;
  EXPECT_EQ(free, 4 * 23 * kGiB - 4 * kGiB);
  const auto distinct = [&](uint32_t kv_heads) {
    return plan_of(device("vllm", 25 * kGiB, 4), grouped_heads(kv_heads), 4 * kGiB)
        .kv_bytes_distinct;
  };
  EXPECT_EQ(distinct(8), free);
  EXPECT_EQ(distinct(2), free / 2);
  EXPECT_EQ(distinct(1), free / 4);  // latent rows, too: every device needs them
}

TEST(Device, TakesAnotherShareAndWorkingMemoryWhereTheyAreTold) {
  DeviceInput input = device("vllm", 20 * kGiB);
  input.share = 0.5;
  input.working_bytes = kGiB;
  EXPECT_EQ(plan_of(input, grouped_heads(8), 4 * kGiB).kv_bytes, 5 * kGiB);
  input = device("pagewise", 20 * kGiB);
  input.share = 1;
  EXPECT_EQ(plan_of(input, grouped_heads(8), 4 * kGiB).kv_bytes, 16 * kGiB - 128 * kMiB);
}

TEST(Device, NamesTheFlagThatMakesNoSense) {
  EXPECT_EQ(error_of(device("pagewise", kGiB, 2)), "--devices: pagewise uses one machine's memory");
  EXPECT_EQ(error_of(device("vllm", kGiB, 3)),
            "--devices: 8 KV heads do not divide among 3 devices");
  EXPECT_EQ(error_of(device("vllm", 0)), "--device-memory: 0 bytes hold nothing");
  EXPECT_EQ(error_of(device("vllm", uint64_t{1} << 62, 2)),
            "--device-memory: all devices together exceed 2^62 bytes");
  DeviceInput input = device("vllm", kGiB);
  for (const double share : {0.0, -1.0, 1.5}) {
    input.share = share;
    EXPECT_NE(error_of(input).find("--utilization: "), std::string::npos);
  }
}

TEST(Device, EveryEngineNamesItsSource) {
  for (const EngineRule& rule : engine_rules()) {
    EXPECT_FALSE(rule.source.empty()) << rule.name;
    EXPECT_FALSE(rule.note.empty()) << rule.name;
    EXPECT_GT(rule.block_tokens, 0u) << rule.name;
    EXPECT_EQ(find_engine_rule(rule.name), &rule);
  }
  EXPECT_EQ(find_engine_rule("other"), nullptr);
}

PlanInput eight_billion() {
  PlanInput input;
  input.layout = grouped_heads(8);
  input.key_format = input.value_format = find_kv_format("f16");
  input.weight_bytes = 15 * kGiB;
  return input;
}

TEST(Device, GivesThePlanItsMemoryAndItsBlocks) {
  PlanInput input = eight_billion();
  input.tokens = {8192};
  ASSERT_TRUE(apply_device(input, device("vllm", 25 * kGiB), false));
  EXPECT_EQ(input.memory, 8 * kGiB);
  EXPECT_EQ(input.block_tokens, 16u);
  const auto plan = make_plan(input);
  // 128 KiB a token: 1 GiB a sequence of 8k.
  EXPECT_EQ(plan->rows[0].sequences_max, 8u);
  EXPECT_EQ(plan->fits, true);
  PlanInput told = eight_billion();
  told.block_tokens = 64;
  ASSERT_TRUE(apply_device(told, device("vllm", 25 * kGiB), true));
  EXPECT_EQ(told.block_tokens, 64u);
}

TEST(Device, ThatIsTooSmallIsMultipliedUntilItIsNot) {
  PlanInput input = eight_billion();
  input.tokens = {8192};
  input.batches = {32};
  ASSERT_TRUE(apply_device(input, device("vllm", 25 * kGiB), false));
  const auto plan = make_plan(input);
  EXPECT_EQ(plan->fits, false);
  ASSERT_FALSE(plan->fixes.empty());
  // 32 GiB of KV: 2 x 23 - 15 is one too few, 4 x 23 - 15 is enough.
  EXPECT_EQ(plan->fixes.back().fix, "4 devices of 25.0 GiB");
  EXPECT_EQ(plan->fixes.back().effect, "77.0 GiB of KV >= 32.0 GiB");

  PlanInput none = eight_billion();
  none.tokens = {8192};
  ASSERT_TRUE(apply_device(none, device("vllm", 10 * kGiB), false));
  EXPECT_EQ(none.memory, 0u);
  const auto nothing = make_plan(none);
  ASSERT_TRUE(nothing.has_value()) << nothing.error().message;
  EXPECT_EQ(nothing->fits, false);
  EXPECT_EQ(nothing->rows[0].sequences_max, 0u);
  EXPECT_EQ(nothing->fixes.back().fix, "a second device of 10.0 GiB");
}

TEST(Device, NeedsALayoutItsWeightsAndNoOtherMemory) {
  PlanInput input = eight_billion();
  input.memory = kGiB;
  EXPECT_NE(apply_device(input, device("vllm", kGiB), false).error().message.find("--memory says"),
            std::string::npos);
  input = eight_billion();
  input.weight_bytes.reset();
  EXPECT_NE(apply_device(input, device("vllm", kGiB), false).error().message.find("give --weights"),
            std::string::npos);
  input.layout.reset();
  EXPECT_NE(apply_device(input, device("vllm", kGiB), false).error().message.find("a layout"),
            std::string::npos);
}

}  // namespace
}  // namespace pagewise::planner
