// SPDX-License-Identifier: Apache-2.0
// The executor on small random models of many shapes: near the plain reference pass, and the same
// bits however the work is cut. The real model has its tests in tests/golden.
#include "model/cpu_executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/allocation_count_testing.h"
#include "base/hash.h"
#include "kernels/linear/linear.h"
#include "kernels/to_float.h"
#include "model/batch_driver.h"
#include "model/reference_pass.h"
#include "model/test_gguf.h"

namespace pagewise::model {
namespace {

using testing::BatchDriver;
using testing::llama_model;
using testing::LlamaShape;

struct Setting {
  uint32_t block_tokens = 32;
  KvType key_type = KvType::kF16;
  KvType value_type = KvType::kF16;
  uint32_t threads = 2;
  uint32_t blocks = 0;  // 0: for 4,096 positions
  uint32_t step_tokens = 512;
};

/// A file on disk, its spec, and executors over it.
class Model {
 public:
  explicit Model(const LlamaShape& shape) : Model(llama_model(shape), shape) {}
  Model(const testing::ModelFile& made, const LlamaShape& shape) : file_on_disk_(made.bytes()) {
    auto file = gguf::File::open(file_on_disk_.path());
    PW_CHECK(file.has_value());
    file_ = std::move(*file);
    auto spec = spec_from_gguf(*file_);
    PW_CHECK(spec.has_value());
    spec_ = std::move(*spec);
    // The pass knows sliding layers; architecture llama never has them in the file.
    for (std::size_t l = 0; !shape.gemma3 && shape.sliding_window != 0 && l < spec_.layers.size();
         l += 2) {
      spec_.layers[l].attention = AttentionKind::kSliding;
      spec_.layers[l].window = shape.sliding_window;
    }
    assign_groups(spec_);
  }

  std::unique_ptr<CpuExecutor> executor(const Setting& setting) const {
    const auto geometry =
        make_geometry(spec_, setting.block_tokens, setting.key_type, setting.value_type);
    PW_CHECK(geometry.has_value());
    CpuExecutorOptions options;
    options.threads = setting.threads;
    options.step_tokens_max = setting.step_tokens;
    options.blocks.assign(geometry->groups.size(),
                          setting.blocks != 0 ? setting.blocks : 4096 / setting.block_tokens + 64);
    auto executor = CpuExecutor::create(*file_, spec_, *geometry, options);
    PW_CHECK(executor.has_value());
    return std::move(*executor);
  }

  const ModelSpec& spec() const { return spec_; }

  /// The tensors as floats, for the reference pass.
  testing::WeightLookup weights() {
    return [this](const std::string& name) -> const std::vector<float>& {
      const auto [entry, is_new] = decoded_.try_emplace(name);
      if (const gguf::Tensor* tensor = file_->find_tensor(name); is_new && tensor != nullptr) {
        entry->second.resize(tensor->columns() * tensor->rows());
        (*kernels::find_to_float(tensor->type))(file_->data(*tensor).data(), entry->second.data(),
                                                static_cast<int64_t>(entry->second.size()));
      }
      return entry->second;
    };
  }

  std::vector<TokenId> random_tokens(std::size_t count, Prng& prng) const {
    std::vector<TokenId> tokens;
    for (std::size_t i = 0; i < count; ++i) {
      tokens.emplace_back(static_cast<int32_t>(prng.below(spec_.vocab_size)));
    }
    return tokens;
  }

 private:
  gguf::testing::TempFile file_on_disk_;
  std::unique_ptr<gguf::File> file_;
  ModelSpec spec_;
  std::map<std::string, std::vector<float>> decoded_;
};

/// Logits bits of every position, as one hash each.
using Bits = std::vector<uint64_t>;

BatchDriver::Sink into(std::vector<Bits>& bits) {
  return [&bits](std::size_t sequence, uint32_t position, std::span<const float> logits) {
    if (bits.size() <= sequence) bits.resize(sequence + 1);
    if (bits[sequence].size() <= position) bits[sequence].resize(position + 1);
    bits[sequence][position] = xxh3(std::as_bytes(logits));
  };
}

/// Alone, in one go, with a fresh executor: what every other way must reproduce.
Bits bits_alone(CpuExecutor& executor, const std::vector<TokenId>& tokens) {
  BatchDriver driver(executor, 0);
  std::vector<Bits> bits;
  driver.finish(driver.add(tokens), executor.limits().step_tokens_max, into(bits));
  return bits[0];
}

/// Shapes that between them cover grouped queries of ratio 1, 2, 3 and 8, one KV head, heads that
/// are no multiple of a panel or vector, partial rope, biases, factors, sliding windows, and every
/// weight family.
std::vector<LlamaShape> shapes() {
  std::vector<LlamaShape> shapes;
  shapes.push_back({});
  shapes.push_back({.embedding = 96, .heads = 6, .kv_heads = 2, .tied = false, .bias = true});
  shapes.push_back({.embedding = 64,
                    .heads = 8,
                    .kv_heads = 1,
                    .head_dim = 24,
                    .rope_dims = 20,
                    .ffn = 100,
                    .rope_factors = true,
                    .rope_linear = 2});
  shapes.push_back({.embedding = 64, .heads = 3, .kv_heads = 3, .head_dim = 10, .rope_dims = 10});
  shapes.push_back({.vocab = 100,
                    .embedding = 128,
                    .layers = 3,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 32,
                    .rope_dims = 32,
                    .ffn = 160,
                    .type = TensorType::kQ4_1,
                    .head_type = TensorType::kQ8_0});
  shapes.push_back({.embedding = 192,
                    .heads = 3,
                    .kv_heads = 1,
                    .head_dim = 64,
                    .rope_dims = 64,
                    .ffn = 320,
                    .type = TensorType::kQ8_0,
                    .head_type = TensorType::kF16});
  shapes.push_back({.layers = 3, .sliding_window = 20});
  shapes.push_back({.embedding = 64, .type = TensorType::kQ4_0, .head_type = TensorType::kQ5_1});
  shapes.push_back({.layers = 4,
                    .heads = 4,
                    .kv_heads = 1,
                    .head_dim = 24,
                    .rope_dims = 24,
                    .rope_linear = 4,
                    .sliding_window = 20,
                    .gemma3 = true});
  shapes.push_back({.embedding = 256,
                    .layers = 2,
                    .heads = 2,
                    .kv_heads = 1,
                    .head_dim = 128,
                    .rope_dims = 128,
                    .ffn = 256,
                    .type = TensorType::kQ4_K,
                    .head_type = TensorType::kQ8_0,
                    .sliding_window = 33,
                    .gemma3 = true});
  shapes.push_back({.embedding = 256,
                    .layers = 1,
                    .heads = 4,
                    .kv_heads = 4,
                    .head_dim = 64,
                    .rope_dims = 64,
                    .ffn = 256,
                    .type = TensorType::kQ6_K,
                    .head_type = TensorType::kQ6_K});
  shapes.push_back({.embedding = 96,
                    .heads = 3,
                    .kv_heads = 3,
                    .head_dim = 32,
                    .rope_dims = 32,
                    .ffn = 160,
                    .type = TensorType::kQ5_0,
                    .head_type = TensorType::kQ5_0});
  shapes.push_back({.embedding = 256,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 64,
                    .rope_dims = 64,
                    .ffn = 256,
                    .type = TensorType::kQ5_K,
                    .head_type = TensorType::kIQ4_NL});
  shapes.push_back({.embedding = 96, .type = TensorType::kIQ4_NL, .head_type = TensorType::kQ4_0});
  shapes.push_back({.embedding = 96, .type = TensorType::kMXFP4, .head_type = TensorType::kMXFP4});
  shapes.push_back({.embedding = 72,
                    .heads = 3,
                    .kv_heads = 1,
                    .head_dim = 24,
                    .rope_dims = 24,
                    .ffn = 90,
                    .type = TensorType::kBF16,
                    .head_type = TensorType::kF16,
                    .tied = false});
  shapes.push_back({.layers = 1, .type = TensorType::kF16, .head_type = TensorType::kBF16});
  return shapes;
}

/// The KV types that fit a shape's heads.
std::vector<KvType> kv_types(const LlamaShape& shape) {
  std::vector<KvType> types = {KvType::kF16, KvType::kBF16, KvType::kF32};
  if (shape.head_dim % 32 == 0) types.push_back(KvType::kQ8_0);
  return types;
}

TEST(CpuExecutor, AgreesWithThePlainReferencePass) {
  for (const LlamaShape& shape : shapes()) {
    Model model(shape);
    Prng prng(shape.embedding + shape.heads);
    const std::vector<TokenId> tokens = model.random_tokens(40, prng);
    std::vector<int32_t> ids;
    for (const TokenId token : tokens) ids.push_back(token.value);
    const std::vector<testing::Row> exact =
        testing::reference_logits(model.spec(), model.weights(), ids);

    const auto executor = model.executor({.key_type = KvType::kF32, .value_type = KvType::kF32});
    BatchDriver driver(*executor, 1);
    // Integer-family weights read activations of 8 bits: 1 / 254 of a block's largest value at
    // most, a few thousandths each, adding up over layers. The f32 family differs by rounding
    // alone.
    const bool integer = kernels::linear_family(shape.type) == kernels::LinearFamily::kInteger ||
                         kernels::linear_family(shape.head_type) == kernels::LinearFamily::kInteger;
    const double bound = integer ? 0.05 : 2e-5;
    uint32_t seen = 0;
    driver.finish(driver.add(tokens), 16, [&](std::size_t, uint32_t position, auto logits) {
      double error = 0, size = 0;
      for (std::size_t i = 0; i < logits.size(); ++i) {
        const double difference = double{logits[i]} - exact[position][i];
        error += difference * difference;
        size += exact[position][i] * exact[position][i];
      }
      EXPECT_LT(std::sqrt(error / size), bound) << "position " << position;
      seen++;
    });
    EXPECT_EQ(seen, tokens.size());
  }
}

TEST(CpuExecutor, GivesTheSameBitsForAnyBlockSizeThreadsAndChunksRules1And4) {
  for (const LlamaShape& shape : shapes()) {
    Model model(shape);
    Prng prng(11);
    const std::vector<TokenId> tokens = model.random_tokens(300, prng);
    const auto plain = model.executor({.threads = 1});
    const Bits expected = bits_alone(*plain, tokens);
    for (const uint32_t block_tokens : {1U, 16U, 32U, 128U, 256U}) {
      for (const uint32_t threads : {1U, 2U}) {
        const auto executor = model.executor({.block_tokens = block_tokens, .threads = threads});
        for (const uint32_t chunk : {1U, 7U, 64U, 512U}) {
          if (chunk == 1 && block_tokens != 16) continue;  // the slowest, once is enough
          BatchDriver driver(*executor, chunk);
          std::vector<Bits> bits;
          driver.finish(driver.add(tokens), chunk, into(bits));
          ASSERT_EQ(bits[0], expected)
              << "blocks of " << block_tokens << ", " << threads << " threads, chunks of " << chunk;
        }
      }
    }
  }
}

TEST(CpuExecutor, GivesTheSameBitsWithEveryPairOfKvTypesForAnyBlockSizeThreadsAndChunksRule3) {
  const LlamaShape shape = {.embedding = 96,
                            .heads = 6,
                            .kv_heads = 2,
                            .head_dim = 32,
                            .rope_dims = 32,
                            .sliding_window = 40};
  Model model(shape);
  Prng prng(12);
  const std::vector<TokenId> tokens = model.random_tokens(290, prng);
  std::vector<Bits> of_types;
  for (const KvType key_type : kv_types(shape)) {
    for (const KvType value_type : kv_types(shape)) {
      const auto setting = [&](uint32_t block_tokens, uint32_t threads) {
        return Setting{.block_tokens = block_tokens,
                       .key_type = key_type,
                       .value_type = value_type,
                       .threads = threads};
      };
      const Bits expected = bits_alone(*model.executor(setting(32, 1)), tokens);
      EXPECT_EQ(std::count(of_types.begin(), of_types.end(), expected), 0)
          << "a KV type that changes nothing is none";
      of_types.push_back(expected);
      for (const uint32_t block_tokens : {1U, 16U, 32U, 128U}) {
        const auto executor = model.executor(setting(block_tokens, 2));
        for (const uint32_t chunk : {3U, 64U, 512U}) {
          BatchDriver driver(*executor, chunk);
          std::vector<Bits> bits;
          driver.finish(driver.add(tokens), chunk, into(bits));
          ASSERT_EQ(bits[0], expected)
              << "K " << kv_type_name(key_type) << ", V " << kv_type_name(value_type)
              << ", blocks of " << block_tokens << ", chunks of " << chunk;
        }
      }
    }
  }
}

TEST(CpuExecutor, GivesTheSameBitsInAnyMixOfSequencesRule1) {
  const char* chosen = std::getenv("PAGEWISE_TEST_SEED");
  const uint64_t seed = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 20260;
  std::printf("seed %llu (PAGEWISE_TEST_SEED repeats one)\n",
              static_cast<unsigned long long>(seed));
  Prng prng(seed);
  for (const LlamaShape& shape : shapes()) {
    Model model(shape);
    const std::vector<KvType> types = kv_types(shape);
    const Setting setting = {.block_tokens = 1U << prng.below(7),
                             .key_type = types[prng.below(types.size())],
                             .value_type = types[prng.below(types.size())]};
    const auto executor = model.executor(setting);
    for (int round = 0; round < 4; ++round) {
      std::vector<std::vector<TokenId>> prompts;
      for (int i = 0; i < 8; ++i) {
        // Some share a prefix, as requests to one assistant do, here without sharing blocks.
        prompts.push_back(model.random_tokens(1 + prng.below(i == 0 ? 320 : 90), prng));
        if (i % 3 == 1) {
          const auto& first = prompts[0];
          prompts.back().insert(prompts.back().begin(), first.begin(),
                                first.begin() + static_cast<std::ptrdiff_t>(first.size() / 2));
        }
      }
      std::vector<Bits> expected;
      for (const auto& prompt : prompts) expected.push_back(bits_alone(*executor, prompt));

      BatchDriver driver(*executor, prng.next());
      // Most ask for logits from some position on: steps without any, and with a few of many rows.
      for (std::size_t s = 0; s < prompts.size(); ++s) {
        const auto from = static_cast<uint32_t>(s % 3 == 0 ? 0 : prng.below(prompts[s].size()));
        driver.add(prompts[s], from);
        std::fill_n(expected[s].begin(), from, 0);
      }
      std::vector<Bits> bits;
      const auto sink = into(bits);
      for (;;) {
        std::vector<BatchDriver::Part> parts;
        uint32_t room = executor->limits().step_tokens_max;
        bool left = false;
        for (std::size_t s = 0; s < prompts.size(); ++s) {
          if (driver.left(s) == 0) continue;
          left = true;
          if (prng.below(4) == 0) continue;  // sits this step out
          const uint64_t most = prng.below(3) == 0 ? 1 : prng.below(3) == 0 ? 400 : 20;
          const uint32_t count =
              std::min({static_cast<uint32_t>(1 + prng.below(most)), driver.left(s), room});
          if (count == 0) continue;
          parts.push_back({s, count});
          room -= count;
        }
        if (!left) break;
        if (!parts.empty()) driver.step(parts, sink);
      }
      ASSERT_EQ(bits, expected) << "seed " << seed << ", round " << round;
    }
  }
}

TEST(CpuExecutor, GivesTheSameBitsWithLatentAttentionInBothFamiliesOfWeightsRules1And4) {
  for (const testing::DeepseekShape& shape :
       {testing::DeepseekShape{.type = TensorType::kQ8_0},
        {.type = TensorType::kQ4_1, .query_rank = 32, .sigmoid = true},
        {.type = TensorType::kQ4_0, .query_rank = 64, .old = true},
        {.type = TensorType::kF16, .query_rank = 32, .sigmoid = true}}) {
    const Model model(testing::deepseek_model(shape), {});
    Prng prng(15);
    const std::vector<TokenId> tokens = model.random_tokens(290, prng);
    for (const KvType type : {KvType::kF16, KvType::kQ8_0}) {
      const auto executor = [&](uint32_t block_tokens, uint32_t threads) {
        return model.executor({.block_tokens = block_tokens,
                               .key_type = type,
                               .value_type = type,
                               .threads = threads});
      };
      const Bits expected = bits_alone(*executor(32, 1), tokens);
      for (const uint32_t block_tokens : {1U, 16U, 128U}) {
        const auto other = executor(block_tokens, 2);
        for (const uint32_t chunk : {1U, 7U, 100U, 512U}) {
          if (chunk == 1 && block_tokens != 16) continue;  // the slowest, once is enough
          BatchDriver driver(*other, chunk);
          std::vector<Bits> bits;
          driver.finish(driver.add(tokens), chunk, into(bits));
          ASSERT_EQ(bits[0], expected)
              << tensor_type_info(shape.type)->name << ", KV " << kv_type_name(type)
              << ", blocks of " << block_tokens << ", chunks of " << chunk;
        }
      }
    }
  }
}

TEST(CpuExecutor, ComputesLatentAttentionAlikeFromBothFormsOfItsFiles) {
  const Model parts(testing::deepseek_model({}), {});
  const Model whole(testing::deepseek_model({.old = true}), {});
  EXPECT_FALSE(parts.spec().latent.fused);
  EXPECT_TRUE(whole.spec().latent.fused);
  Prng prng(16);
  const std::vector<TokenId> tokens = parts.random_tokens(70, prng);
  EXPECT_EQ(bits_alone(*whole.executor({}), tokens), bits_alone(*parts.executor({}), tokens));
}

TEST(CpuExecutor, ComputesAFusedTensorAsTheOnesItIsMadeOf) {
  for (const TensorType type :
       {TensorType::kF32, TensorType::kQ4_0, TensorType::kQ8_0, TensorType::kQ4_K}) {
    // Heads of 40: the parts end within panels. K types need rows of 256.
    const uint32_t head_dim = type == TensorType::kQ4_K ? 64 : 40;
    const LlamaShape shape = {.embedding = 256,
                              .heads = 4,
                              .kv_heads = 2,
                              .head_dim = head_dim,
                              .rope_dims = head_dim,
                              .ffn = 256,
                              .type = type};
    testing::ModelFile file = llama_model(shape);
    Model apart(file, shape);
    for (const std::string layer : {"blk.0.", "blk.1."}) {
      file.fuse({layer + "attn_q.weight", layer + "attn_k.weight", layer + "attn_v.weight"},
                layer + "attn_qkv.weight");
    }
    Model fused(file, shape);
    EXPECT_TRUE(fused.spec().layers[1].fused_qkv);
    EXPECT_EQ(fused.spec().parameters, apart.spec().parameters);
    Prng prng(14);
    const std::vector<TokenId> tokens = apart.random_tokens(20, prng);
    EXPECT_EQ(bits_alone(*fused.executor({}), tokens), bits_alone(*apart.executor({}), tokens));
  }
}

TEST(CpuExecutor, ContinuesACopiedPartialBlockWithTheSameBits) {
  Model model({.embedding = 96, .heads = 3, .kv_heads = 1, .head_dim = 32, .rope_dims = 32});
  struct Case {
    uint32_t block_tokens;
    KvType key_type, value_type;
  };
  for (const Case c :
       {Case{16, KvType::kF16, KvType::kF16}, Case{32, KvType::kF16, KvType::kF16},
        Case{16, KvType::kQ8_0, KvType::kQ8_0}, Case{32, KvType::kQ8_0, KvType::kF16}}) {
    const auto executor = model.executor(
        {.block_tokens = c.block_tokens, .key_type = c.key_type, .value_type = c.value_type});
    Prng prng(5);
    const std::vector<TokenId> first = model.random_tokens(90, prng);
    std::vector<Bits> ignored;
    for (uint32_t shared = 1; shared < first.size(); shared += 3) {
      std::vector<TokenId> second = model.random_tokens(first.size() + 9, prng);
      std::copy(first.begin(), first.begin() + shared, second.begin());
      const Bits expected = bits_alone(*executor, second);
      BatchDriver driver(*executor, shared);
      const std::size_t source = driver.add(first);
      driver.finish(source, 512, into(ignored));
      const std::size_t forked = driver.fork(source, shared, second);
      std::vector<Bits> bits;
      driver.finish(forked, 512, into(bits));
      for (std::size_t p = shared; p < second.size(); ++p) {
        ASSERT_EQ(bits[forked][p], expected[p]) << shared << " shared, position " << p;
      }
      // And the source is as it was.
      driver.append(source, second.back());
      driver.append(source, second.front());
      std::vector<TokenId> longer = first;
      longer.push_back(second.back());
      longer.push_back(second.front());
      driver.finish(source, 512, into(bits));
      const Bits source_expected = bits_alone(*executor, longer);
      ASSERT_EQ(bits[source].back(), source_expected.back());
    }
  }
}

TEST(CpuExecutor, ContinuesFromImportedBlocksWithTheSameBits) {
  Model model({.heads = 2, .kv_heads = 1, .head_dim = 32, .rope_dims = 32});
  Prng prng(9);
  const std::vector<TokenId> tokens = model.random_tokens(100, prng);
  const Setting setting = {.key_type = KvType::kF16, .value_type = KvType::kQ8_0};
  const auto first = model.executor(setting);
  const Bits expected = bits_alone(*first, tokens);

  BatchDriver source(*first, 3);
  std::vector<Bits> bits;
  const std::size_t s = source.add(std::vector<TokenId>(tokens.begin(), tokens.begin() + 96));
  source.finish(s, 512, into(bits));

  const auto second = model.executor(setting);
  std::vector<BlockId> table;
  for (uint32_t i = 0; i < 4; ++i) table.emplace_back(17 + 3 * i);
  ASSERT_TRUE(second->commit(0, table).has_value());
  for (uint32_t i = 0; i < 3; ++i) {
    std::vector<std::byte> bytes(second->geometry().block_bytes(0));
    first->export_block(0, source.blocks(s, 0)[i], bytes);
    second->import_block(0, table[i], bytes);
  }
  const std::span<const BlockId> tables[] = {table};
  const uint32_t rows[] = {0, 1, 2, 3};
  const StepRun run = {.tokens = std::span(tokens).subspan(96),
                       .position = 96,
                       .tables = tables,
                       .logits_rows = rows};
  const auto logits = second->step({&run, 1});
  ASSERT_TRUE(logits.has_value());
  for (uint32_t r = 0; r < 4; ++r) {
    EXPECT_EQ(xxh3(std::as_bytes(logits->row(r))), expected[96 + r]);
  }
}

TEST(CpuExecutor, WritesTheBlockLayoutThatIsDocumented) {
  // docs/formats/kv_block.md: K [layer][head][key_dim][B], then V [B][value_dim]. With f32 the
  // values can be compared with the reference's own keys: layer 0 of the first token, whose rope
  // angle is 0.
  Model model({});
  const auto executor =
      model.executor({.block_tokens = 16, .key_type = KvType::kF32, .value_type = KvType::kF32});
  const std::vector<TokenId> tokens = {TokenId(7)};
  BatchDriver driver(*executor, 1);
  std::vector<Bits> ignored;
  const std::size_t s = driver.add(tokens);
  driver.finish(s, 1, into(ignored));
  std::vector<std::byte> bytes(executor->geometry().block_bytes(0));
  executor->export_block(0, driver.blocks(s, 0)[0], bytes);

  const auto weights = model.weights();
  const auto& embeddings = weights("token_embd.weight");
  const testing::Row stream(embeddings.begin() + 7 * 64, embeddings.begin() + 8 * 64);
  const testing::Row normed = testing::rms_norm(stream, weights("blk.0.attn_norm.weight"), 1e-5);
  const testing::Row keys = testing::product(weights("blk.0.attn_k.weight"), normed);
  const testing::Row values = testing::product(weights("blk.0.attn_v.weight"), normed);
  const auto* floats = reinterpret_cast<const float*>(bytes.data());
  constexpr std::size_t kHeadFloats = 16 * (16 + 16);
  for (std::size_t head = 0; head < 2; ++head) {
    for (std::size_t d = 0; d < 16; ++d) {
      EXPECT_NEAR(floats[head * kHeadFloats + d * 16], keys[head * 16 + d], 1e-5);
      EXPECT_NEAR(floats[head * kHeadFloats + 16 * 16 + d], values[head * 16 + d], 1e-5);
      EXPECT_EQ(floats[head * kHeadFloats + d * 16 + 1], 0.0F) << "position 1 was never written";
    }
  }
}

TEST(CpuExecutor, RefusesHeadsThatAttentionDoesNotOfferC17) {
  const gguf::testing::TempFile on_disk(
      llama_model({.heads = 512, .kv_heads = 1, .head_dim = 2, .rope_dims = 2}).bytes());
  const auto file = gguf::File::open(on_disk.path());
  ASSERT_TRUE(file.has_value());
  const auto spec = spec_from_gguf(**file);
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  const auto geometry = make_geometry(*spec, 32, KvType::kF16, KvType::kF16);
  ASSERT_TRUE(geometry.has_value());
  const auto executor = CpuExecutor::create(**file, *spec, *geometry, {.blocks = {4}});
  ASSERT_FALSE(executor.has_value());
  EXPECT_EQ(executor.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(executor.error().message.find("512 query heads per KV head"), std::string::npos);
}

TEST(CpuExecutor, RefusesTokensOutsideTheVocabulary) {
  Model model({});
  const auto executor = model.executor({});
  const std::vector<BlockId> table = {BlockId(0)};
  ASSERT_TRUE(executor->commit(0, table).has_value());
  const std::span<const BlockId> tables[] = {table};
  for (const int32_t id : {-1, 96, 1 << 30}) {
    const std::vector<TokenId> tokens = {TokenId(id)};
    const StepRun run = {.tokens = tokens, .position = 0, .tables = tables};
    const auto logits = executor->step({&run, 1});
    ASSERT_FALSE(logits.has_value());
    EXPECT_EQ(logits.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(logits.error().message.find(std::to_string(id)), std::string::npos);
  }
}

TEST(CpuExecutor, TellsItsLimitsAndNeverTakesMoreThreadsThanCores) {
  Model model({});
  const auto executor = model.executor({.threads = 10'000, .blocks = 3, .step_tokens = 96});
  EXPECT_LE(executor->threads(), 4096U);
  EXPECT_EQ(executor->limits().step_tokens_max, 96U);
  EXPECT_EQ(executor->limits().context_max, 4096U);
  EXPECT_EQ(executor->blocks(0), 3U);
  EXPECT_EQ(executor->vocab_size(), 96U);
}

TEST(CpuExecutor, ASteadyStepAllocatesNothing) {
  for (const bool latent : {false, true}) {
    const Model model =
        latent ? Model(testing::deepseek_model(
                           {.type = TensorType::kQ8_0, .query_rank = 32, .sigmoid = true}),
                       {})
               : Model({});
    const auto executor = model.executor({});
    std::vector<BlockId> table;
    for (uint32_t i = 0; i < 64; ++i) table.emplace_back(i);
    ASSERT_TRUE(executor->commit(0, table).has_value());
    const std::span<const BlockId> tables[] = {table};
    Prng prng(3);
    const std::vector<TokenId> tokens = model.random_tokens(512, prng);
    const uint32_t last_of_chunk[] = {99};
    const uint32_t only[] = {0};
    const auto step = [&](uint32_t position, uint32_t count, std::span<const uint32_t> rows) {
      const StepRun run = {.tokens = std::span(tokens).subspan(0, count),
                           .position = position,
                           .tables = tables,
                           .logits_rows = rows};
      PW_CHECK(executor->step({&run, 1}).has_value());
    };
    step(0, 100, last_of_chunk);
    step(100, 1, only);
    const uint64_t before = pagewise::testing::allocation_count();
    step(101, 100, last_of_chunk);
    for (uint32_t i = 0; i < 200; ++i) step(201 + i, 1, only);
    EXPECT_EQ(pagewise::testing::allocation_count() - before, 0U) << (latent ? "latent" : "plain");
  }
}

TEST(CpuExecutor, NamesATensorWhoseTypeItCannotRead) {
  testing::ModelFile file = llama_model({.embedding = 64});
  file.remove_tensor("blk.1.ffn_up.weight");
  file.tensor("blk.1.ffn_up.weight", TensorType::kI32, {64, 96}, std::string(64 * 96 * 4, '\0'));
  const gguf::testing::TempFile temporary(file.bytes());
  const auto opened = gguf::File::open(temporary.path());
  ASSERT_TRUE(opened.has_value());
  const auto spec = spec_from_gguf(**opened);
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  const auto geometry = make_geometry(*spec, 32, KvType::kF16, KvType::kF16);
  const auto executor = CpuExecutor::create(**opened, *spec, *geometry, {.blocks = {4}});
  ASSERT_FALSE(executor.has_value());
  EXPECT_EQ(executor.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(executor.error().message.find("blk.1.ffn_up.weight"), std::string::npos);
  EXPECT_NE(executor.error().message.find("I32"), std::string::npos) << executor.error().message;
}

TEST(CpuExecutor, RefusesWeightsThatAreNotFinite) {
  testing::ModelFile file = llama_model({.embedding = 64});
  const float nan = std::nanf("");
  std::string norm;
  for (int i = 0; i < 64; ++i) norm.append(reinterpret_cast<const char*>(&nan), sizeof nan);
  file.remove_tensor("blk.0.ffn_norm.weight");
  file.tensor("blk.0.ffn_norm.weight", TensorType::kF32, {64}, norm);
  const gguf::testing::TempFile temporary(file.bytes());
  const auto opened = gguf::File::open(temporary.path());
  ASSERT_TRUE(opened.has_value());
  const auto spec = spec_from_gguf(**opened);
  ASSERT_TRUE(spec.has_value());
  const auto geometry = make_geometry(*spec, 32, KvType::kF16, KvType::kF16);
  const auto executor = CpuExecutor::create(**opened, *spec, *geometry, {.blocks = {4}});
  ASSERT_FALSE(executor.has_value());
  EXPECT_EQ(executor.error().code, ErrorCode::kMalformed);
  EXPECT_NE(executor.error().message.find("blk.0.ffn_norm.weight"), std::string::npos);
}

}  // namespace
}  // namespace pagewise::model
