// SPDX-License-Identifier: Apache-2.0
#include "telemetry/metrics.h"

#include <gtest/gtest.h>

#include <string>

namespace pagewise::telemetry {
namespace {

StaticInfo info() {
  StaticInfo info;
  info.model_name = "m";
  info.block_tokens = 32;
  info.blocks_pool = 100;
  info.context_max = 4096;
  info.kv_type = "f16";
  return info;
}

bool has_line(const std::string& text, const std::string& line) {
  return text.find(line + "\n") != std::string::npos;
}

TEST(Metrics, ShowsTheEnginesNumbersUnderVllmsNames) {
  Metrics metrics(info());
  EngineSnapshot now;
  now.blocks_pool = 100;
  now.blocks_live = 25;
  now.blocks_cached = 30;
  now.blocks_free = 45;
  now.requests_running = 2;
  now.prefix_query_tokens = 70;
  now.prefix_hit_tokens = 64;
  now.finished_length = 3;
  const std::string text = metrics.render(now);
  EXPECT_TRUE(has_line(text, "vllm:num_requests_running{model_name=\"m\"} 2")) << text;
  EXPECT_TRUE(has_line(text, "vllm:kv_cache_usage_perc{model_name=\"m\"} 0.25"));
  EXPECT_TRUE(has_line(text, "vllm:prefix_cache_queries_total{model_name=\"m\"} 70"));
  EXPECT_TRUE(has_line(text, "vllm:prefix_cache_hits_total{model_name=\"m\"} 64"));
  EXPECT_TRUE(
      has_line(text, "vllm:request_success_total{finished_reason=\"length\",model_name=\"m\"} 3"));
  EXPECT_TRUE(has_line(text, "pagewise_kv_blocks{model_name=\"m\",state=\"cached\"} 30"));
  EXPECT_TRUE(has_line(text, "pagewise_kv_pool_blocks{model_name=\"m\"} 100"));
  EXPECT_NE(text.find("block_size=\"32\""), std::string::npos);
  EXPECT_NE(text.find("num_gpu_blocks=\"100\""), std::string::npos);
}

TEST(Metrics, ShowsPredictedHitsOnceTheyAreKnown) {
  Metrics metrics(info());
  EngineSnapshot now;
  EXPECT_EQ(metrics.render(now).find("pagewise_cache_predicted_hit_ratio{"), std::string::npos);
  now.predicted_hits = {{0.5, 0.25}, {2, 0.75}};
  const std::string text = metrics.render(now);
  EXPECT_TRUE(
      has_line(text, "pagewise_cache_predicted_hit_ratio{memory=\"0.5x\",model_name=\"m\"} 0.25"))
      << text;
  EXPECT_TRUE(
      has_line(text, "pagewise_cache_predicted_hit_ratio{memory=\"2x\",model_name=\"m\"} 0.75"));
}

TEST(Metrics, ShowsWhereTheMemoryOfTheProcessGoes) {
  StaticInfo parts = info();
  parts.weight_bytes = 5000;
  parts.working_bytes = 700;
  Metrics metrics(parts);
  EngineSnapshot now;
  now.resident_bytes = 9000;
  const std::string text = metrics.render(now);
  EXPECT_TRUE(has_line(text, "pagewise_weight_bytes{model_name=\"m\"} 5000")) << text;
  EXPECT_TRUE(has_line(text, "pagewise_working_bytes{model_name=\"m\"} 700"));
  EXPECT_TRUE(has_line(text, "process_resident_memory_bytes{model_name=\"m\"} 9000"));
}

TEST(Metrics, ShowsEachGroupsPoolBesideTheSums) {
  StaticInfo two = info();
  two.tokens_held = 2048;
  two.groups = {{0, 98304}, {512, 491520}};
  Metrics metrics(two);
  EngineSnapshot now;
  now.blocks_pool = 100;
  now.groups = {{64, 10, 20, 34, 33, 34}, {36, 17, 19, 0, 17, 33}};
  const std::string text = metrics.render(now);
  const auto line = [](std::string_view name, std::string_view labels, std::string_view value) {
    return std::string(name) + "{" + std::string(labels) + "} " + std::string(value);
  };
  for (const std::string& expected : {
           line("pagewise_kv_group_pool_blocks", R"(group="1",model_name="m",window="512")", "36"),
           line("pagewise_kv_group_block_bytes", R"(group="0",model_name="m",window="0")", "98304"),
           line("pagewise_kv_group_blocks", R"(group="0",model_name="m",state="cached",window="0")",
                "20"),
           line("pagewise_kv_group_blocks", R"(group="1",model_name="m",state="live",window="512")",
                "17"),
           line("pagewise_kv_sequence_blocks_max",
                R"(group="1",model_name="m",when="step",window="512")", "33"),
           line("pagewise_kv_sequence_blocks_max",
                R"(group="1",model_name="m",when="rest",window="512")", "17"),
       }) {
    EXPECT_TRUE(has_line(text, expected)) << expected << "\n" << text;
  }
  EXPECT_NE(text.find("kv_cache_size_tokens=\"2048\""), std::string::npos);
}

TEST(Metrics, CountersFollowTotalsAndNeverGoBack) {
  Metrics metrics(info());
  EngineSnapshot now;
  now.prompt_tokens = 10;
  EXPECT_TRUE(has_line(metrics.render(now), "vllm:prompt_tokens_total{model_name=\"m\"} 10"));
  EXPECT_TRUE(has_line(metrics.render(now), "vllm:prompt_tokens_total{model_name=\"m\"} 10"));
  now.prompt_tokens = 25;
  EXPECT_TRUE(has_line(metrics.render(now), "vllm:prompt_tokens_total{model_name=\"m\"} 25"));
  now.prompt_tokens = 5;
  EXPECT_TRUE(has_line(metrics.render(now), "vllm:prompt_tokens_total{model_name=\"m\"} 25"));
}

TEST(Metrics, CountsAFinishedRequestInEveryHistogramItReached) {
  Metrics metrics(info());
  RequestSample sample;
  sample.queue_s = 0.001;
  sample.prefill_s = 0.05;
  sample.first_token_s = 0.051;
  sample.total_s = 0.4;
  sample.prompt_tokens = 200;
  sample.completion_tokens = 10;
  metrics.observe_request(sample);
  RequestSample cancelled;  // left while it waited
  metrics.observe_request(cancelled);
  metrics.observe_tokens(0.3, 3);
  const std::string text = metrics.render({});
  EXPECT_TRUE(has_line(text, "vllm:time_to_first_token_seconds_count{model_name=\"m\"} 1")) << text;
  EXPECT_TRUE(
      has_line(text, "vllm:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"0.06\"} 1"));
  EXPECT_TRUE(has_line(text, "vllm:e2e_request_latency_seconds_count{model_name=\"m\"} 1"));
  EXPECT_TRUE(has_line(text, "vllm:request_prompt_tokens_count{model_name=\"m\"} 2"));
  EXPECT_TRUE(has_line(text, "vllm:inter_token_latency_seconds_count{model_name=\"m\"} 3"));
}

TEST(Metrics, CountsHttpAnswersByRouteAndStatus) {
  Metrics metrics(info());
  metrics.count_http("messages", 200);
  metrics.count_http("messages", 200);
  metrics.count_http("messages", 529);
  const std::string text = metrics.render({});
  EXPECT_TRUE(has_line(
      text, "pagewise_http_requests_total{model_name=\"m\",route=\"messages\",status=\"200\"} 2"))
      << text;
  EXPECT_TRUE(has_line(
      text, "pagewise_http_requests_total{model_name=\"m\",route=\"messages\",status=\"529\"} 1"));
}

}  // namespace
}  // namespace pagewise::telemetry
