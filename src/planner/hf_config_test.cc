// SPDX-License-Identifier: Apache-2.0
// The families of docs/capacity.md. Every number names where it comes from: the config.json that
// was published with a model, or the defaults of a configuration class in transformers 5.24
// (models/TYPE/configuration_TYPE.py).
#include "planner/hf_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/prng.h"
#include "base/temp_folder_testing.h"
#include "planner/hf_families.h"
#include "planner/kv_cost.h"

namespace pagewise::planner {
namespace {

Result<Layout> read(std::string_view text) { return layout_from_config(text, "config.json"); }

std::string error_of(std::string_view text) {
  const auto layout = read(text);
  if (layout.has_value()) return "(read)";
  EXPECT_TRUE(layout.error().message.starts_with("config.json: ")) << layout.error().message;
  EXPECT_EQ(layout.error().message.find('\n'), std::string::npos);
  return layout.error().message.substr(std::string_view("config.json: ").size());
}

struct FamilyCase {
  std::string_view name;
  std::string_view source;
  std::string_view config;
  std::vector<LayoutGroup> groups;
  uint64_t token_bytes;  // f16
  std::vector<StateGroup> states = {};
  uint32_t layers_sharing = 0;
};

std::ostream& operator<<(std::ostream& out, const FamilyCase& c) {
  return out << c.name << " (" << c.source << ")";
}

const FamilyCase kCases[] = {
    {"Llama 2 7B",
     "config.json of meta-llama/Llama-2-7b-hf",
     R"({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096})",
     {{32, 32, 128, 128, 0}},
     524288},
    {"Llama 2 70B",
     "config.json of meta-llama/Llama-2-70b-hf",
     R"({"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80,
         "num_attention_heads": 64, "num_key_value_heads": 8})",
     {{80, 8, 128, 128, 0}},
     327680},
    {"Llama 1, without a key for KV heads",
     "LlamaConfig: num_key_value_heads is None",
     R"({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32})",
     {{32, 32, 128, 128, 0}},
     524288},
    {"Llama 3.1 8B",
     "config.json of meta-llama/Llama-3.1-8B",
     R"({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072})",
     {{32, 8, 128, 128, 0}},
     131072},
    {"Llama 3.1 405B",
     "config.json of meta-llama/Llama-3.1-405B",
     R"({"model_type": "llama", "hidden_size": 16384, "num_hidden_layers": 126,
         "num_attention_heads": 128, "num_key_value_heads": 8})",
     {{126, 8, 128, 128, 0}},
     516096},
    {"Llama 3.2 1B",
     "config.json of meta-llama/Llama-3.2-1B",
     R"({"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "head_dim": 64,
         "num_attention_heads": 32, "num_key_value_heads": 8})",
     {{16, 8, 64, 64, 0}},
     32768},
    {"LLaVA 1.5 7B",
     "LlamaConfig's defaults, which its text_config leaves out",
     R"({"model_type": "llava", "text_config": {"model_type": "llama",
         "max_position_embeddings": 4096, "vocab_size": 32064}})",
     {{32, 32, 128, 128, 0}},
     524288},
    {"Mistral 7B v0.1",
     "config.json of mistralai/Mistral-7B-v0.1",
     R"({"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": 4096})",
     {{32, 8, 128, 128, 4096}},
     131072},
    {"Mistral Nemo",
     "config.json of mistralai/Mistral-Nemo-Base-2407: head_dim is not 5120 / 32",
     R"({"model_type": "mistral", "hidden_size": 5120, "num_hidden_layers": 40, "head_dim": 128,
         "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": null})",
     {{40, 8, 128, 128, 0}},
     163840},
    {"Mixtral 8x7B",
     "config.json of mistralai/Mixtral-8x7B-v0.1",
     R"({"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": null})",
     {{32, 8, 128, 128, 0}},
     131072},
    {"Qwen 2 7B",
     "config.json of Qwen/Qwen2-7B: a window that is switched off",
     R"({"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28,
         "num_attention_heads": 28, "num_key_value_heads": 4, "sliding_window": 131072,
         "max_window_layers": 28, "use_sliding_window": false})",
     {{28, 4, 128, 128, 0}},
     57344},
    {"Qwen 2.5 0.5B",
     "config.json of Qwen/Qwen2.5-0.5B",
     R"({"model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24,
         "num_attention_heads": 14, "num_key_value_heads": 2, "sliding_window": 32768,
         "max_window_layers": 24, "use_sliding_window": false})",
     {{24, 2, 64, 64, 0}},
     12288},
    {"Qwen 2 with its window switched on",
     "Qwen2Config: layers from max_window_layers on",
     R"({"model_type": "qwen2", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 32, "sliding_window": 4096,
         "max_window_layers": 28, "use_sliding_window": true})",
     {{28, 32, 128, 128, 0}, {4, 32, 128, 128, 4096}},
     524288},
    {"Qwen 1.5 MoE A2.7B",
     "Qwen2MoeConfig's defaults",
     R"({"model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24,
         "num_attention_heads": 16, "num_key_value_heads": 16, "use_sliding_window": false})",
     {{24, 16, 128, 128, 0}},
     196608},
    {"Qwen 3 4B",
     "config.json of Qwen/Qwen3-4B; field case C22",
     R"({"model_type": "qwen3", "hidden_size": 2560, "num_hidden_layers": 36, "head_dim": 128,
         "num_attention_heads": 32, "num_key_value_heads": 8, "use_sliding_window": false,
         "sliding_window": null, "max_window_layers": 36, "max_position_embeddings": 40960})",
     {{36, 8, 128, 128, 0}},
     147456},
    {"Qwen 3 30B A3B",
     "config.json of Qwen/Qwen3-30B-A3B",
     R"({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "head_dim": 128,
         "num_attention_heads": 32, "num_key_value_heads": 4, "use_sliding_window": false,
         "sliding_window": null})",
     {{48, 4, 128, 128, 0}},
     98304},
    {"Gemma 2 9B",
     "config.json of google/gemma-2-9b; every other layer slides, the first one too",
     R"({"model_type": "gemma2", "hidden_size": 3584, "num_hidden_layers": 42, "head_dim": 256,
         "num_attention_heads": 16, "num_key_value_heads": 8, "sliding_window": 4096})",
     {{21, 8, 256, 256, 4096}, {21, 8, 256, 256, 0}},
     344064},
    {"Gemma 3 4B",
     "config.json of google/gemma-3-4b-pt; heads are Gemma3TextConfig's defaults",
     R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560,
         "num_hidden_layers": 34, "sliding_window": 1024}})",
     {{29, 4, 256, 256, 1024}, {5, 4, 256, 256, 0}},
     139264},
    {"Gemma 3 27B",
     "config.json of google/gemma-3-27b-pt",
     R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 5376,
         "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16,
         "head_dim": 128, "sliding_window": 1024}})",
     {{52, 16, 128, 128, 1024}, {10, 16, 128, 128, 0}},
     507904},
    {"Gemma 3 270M",
     "field case C22",
     R"({"model_type": "gemma3_text", "hidden_size": 640, "num_hidden_layers": 18, "head_dim": 256,
         "num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 512,
         "sliding_window_pattern": 6})",
     {{15, 1, 256, 256, 512}, {3, 1, 256, 256, 0}},
     18432},
    {"Gemma 3n E4B",
     "Gemma3nTextConfig's defaults: the last 15 layers read others' rows",
     R"({"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}})",
     {{16, 2, 256, 256, 512}, {4, 2, 256, 256, 0}},
     40960,
     {},
     15},
    {"Gemma 4",
     "Gemma4TextConfig's defaults: full layers have heads of another size",
     R"({"model_type": "gemma4", "text_config": {"model_type": "gemma4_text"}})",
     {{25, 4, 256, 256, 512}, {5, 4, 512, 512, 0}},
     143360},
    {"Phi 3 mini 4k",
     "config.json of microsoft/Phi-3-mini-4k-instruct",
     R"({"model_type": "phi3", "hidden_size": 3072, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 32, "sliding_window": 2047})",
     {{32, 32, 96, 96, 2047}},
     393216},
    {"Phi 4",
     "config.json of microsoft/phi-4",
     R"({"model_type": "phi3", "hidden_size": 5120, "num_hidden_layers": 40,
         "num_attention_heads": 40, "num_key_value_heads": 10, "sliding_window": null})",
     {{40, 10, 128, 128, 0}},
     204800},
    {"DeepSeek V2 Lite",
     "config.json of deepseek-ai/DeepSeek-V2-Lite",
     R"({"model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 27,
         "num_attention_heads": 16, "num_key_value_heads": 16, "kv_lora_rank": 512,
         "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128})",
     {{27, 1, 576, 0, 0}},
     31104},
    {"DeepSeek V3",
     "DeepseekV3Config's defaults",
     R"({"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
         "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512,
         "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128})",
     {{61, 1, 576, 0, 0}},
     70272},
    {"gpt-oss 120B",
     "GptOssConfig's defaults: every other layer slides, the first one too",
     R"({"model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 36, "head_dim": 64,
         "num_attention_heads": 64, "num_key_value_heads": 8, "sliding_window": 128})",
     {{18, 8, 64, 64, 128}, {18, 8, 64, 64, 0}},
     73728},
    {"gpt-oss 20B",
     "config.json of openai/gpt-oss-20b, its layer_types cut to four layers",
     R"({"model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 4, "head_dim": 64,
         "num_attention_heads": 64, "num_key_value_heads": 8, "sliding_window": 128,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                         "full_attention"]})",
     {{2, 8, 64, 64, 128}, {2, 8, 64, 64, 0}},
     8192},
    {"Falcon 7B",
     "config.json of tiiuae/falcon-7b: one KV head for all",
     R"({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32,
         "num_attention_heads": 71, "multi_query": true, "new_decoder_architecture": false})",
     {{32, 1, 64, 64, 0}},
     8192},
    {"Falcon 40B",
     "config.json of tiiuae/falcon-40b",
     R"({"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60,
         "num_attention_heads": 128, "num_kv_heads": 8, "multi_query": true,
         "new_decoder_architecture": true})",
     {{60, 8, 64, 64, 0}},
     122880},
    {"OLMo 2 7B",
     "Olmo2Config's defaults, as in allenai/OLMo-2-1124-7B",
     R"({"model_type": "olmo2", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 32})",
     {{32, 32, 128, 128, 0}},
     524288},
    {"OLMo 3",
     "Olmo3Config's defaults: of four layers the last is full",
     R"({"model_type": "olmo3", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 32, "sliding_window": 4096})",
     {{24, 32, 128, 128, 4096}, {8, 32, 128, 128, 0}},
     524288},
    {"Granite 3.1 8B",
     "config.json of ibm-granite/granite-3.1-8b-base",
     R"({"model_type": "granite", "hidden_size": 4096, "num_hidden_layers": 40,
         "num_attention_heads": 32, "num_key_value_heads": 8})",
     {{40, 8, 128, 128, 0}},
     163840},
    {"Command R",
     "CohereConfig's defaults, as in CohereForAI/c4ai-command-r-v01",
     R"({"model_type": "cohere", "hidden_size": 8192, "num_hidden_layers": 40,
         "num_attention_heads": 64, "num_key_value_heads": 64})",
     {{40, 64, 128, 128, 0}},
     1310720},
    {"Command R7B",
     "config.json of CohereForAI/c4ai-command-r7b-12-2024",
     R"({"model_type": "cohere2", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": 4096,
         "sliding_window_pattern": 4})",
     {{24, 8, 128, 128, 4096}, {8, 8, 128, 128, 0}},
     131072},
    {"SmolLM3 3B",
     "SmolLM3Config's defaults",
     R"({"model_type": "smollm3", "hidden_size": 2048, "num_hidden_layers": 36,
         "num_attention_heads": 16, "num_key_value_heads": 4, "use_sliding_window": false,
         "sliding_window": null})",
     {{36, 4, 128, 128, 0}},
     73728},
    {"OpenELM 270M",
     "config.json of apple/OpenELM-270M",
     R"({"model_type": "openelm", "head_dim": 64, "num_transformer_layers": 16,
         "num_kv_heads": [3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5]})",
     {{5, 3, 64, 64, 0}, {7, 4, 64, 64, 0}, {4, 5, 64, 64, 0}},
     16128},
    {"Jamba v0.1",
     "JambaConfig's defaults: 4 of 32 layers attend",
     R"({"model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "attn_layer_period": 8,
         "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2})",
     {{4, 8, 128, 128, 0}},
     16384,
     {{28, 3 * 8192 + 16 * 8192}}},
    {"Qwen 3 Next 80B A3B",
     "Qwen3NextConfig's defaults: 12 of 48 layers attend",
     R"({"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48,
         "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
         "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
         "linear_num_key_heads": 16, "linear_num_value_heads": 32})",
     {{12, 2, 256, 256, 0}},
     24576,
     {{36, 3 * (2 * 16 * 128 + 32 * 128) + 32 * 128 * 128}}},
    {"LFM2 1.2B",
     "config.json of LiquidAI/LFM2-1.2B: 6 of 16 layers attend",
     R"({"model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16,
         "num_attention_heads": 32, "num_key_value_heads": 8, "conv_L_cache": 3,
         "full_attn_idxs": [2, 5, 8, 10, 12, 14]})",
     {{6, 8, 64, 64, 0}},
     12288,
     {{10, 2 * 2048}}},
    {"Nemotron-H 8B",
     "config.json of nvidia/Nemotron-H-8B-Base-8K: 4 of 52 layers attend",
     R"({"model_type": "nemotron_h", "hidden_size": 4096, "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 64,
         "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4,
         "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"})",
     {{4, 8, 128, 128, 0}},
     16384,
     {{24, 3 * (8192 + 2 * 8 * 128) + 128 * 8192}}},
    {"Granite 4 hybrid",
     "GraniteMoeHybridConfig's defaults, four layers",
     R"({"model_type": "granitemoehybrid", "hidden_size": 4096, "num_hidden_layers": 4,
         "num_attention_heads": 32, "num_key_value_heads": null, "mamba_expand": 2,
         "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_n_groups": 1,
         "layer_types": ["mamba", "mamba", "attention", "mamba"]})",
     {{1, 32, 128, 128, 0}},
     16384,
     {{3, 3 * (8192 + 2 * 256) + 256 * 8192}}},
    {"Falcon H1",
     "FalconH1Config's defaults: every layer attends and keeps a state",
     R"({"model_type": "falcon_h1", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "mamba_d_ssm": 1024,
         "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_n_groups": 1})",
     {{32, 8, 128, 128, 0}},
     131072,
     {{32, 3 * (1024 + 2 * 256) + 256 * 1024}}},
};

class HfFamilies : public ::testing::TestWithParam<FamilyCase> {};

TEST_P(HfFamilies, AreReadAsTheirSourceSays) {
  const FamilyCase& expected = GetParam();
  const auto layout = read(expected.config);
  ASSERT_TRUE(layout.has_value()) << layout.error().message;
  EXPECT_EQ(layout->groups, expected.groups);
  EXPECT_EQ(layout->states, expected.states);
  EXPECT_EQ(layout->layers_sharing, expected.layers_sharing);
  const KvFormat& f16 = *find_kv_format("f16");
  const auto cost = KvCost::of_layout(*layout, f16, f16, 32);
  ASSERT_TRUE(cost.has_value()) << cost.error().message;
  EXPECT_EQ(cost->token_bytes(), expected.token_bytes);
  uint64_t state = 0;
  for (const StateGroup& group : expected.states) state += group.layers * group.values * 4;
  EXPECT_EQ(cost->state_bytes(), state);
}

TEST_P(HfFamilies, CostALineAtMostWhenTheirTextIsDamaged) {
  const uint64_t seed = 20261205;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Prng prng(seed);
  constexpr std::string_view kBytes = "0123456789-.eE\"{}[],:ntf \\\n\x80";
  const KvFormat& f16 = *find_kv_format("f16");
  for (int round = 0; round < 300; ++round) {
    std::string text(GetParam().config);
    for (uint64_t change = 0; change <= prng.below(3); ++change) {
      const std::size_t at = prng.below(text.size());
      const char byte = kBytes[prng.below(kBytes.size())];
      switch (prng.below(3)) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        default:
          text.erase(at, 1 + prng.below(8));
          break;
      }
    }
    const auto layout = read(text);
    if (!layout.has_value()) {
      EXPECT_EQ(layout.error().message.find('\n'), std::string::npos) << layout.error().message;
      continue;
    }
    // What is read can be counted, or is refused in its turn: never a crash, never an overflow.
    const auto cost = KvCost::of_layout(*layout, f16, f16, 32);
    if (!cost.has_value()) continue;
    EXPECT_LT(cost->exact(kTokensMax), uint64_t{1} << 63);
  }
}

INSTANTIATE_TEST_SUITE_P(Sources, HfFamilies, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::to_string(info.index); });

TEST(HfConfig, C22CountsWhatItsTableSays) {
  const auto layout = read(
      R"({"model_type": "gemma3_text", "hidden_size": 640, "num_hidden_layers": 18, "head_dim": 256,
          "num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 512})");
  const KvFormat& f16 = *find_kv_format("f16");
  EXPECT_EQ(KvCost::of_layout(*layout, f16, f16, 32)->exact(32768), 108527616u);
}

// A configuration that is right, to be broken in one place.
json::object right() {
  return {{"model_type", "mistral"},        {"hidden_size", 64},   {"num_hidden_layers", 4},
          {"num_attention_heads", 4},       {"sliding_window", 8}, {"num_key_value_heads", 2},
          {"max_position_embeddings", 4096}};
}

std::string error_with(std::string_view key, json::value value) {
  json::object config = right();
  config[key] = std::move(value);
  return error_of(json::serialize(config));
}
std::string error_without(std::string_view key) {
  json::object config = right();
  config.erase(key);
  return error_of(json::serialize(config));
}

TEST(HfConfig, GuessesNothingThatIsMissing) {
  EXPECT_EQ(error_of(json::serialize(right())), "(read)");
  for (const std::string_view key : {"num_hidden_layers", "num_attention_heads", "hidden_size",
                                     "sliding_window", "num_key_value_heads", "model_type"}) {
    EXPECT_EQ(error_without(key), std::string(key) + ": missing");
  }
  EXPECT_EQ(error_with("sliding_window", nullptr), "(read)");
  EXPECT_EQ(error_of(R"({"model_type": "deepseek_v3", "num_hidden_layers": 61})"),
            "kv_lora_rank: missing");
  EXPECT_EQ(error_of(R"({"model_type": "jamba", "num_hidden_layers": 8})"),
            "attn_layer_period: missing");
}

TEST(HfConfig, RefusesNumbersThatNoModelHas) {
  EXPECT_EQ(error_with("num_hidden_layers", 0), "num_hidden_layers: 0 is not in 1 to 65536");
  EXPECT_EQ(error_with("num_hidden_layers", int64_t{1} << 40),
            "num_hidden_layers: 1099511627776 is not in 1 to 65536");
  EXPECT_EQ(error_with("num_attention_heads", 0), "num_attention_heads: 0 is not in 1 to 65536");
  EXPECT_EQ(error_with("num_key_value_heads", 0), "num_key_value_heads: 0 is not in 1 to 65536");
  EXPECT_EQ(error_with("hidden_size", -64), "hidden_size: no whole number");
  EXPECT_EQ(error_with("hidden_size", 64.5), "hidden_size: no whole number");
  EXPECT_EQ(error_with("hidden_size", "64"), "hidden_size: no whole number");
  EXPECT_EQ(error_with("hidden_size", 66),
            "head_dim: missing, and a hidden_size of 66 does not divide by 4 heads");
  EXPECT_EQ(error_with("sliding_window", 0), "sliding_window: 0 is not in 1 to 1073741824");
  EXPECT_NE(error_of(R"({"model_type": "jamba", "num_hidden_layers": 8, "attn_layer_period": 8,
                         "attn_layer_offset": 4, "hidden_size": 1048576, "num_attention_heads": 1,
                         "num_key_value_heads": 1, "mamba_expand": 1048576,
                         "mamba_d_state": 1048576, "mamba_d_conv": 4})")
                .find("a state of more than 1099511627776 values"),
            std::string::npos);
}

TEST(HfConfig, NamesKindsOfLayersThatItDoesNotKnow) {
  const auto with_types = [](json::array types) {
    json::object config = right();
    config["layer_types"] = std::move(types);
    return error_of(json::serialize(config));
  };
  EXPECT_EQ(with_types({"full_attention", "sliding_attention", "full_attention"}),
            "layer_types: 3 entries for 4 layers");
  EXPECT_EQ(with_types({"full_attention", "chunked_attention", "full_attention", "moe"}),
            "layer_types: 'chunked_attention' is a kind of layer that is not known of 'mistral'");
  EXPECT_EQ(with_types({"full_attention", 3, "full_attention", "full_attention"}),
            "layer_types: a layer's kind that is no text");
  EXPECT_EQ(error_with("kv_lora_rank", 512),
            "kv_lora_rank: latent attention in a model_type that has none");
  EXPECT_EQ(error_with("attention_chunk_size", 8192),
            "attention_chunk_size: the planner does not know this kind of layers");
  EXPECT_NE(error_of(R"({"model_type": "qwen3_moe", "num_hidden_layers": 4, "hidden_size": 64,
                         "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 8,
                         "use_sliding_window": true})")
                .find("use_sliding_window: true, and layer_types"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"model_type": "nemotron_h", "hybrid_override_pattern": "M?"})")
                .find("hybrid_override_pattern: '?' is no kind of layer"),
            std::string::npos);
}

TEST(HfConfig, RefusesEncoderDecodersAndUnknownTypesByName) {
  EXPECT_EQ(error_of(R"({"model_type": "t5", "num_layers": 6})"),
            "model_type 't5' is an encoder-decoder, whose caches are not planned here");
  EXPECT_EQ(error_of(R"({"model_type": "novel", "is_encoder_decoder": true})"),
            "model_type 'novel' is an encoder-decoder, whose caches are not planned here");
  EXPECT_NE(error_of(R"({"model_type": "whale"})")
                .find("model_type: the planner does not know the layout of 'whale'; known: llama,"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"model_type": "vision", "text_config": {"model_type": "whale"}})")
                .find("text_config.model_type: the planner does not know"),
            std::string::npos);
  EXPECT_EQ(error_of(R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
                         "num_hidden_layers": 0}})"),
            "text_config.num_hidden_layers: 0 is not in 1 to 65536");
}

TEST(HfConfig, SaysOfWhatIsNoJsonWhere) {
  EXPECT_NE(error_of("").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of("{\"model_type\": ").find("not valid JSON at byte"), std::string::npos);
  EXPECT_EQ(error_of("[1, 2]"), "no JSON object");
  EXPECT_NE(error_of(std::string(100000, '[')).find("not valid JSON"), std::string::npos);
}

TEST(HfConfig, PassesOverNumbersThatOnlyPythonWrites) {
  const std::string text = json::serialize(right());
  const std::string more =
      R"(, "time_step_limit": [0.0, Infinity, -Infinity, NaN], "note": "NaN \" Infinity"})";
  EXPECT_EQ(error_of(text.substr(0, text.size() - 1) + more), "(read)");
  EXPECT_NE(error_of(R"({"model_type": "llama", "hidden_size": Inf})").find("not valid JSON"),
            std::string::npos);
  EXPECT_EQ(error_of(R"({"model_type": "llama", "num_hidden_layers": NaN})"),
            "num_hidden_layers: missing");
}

TEST(HfConfig, EveryFamilyOfTheTableIsReadFromItsDefaults) {
  for (const Family& family : families()) {
    if (family.defaults.layers == kNull || family.kind == FamilyKind::kOpenElm) continue;
    // What the classes of hybrids do not leave out stands at the top; the others need nothing.
    if (family.kind != FamilyKind::kAttention && family.kind != FamilyKind::kLatent &&
        family.kind != FamilyKind::kTwoSizes && family.kind != FamilyKind::kFalcon) {
      continue;
    }
    const auto layout = read(
        json::serialize(json::object{{"text_config", json::object{{"model_type", family.type}}}}));
    ASSERT_TRUE(layout.has_value()) << family.type << ": " << layout.error().message;
    uint64_t layers = layout->layers_sharing;
    for (const LayoutGroup& group : layout->groups) layers += group.layers;
    EXPECT_EQ(layers, family.defaults.layers) << family.type;
    EXPECT_EQ(layout->context, family.defaults.context) << family.type;
  }
}

TEST(HfConfig, TakesTheWeightsFromWhatLiesBesideIt) {
  const pagewise::testing::TempFolder folder;
  const std::string config = folder.write("config.json", json::serialize(right()));
  EXPECT_FALSE(layout_from_path(config)->weight_bytes.has_value());
  folder.write("model.safetensors", std::string(5000, 'x'));
  EXPECT_EQ(layout_from_path(config)->weight_bytes, 5000u);
  folder.write("model.safetensors.index.json", R"({"metadata": {"total_size": 16060522496}})");
  EXPECT_EQ(layout_from_path(config)->weight_bytes, 16060522496u);
  const std::string index = folder.write("model.safetensors.index.json", R"({"metadata": {}})");
  EXPECT_EQ(layout_from_path(config).error().message,
            index + ": metadata.total_size: missing or no number of bytes");
}

TEST(HfConfig, IsToldFromGgufByItsFirstBytes) {
  const pagewise::testing::TempFolder folder;
  const std::string text = "\n  " + json::serialize(right());
  EXPECT_TRUE(layout_from_path(folder.write("settings", text)).has_value());
  const auto other = layout_from_path(folder.write("other", "no model"));
  EXPECT_NE(other.error().message.find("other: "), std::string::npos);
  const auto cut = layout_from_path(folder.write("config.json", ""));
  EXPECT_NE(cut.error().message.find("config.json: not valid JSON"), std::string::npos);
}

}  // namespace
}  // namespace pagewise::planner
