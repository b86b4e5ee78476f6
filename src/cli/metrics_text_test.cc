// SPDX-License-Identifier: Apache-2.0
#include "cli/metrics_text.h"

#include <gtest/gtest.h>

#include "telemetry/metrics.h"

namespace pagewise::cli {
namespace {

TEST(MetricsText, ReadsNumbersAndLabels) {
  const MetricsText text(
      "# HELP up Whether.\n# TYPE up gauge\nup 1\n"
      "blocks{group=\"0\",state=\"live\"} 3\nblocks{group=\"1\",state=\"live\"} 4.5e+02\n"
      "odd{name=\"a}b\\\"c\"} 7\nbroken{ 5\nempty \n");
  EXPECT_EQ(text.value("up"), 1.0);
  EXPECT_FALSE(text.value("blocks").has_value());
  const auto blocks = text.find("blocks");
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[1].labels.at("group"), "1");
  EXPECT_EQ(blocks[1].value, 450.0);
  EXPECT_EQ(text.find("odd").front().labels.at("name"), "a}b\"c");
  EXPECT_FALSE(text.value("empty").has_value());
  EXPECT_FALSE(text.value("none").has_value());
}

TEST(MetricsText, ReadsBackWhatTheServerWrites) {
  telemetry::StaticInfo info;
  info.model_name = "a \"model\"";
  info.block_tokens = 32;
  info.weight_bytes = 123456789;
  info.groups = {{0, 98304}, {512, 491520}};
  telemetry::Metrics metrics(info);
  const MetricsText text(metrics.render({}));
  EXPECT_EQ(text.value("pagewise_weight_bytes"), 123456789.0);
  EXPECT_EQ(text.find("pagewise_kv_group_block_bytes").size(), 2u);
  EXPECT_EQ(text.find("vllm:cache_config_info").front().labels.at("block_size"), "32");
}

}  // namespace
}  // namespace pagewise::cli
