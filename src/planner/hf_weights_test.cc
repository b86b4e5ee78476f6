// SPDX-License-Identifier: Apache-2.0
// Parameters as the files published with the models have them: safetensors' `total_size` in
// bfloat16 (of the one in float32: a quarter), or the count on the model's page.
#include "planner/hf_weights.h"

#include <gtest/gtest.h>

#include <string_view>

namespace pagewise::planner {
namespace {

json::object parsed(std::string_view text) { return parse_json(text)->as_object(); }

TEST(HfWeights, AreThoseOfThePublishedFiles) {
  // meta-llama/Llama-3.1-8B: 16,060,522,496 bytes of bfloat16.
  EXPECT_EQ(weight_bytes_of_config(parsed(
                R"({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
                    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
                    "intermediate_size": 14336, "tie_word_embeddings": false,
                    "torch_dtype": "bfloat16"})")),
            16060522496u);
  // mistralai/Mistral-7B-v0.1: 7,241,732,096 parameters.
  EXPECT_EQ(parameters_of_config(parsed(
                R"({"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32,
                    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
                    "intermediate_size": 14336})")),
            7241732096u);
  // mistralai/Mixtral-8x7B-v0.1: 46,702,792,704 parameters.
  EXPECT_EQ(parameters_of_config(parsed(
                R"({"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32,
                    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
                    "intermediate_size": 14336, "num_local_experts": 8})")),
            46702792704u);
  // Qwen/Qwen2.5-0.5B: 494,032,768 parameters; the head is tied.
  EXPECT_EQ(parameters_of_config(parsed(
                R"({"model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24,
                    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
                    "intermediate_size": 4864, "tie_word_embeddings": true})")),
            494032768u);
  // Qwen/Qwen3-30B-A3B: 30,532,122,624 parameters, by either name of the number of experts.
  for (const char* key : {"num_experts", "num_local_experts"}) {
    json::object config = parsed(
        R"({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48,
            "head_dim": 128, "num_attention_heads": 32, "num_key_value_heads": 4,
            "vocab_size": 151936, "moe_intermediate_size": 768, "tie_word_embeddings": false})");
    config[key] = 128;
    EXPECT_EQ(parameters_of_config(config), 30532122624u);
  }
  // google/gemma-2-9b: 9,241,705,984 parameters.
  EXPECT_EQ(parameters_of_config(parsed(
                R"({"model_type": "gemma2", "hidden_size": 3584, "num_hidden_layers": 42,
                    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
                    "vocab_size": 256000, "intermediate_size": 14336})")),
            9241705984u);
}

TEST(HfWeights, AreNotKnownWhereTheConfigurationDoesNotTellThem) {
  const std::string_view whole =
      R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100,
          "num_attention_heads": 4, "intermediate_size": 128, "torch_dtype": "float32"})";
  const uint64_t parameters = 2 * 100 * 64 + 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64);
  EXPECT_EQ(weight_bytes_of_config(parsed(whole)), 4 * parameters);
  for (const std::string_view key : {"hidden_size", "num_hidden_layers", "vocab_size",
                                     "num_attention_heads", "intermediate_size", "model_type"}) {
    json::object config = parsed(whole);
    config.erase(key);
    EXPECT_FALSE(parameters_of_config(config).has_value()) << key;
    config[key] = int64_t{1} << 40;
    EXPECT_FALSE(parameters_of_config(config).has_value()) << key;
  }
  json::object config = parsed(whole);
  config["quantization_config"] = json::object{{"quant_method", "mxfp4"}};
  EXPECT_FALSE(weight_bytes_of_config(config).has_value());
  config = parsed(whole);
  config.erase("torch_dtype");
  EXPECT_FALSE(weight_bytes_of_config(config).has_value());
  config["model_type"] = "jamba";
  EXPECT_FALSE(parameters_of_config(config).has_value());
}

}  // namespace
}  // namespace pagewise::planner
