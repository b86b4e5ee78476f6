// SPDX-License-Identifier: Apache-2.0
// Each supported family as a tiny model with random weights: the logits that transformers gives for
// the same weights, and promise 1. tests/tools/make_tiny_models.py made the files and says how.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>

#include "base/hash.h"
#include "base/prng.h"
#include "golden/engine_bench.h"
#include "golden/logits_bits.h"
#include "golden/real_model.h"
#include "model/batch_driver.h"
#include "model/solo_sequence.h"
#include "planner/server_memory.h"
#include "text/tokenizer.h"

namespace pagewise::golden {
namespace {

using model::LayerSpec;
using model::ModelSpec;
using model::testing::BatchDriver;

/// The divergence that a position's distribution may have from the published one. Both sides
/// compute in f32, in another order: what is measured is around 1e-10.
constexpr double kDivergenceMax = 1e-4;
/// The same where experts have quantised weights, whose activations are then read in 8 bits.
constexpr double kQuantisedDivergenceMax = 0.01;
/// Below this a changed part would hardly show, so that its absence might not either.
constexpr double kPartShows = 10 * kDivergenceMax;

constexpr const char* kFamilies[] = {
    "llama",      "mistral",   "mixtral",   "qwen2",      "qwen3",          "qwen3-yarn",
    "qwen2moe",   "gemma2",    "gemma3",    "qwen3moe",   "phi3-long",      "granite",
    "phi3-short", "phi4-mini", "olmo2",     "smollm3",    "olmo3",          "cohere2",
    "gemma",      "falcon-7b", "command-r", "falcon-40b", "deepseek2-lite", "deepseek2-old",
    "deepseek2",  "deepseek3", "gpt-oss"};

struct Reference {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> logits;  // [tokens][vocabulary]
};

std::string path_of(const std::string& family, const char* ending) {
  return PAGEWISE_SOURCE_DIR "/tests/golden/architectures/" + family + ending;
}

Reference read_reference(const std::string& family) {
  std::ifstream stream(path_of(family, ".logits"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)),
                          std::istreambuf_iterator<char>());
  std::size_t at = 0;
  const auto take = [&](void* to, std::size_t count) {
    PW_CHECK(at + count <= bytes.size());
    std::memcpy(to, bytes.data() + at, count);
    at += count;
  };
  int32_t rows, columns;
  take(&rows, sizeof rows);
  take(&columns, sizeof columns);
  Reference out;
  for (int32_t r = 0; r < rows; ++r) {
    int32_t id;
    take(&id, sizeof id);
    out.tokens.emplace_back(id);
  }
  for (int32_t r = 0; r < rows; ++r) {
    std::vector<float>& row = out.logits.emplace_back(static_cast<std::size_t>(columns));
    take(row.data(), row.size() * sizeof(float));
  }
  PW_CHECK(at == bytes.size());
  return out;
}

std::vector<double> log_softmax(std::span<const float> logits) {
  const double most = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  std::vector<double> out;
  for (const float logit : logits) {
    out.push_back(static_cast<double>(logit) - most - std::log(sum));
  }
  return out;
}

/// Of the second from the first, in nats.
double divergence(std::span<const float> exact, std::span<const float> logits) {
  const std::vector<double> p = log_softmax(exact);
  const std::vector<double> q = log_softmax(logits);
  double out = 0;
  for (std::size_t i = 0; i < p.size(); ++i) out += std::exp(p[i]) * (p[i] - q[i]);
  return out;
}

class Architectures : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto file = gguf::File::open(path_of(GetParam(), ".gguf"));
    ASSERT_TRUE(file.has_value()) << file.error().message;
    model_.file = std::move(*file);
    auto spec = model::spec_from_gguf(*model_.file);
    ASSERT_TRUE(spec.has_value()) << spec.error().message;
    model_.spec = std::move(*spec);
    const char* chosen = std::getenv("PAGEWISE_TEST_SEED");
    seed_ = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 7;
    std::printf("seed %llu (PAGEWISE_TEST_SEED repeats one)\n",
                static_cast<unsigned long long>(seed_));
  }

  std::unique_ptr<model::CpuExecutor> executor(const ExecutorSetting& setting) {
    auto made = make_executor(model_, setting);
    EXPECT_TRUE(made.has_value()) << made.error().message;
    return std::move(*made);
  }

  /// With f32 keys and values.
  std::vector<std::vector<float>> logits_of(const std::vector<TokenId>& tokens) {
    const auto made =
        executor({.block_tokens = 16, .key_type = KvType::kF32, .value_type = KvType::kF32});
    std::vector<std::vector<float>> out(tokens.size());
    BatchDriver driver(*made, seed_);
    driver.finish(driver.add(tokens), 20, [&](std::size_t, uint32_t position, auto logits) {
      out[position].assign(logits.begin(), logits.end());
    });
    return out;
  }

  double divergence_max(const Reference& reference) {
    const auto logits = logits_of(reference.tokens);
    double out = 0;
    for (std::size_t p = 0; p < logits.size(); ++p) {
      out = std::max(out, divergence(reference.logits[p], logits[p]));
    }
    return out;
  }

  /// Five of random tokens, which cross blocks and windows and take both schedules.
  std::vector<Prompt> random_prompts() {
    Prng prng(seed_);
    std::vector<Prompt> prompts;
    for (const uint32_t length : {3U, 17U, 40U, 70U, 96U}) {
      Prompt& prompt = prompts.emplace_back();
      for (uint32_t i = 0; i < length; ++i) {
        prompt.tokens.emplace_back(static_cast<int32_t>(prng.below(model_.spec.vocab_size)));
      }
      prompt.logits_from = static_cast<uint32_t>(prng.below(length));
    }
    return prompts;
  }

  // Promise 1 (docs/design.md), for the model at hand.
  void same_bits_however_computed();
  void same_bits_without_a_cache();
  void same_answers_through_the_engine();

  RealModel model_;
  uint64_t seed_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Families, Architectures, ::testing::ValuesIn(kFamilies),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(Architectures, GiveTheLogitsOfThePublishedImplementation) {
  const Reference reference = read_reference(GetParam());
  const auto logits = logits_of(reference.tokens);
  double mean = 0, most = 0;
  for (std::size_t p = 0; p < logits.size(); ++p) {
    const double value = divergence(reference.logits[p], logits[p]);
    EXPECT_LT(value, kDivergenceMax) << "position " << p;
    mean += value / static_cast<double>(logits.size());
    most = std::max(most, value);
    // The best token, where it is clearly the best.
    std::vector<float> sorted = reference.logits[p];
    std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
    if (sorted[0] - sorted[1] < 1e-3F) continue;
    const auto best = [](const std::vector<float>& row) {
      return std::max_element(row.begin(), row.end()) - row.begin();
    };
    EXPECT_EQ(best(logits[p]), best(reference.logits[p])) << "position " << p;
  }
  std::printf("%s: divergence from transformers: mean %.1e, most %.1e\n", GetParam(), mean, most);
}

/// One part of the pass taken away or replaced. `change` returns false where a spec has no such
/// part.
struct Part {
  const char* name;
  std::function<bool(ModelSpec&)> change;
};

/// Changes a layer's part in all layers that have it.
template <typename Change>
std::function<bool(ModelSpec&)> in_layers(Change change) {
  return [change](ModelSpec& spec) {
    bool changed = false;
    for (LayerSpec& layer : spec.layers) changed = change(layer) || changed;
    return changed;
  };
}

/// Sets a value unless it is that already.
template <typename T>
bool set(T& value, T to) {
  if (value == to) return false;
  value = to;
  return true;
}

std::vector<Part> parts() {
  using model::Activation, model::NormKind, model::QkNorm, model::RopeFactors, model::RopeKind;
  const auto rope = [](auto change) {
    return [change](ModelSpec& spec) {
      const bool changed = change(spec.rope);
      return (spec.sliding_rope && change(*spec.sliding_rope)) || changed;
    };
  };
  return {
      {"rope's pairs", rope([](model::RopeSpec& r) {
         r.kind = r.kind == RopeKind::kNeox ? RopeKind::kNormal : RopeKind::kNeox;
         return true;
       })},
      {"rope's base", rope([](model::RopeSpec& r) { return set(r.base, 500.0); })},
      {"rope's scaling", rope([](model::RopeSpec& r) { return set(r.position_scale, 1.0); })},
      {"rope's magnitude", rope([](model::RopeSpec& r) { return set(r.magnitude, 1.0); })},
      {"rope's ramp", rope([](model::RopeSpec& r) { return set(r.ramp, false); })},
      {"rope's factors",
       rope([](model::RopeSpec& r) { return set(r.factors, RopeFactors::kNone); })},
      {"which factors",
       [](ModelSpec& spec) {
         const bool is_long = spec.rope.factors == RopeFactors::kLong;
         if (!is_long && spec.rope.factors != RopeFactors::kShort) return false;
         spec.rope.factors = is_long ? RopeFactors::kShort : RopeFactors::kLong;
         return true;
       }},
      {"the sliding layers' rope",
       [](ModelSpec& spec) {
         if (!spec.sliding_rope) return false;
         spec.sliding_rope.reset();
         return true;
       }},
      {"layers without rope", in_layers([](LayerSpec& l) { return set(l.rope, true); })},
      {"all rope", in_layers([](LayerSpec& l) { return set(l.rope, false); })},
      {"windows",
       in_layers([](LayerSpec& l) { return l.window != 0 && set(l.window, l.window - 1); })},
      {"rope's ramp between pairs",
       rope([](model::RopeSpec& r) { return set(r.ramp_end, std::ceil(r.ramp_end)); })},
      {"sinks", in_layers([](LayerSpec& l) { return set(l.sinks, false); })},
      {"norms of Q and K", in_layers([](LayerSpec& l) { return set(l.qk_norm, QkNorm::kNone); })},
      {"biases", in_layers([](LayerSpec& l) { return set(l.qkv_bias, false); })},
      {"the output's bias", in_layers([](LayerSpec& l) { return set(l.output_bias, false); })},
      {"norms before", in_layers([](LayerSpec& l) { return set(l.pre_norms, false); })},
      {"norms behind", in_layers([](LayerSpec& l) { return set(l.post_norms, false); })},
      {"the norms' mean", [](ModelSpec& spec) { return set(spec.norm, NormKind::kRms); }},
      {"the norms' biases", [](ModelSpec& spec) { return set(spec.norm_bias, false); }},
      {"Falcon's second norm", in_layers([](LayerSpec& l) { return set(l.parallel_norm, false); })},
      {"the activation",
       [](ModelSpec& spec) {
         if (spec.activation == Activation::kGeluOnly) return false;  // it has no gate
         spec.activation =
             spec.activation == Activation::kSilu ? Activation::kGeluTanh : Activation::kSilu;
         return true;
       }},
      {"the activation's clamp",
       [](ModelSpec& spec) {
         return spec.activation_limit > 0 && set(spec.activation_limit, 1e9F);
       }},
      {"the scale of embeddings", [](ModelSpec& spec) { return set(spec.embedding_scale, 1.0F); }},
      {"the scale of attention",
       [](ModelSpec& spec) {
         spec.attention_scale *= 1.5F;
         return true;
       }},
      {"the scale of residuals", [](ModelSpec& spec) { return set(spec.residual_scale, 1.0F); }},
      {"the scale of logits", [](ModelSpec& spec) { return set(spec.logit_scale, 1.0F); }},
      {"the cap of attention", [](ModelSpec& spec) { return set(spec.attention_softcap, 0.0F); }},
      {"the cap of logits", [](ModelSpec& spec) { return set(spec.logit_softcap, 0.0F); }},
      {"how experts are weighed",
       [](ModelSpec& spec) {
         spec.experts.normalize = !spec.experts.normalize;
         return spec.experts.count != 0;
       }},
      {"the last expert",
       [](ModelSpec& spec) { return spec.experts.count != 0 && set(spec.experts.used, 1U); }},
      {"the experts' biases", [](ModelSpec& spec) { return set(spec.experts.biases, false); }},
      {"the shared expert", [](ModelSpec& spec) { return set(spec.experts.shared_ffn, 0U); }},
      {"the shared expert's gate",
       [](ModelSpec& spec) { return set(spec.experts.shared_gate, false); }},
      {"how the router's outputs become weights",
       [](ModelSpec& spec) {
         spec.experts.gate = spec.experts.gate == model::ExpertGate::kSoftmax
                                 ? model::ExpertGate::kSigmoid
                                 : model::ExpertGate::kSoftmax;
         return spec.experts.count != 0;
       }},
      {"the scale of experts", [](ModelSpec& spec) { return set(spec.experts.scale, 1.0); }},
      {"the bias that experts are picked with",
       [](ModelSpec& spec) { return set(spec.experts.bias, false); }},
      {"groups of experts",
       [](ModelSpec& spec) { return set(spec.experts.groups_used, spec.experts.groups); }},
  };
}

TEST_P(Architectures, ShowEveryOfTheirPartsInTheLogits) {
  // What the first test compares would not notice a part that makes no difference.
  const Reference reference = read_reference(GetParam());
  const ModelSpec whole = model_.spec;
  for (const Part& part : parts()) {
    model_.spec = whole;
    if (!part.change(model_.spec)) continue;
    model::assign_groups(model_.spec);
    EXPECT_GT(divergence_max(reference), kPartShows) << "without " << part.name;
  }
}

TEST_P(Architectures, TakeTheMemoryThatThePlanCounts) {
  for (const uint32_t threads : {1U, 2U}) {
    for (const uint32_t step_tokens : {1U, 30U, 200U}) {
      const auto geometry = model::make_geometry(model_.spec, 16, KvType::kF16, KvType::kF16);
      ASSERT_TRUE(geometry.has_value()) << geometry.error().message;
      model::CpuExecutorOptions options;
      options.threads = threads;
      options.step_tokens_max = step_tokens;
      options.blocks.assign(geometry->groups.size(), 8);
      const auto made = model::CpuExecutor::create(*model_.file, model_.spec, *geometry, options);
      ASSERT_TRUE(made.has_value()) << made.error().message;
      const planner::ServerMemory planned = planner::server_memory(
          model_.spec, {.step_tokens = step_tokens, .threads = (*made)->threads()});
      EXPECT_EQ(planned.buffers, (*made)->scratch_bytes() + 4 * model_.spec.vocab_size)
          << (*made)->threads() << " threads, steps of " << step_tokens;
    }
  }
}

TEST(RopeFactors, AreTheShortOnesWhereTheContextIsLimitedToTheirs) {
  for (const uint32_t context : {31U, 32U, 33U}) {
    const auto file = gguf::File::open(path_of("phi3-long", ".gguf"));
    ASSERT_TRUE(file.has_value()) << file.error().message;
    auto spec = model::spec_from_gguf(**file);
    ASSERT_TRUE(spec.has_value()) << spec.error().message;
    EXPECT_EQ(spec->rope.factors, model::RopeFactors::kLong);
    model::limit_context(*spec, context);
    EXPECT_EQ(spec->rope.factors,
              context <= 32 ? model::RopeFactors::kShort : model::RopeFactors::kLong);
    EXPECT_EQ(spec->context, 96U);
  }
}

void Architectures::same_bits_however_computed() {
  const std::vector<Prompt> prompts = random_prompts();
  std::vector<KvType> types = {KvType::kF16, KvType::kF32};
  // Values that are read from rows of keys are read by functions of their own in each type.
  if (model_.spec.layers[0].latent) types.push_back(KvType::kBF16);
  if (model_.spec.layers[0].latent && model_.spec.latent.rank % 32 == 0) {
    types.push_back(KvType::kQ8_0);
  }
  for (const KvType type : types) {
    const auto made = [&](uint32_t block_tokens, uint32_t threads) {
      return executor(
          {.block_tokens = block_tokens, .threads = threads, .key_type = type, .value_type = type});
    };
    const Bits expected = bits_one_by_one(*made(32, 1), prompts, 512, seed_);
    const auto check = [&](uint32_t block_tokens, uint32_t threads,
                           std::initializer_list<uint32_t> chunks) {
      const auto own = made(block_tokens, threads);
      for (const uint32_t chunk : chunks) {
        EXPECT_EQ(bits_one_by_one(*own, prompts, chunk, seed_), expected)
            << "blocks of " << block_tokens << ", " << threads << " threads, chunks of " << chunk;
      }
      for (uint64_t round = 0; round < 2; ++round) {
        EXPECT_EQ(bits_batched(*own, prompts, seed_ + round), expected)
            << "all in a batch, blocks of " << block_tokens << ", " << threads << " threads";
      }
    };
    check(1, 2, {48});
    check(16, 1, {7, 512});
    check(16, 2, {1, 48, 512});
    check(128, 2, {7});
  }
}

void Architectures::same_bits_without_a_cache() {
  const std::vector<Prompt> prompts = random_prompts();
  const auto made = executor({});
  const Bits expected = bits_one_by_one(*made, prompts, 512, seed_);
  model::SoloSequence sequence(*made);
  for (std::size_t s = 0; s < prompts.size(); ++s) {
    for (std::size_t step = 0; step < expected[s].size(); ++step) {
      sequence.reset();
      const auto logits =
          sequence.feed(std::span(prompts[s].tokens).first(prompts[s].logits_from + 1 + step));
      ASSERT_TRUE(logits.has_value());
      EXPECT_EQ(xxh3(std::as_bytes(*logits)), expected[s][step])
          << "prompt " << s << ", step " << step;
    }
  }
}

void Architectures::same_answers_through_the_engine() {
  auto tokenizer = text::Tokenizer::from_gguf(*model_.file);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  std::vector<engine::Request> requests;
  for (const Prompt& prompt : random_prompts()) {
    engine::Request& request = requests.emplace_back();
    request.prompt = prompt.tokens;
    request.prompt.resize(std::min<std::size_t>(prompt.tokens.size(), 80));
    request.max_tokens = 12;
    request.ignore_eos = true;
    request.want_control_text = true;
    request.sampling.temperature = requests.size() % 2 == 0 ? 0.0F : 0.8F;
    request.sampling.seed = seed_ + requests.size();
    request.sampling.logprobs = 5;
  }
  // Two that share a prefix with one before and end otherwise.
  for (const std::size_t shared : {33U, 50U}) {
    engine::Request forked = requests.back();
    for (std::size_t i = shared; i < forked.prompt.size(); ++i) forked.prompt[i].value ^= 1;
    requests.push_back(std::move(forked));
  }
  EngineBench alone(model_, **tokenizer, {}, options_of(512, false, 1));
  const std::vector<Answer> expected = alone.one_by_one(requests);
  for (const uint32_t step_tokens : {13U, 512U}) {
    EngineBench bench(model_, **tokenizer, {.block_tokens = 16}, options_of(step_tokens, true, 8));
    EXPECT_TRUE(bench.together(requests) == expected) << "steps of " << step_tokens;
    EXPECT_TRUE(bench.together(requests) == expected)
        << "steps of " << step_tokens << ", everything cached";
    EXPECT_TRUE(bench.one_by_one(requests) == expected)
        << "steps of " << step_tokens << ", everything cached, one by one";
  }
}

TEST_P(Architectures, GiveTheSameBitsInEveryChunkThreadBlockAndBatchRules1And4) {
  same_bits_however_computed();
}

TEST_P(Architectures, GiveTheSameBitsWithoutACache) { same_bits_without_a_cache(); }

TEST_P(Architectures, GiveTheSameAnswersCachedAndUncachedThroughTheEngine) {
  same_answers_through_the_engine();
}

/// Experts in MXFP4, whose kernels no other family here takes.
class QuantisedExperts : public Architectures {};

INSTANTIATE_TEST_SUITE_P(Families, QuantisedExperts, ::testing::Values("gpt-oss-mxfp4"),
                         [](const auto&) { return "gpt_oss"; });

TEST_P(QuantisedExperts, GiveNearlyTheLogitsOfThePublishedImplementation) {
  EXPECT_EQ(model_.file->find_tensor("blk.0.ffn_gate_exps.weight")->type, TensorType::kMXFP4);
  const double most = divergence_max(read_reference(GetParam()));
  EXPECT_LT(most, kQuantisedDivergenceMax);
  std::printf("%s: divergence from transformers: most %.1e\n", GetParam(), most);
}

TEST_P(QuantisedExperts, GiveTheSameBitsInEveryChunkThreadBlockAndBatchRules1And4) {
  same_bits_however_computed();
}

TEST_P(QuantisedExperts, GiveTheSameBitsWithoutACache) { same_bits_without_a_cache(); }

TEST_P(QuantisedExperts, GiveTheSameAnswersCachedAndUncachedThroughTheEngine) {
  same_answers_through_the_engine();
}

}  // namespace
}  // namespace pagewise::golden
