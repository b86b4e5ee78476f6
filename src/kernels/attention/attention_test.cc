// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "kernels/half.h"
#include "kernels/isa_testing.h"
#include "kernels/kv_quant.h"
#include "kernels/ref.h"

namespace pagewise::kernels {
namespace {

using testing::expect_same;
using testing::on_each_isa;
using testing::random_floats;

// An arena of blocks for one layer, filled with a value that must never be read into a result.
class Arena {
 public:
  Arena(const AttentionShape& shape, uint32_t blocks, KvType key_type = KvType::kF16,
        KvType value_type = KvType::kF16, uint8_t fill = 0xff, bool latent = false) {
    layer_.block_tokens = shape.block_tokens;
    layer_.kv_heads = shape.kv_heads;
    layer_.key_dim = shape.key_dim;
    layer_.value_dim = shape.value_dim;
    layer_.key_type = key_type;
    layer_.value_type = value_type;
    layer_.latent = latent;
    const std::size_t keys = kv_row_bytes(key_type, shape.key_dim) * shape.block_tokens;
    layer_.value_offset = latent ? 0 : keys;
    layer_.head_stride =
        keys + (latent ? 0 : kv_row_bytes(value_type, shape.value_dim) * shape.block_tokens);
    layer_.block_stride = layer_.head_stride * shape.kv_heads;
    bytes_ = AlignedArray<std::byte>(layer_.block_stride * blocks);
    std::fill_n(bytes_.data(), bytes_.size(), static_cast<std::byte>(fill));  // NaN in every type
    layer_.base = bytes_.data();
  }
  const PagedLayer& layer() const { return layer_; }

 private:
  PagedLayer layer_;
  AlignedArray<std::byte> bytes_;
};

// One sequence: K, V and Q of all positions, so that any of them can be stored and asked for.
struct Sequence {
  std::vector<float> k;
  std::vector<float> v;
  std::vector<float> q;
  std::vector<BlockId> blocks;
};

Sequence random_sequence(Prng& prng, const AttentionShape& shape, uint32_t tokens) {
  return {random_floats(prng, std::size_t{tokens} * shape.kv_heads * shape.key_dim, 2),
          random_floats(prng, std::size_t{tokens} * shape.kv_heads * shape.value_dim, 2),
          random_floats(prng, std::size_t{tokens} * shape.heads * shape.key_dim, 2),
          {}};
}

// Gives the sequence blocks from `next` on, in an order that is not ascending.
void give_blocks(Sequence& sequence, const AttentionShape& shape, uint32_t tokens, uint32_t& next) {
  const auto count = static_cast<uint32_t>(ceil_div(tokens, shape.block_tokens));
  for (uint32_t i = static_cast<uint32_t>(sequence.blocks.size()); i < count; ++i) {
    sequence.blocks.push_back(BlockId(next++));
  }
  std::reverse(sequence.blocks.begin(), sequence.blocks.end());
}

void store(const PagedLayer& layer, const Sequence& s, uint32_t begin, uint32_t end) {
  const std::size_t k_stride = std::size_t{layer.kv_heads} * layer.key_dim;
  const std::size_t v_stride = std::size_t{layer.kv_heads} * layer.value_dim;
  const PagedRun run{0, end - begin, begin, s.blocks};
  store_kv(layer, run, {0, end - begin}, s.k.data() + begin * k_stride, k_stride,
           s.v.data() + begin * v_stride, v_stride);
}

struct KvTypes {
  KvType key;
  KvType value;
};

struct Ask {
  const Sequence* sequence;
  uint32_t position;
  uint32_t rows;
};

// Attention of some positions of some sequences in one step. [rows][heads * value_dim], in the
// order asked.
std::vector<float> attend(const AttentionShape& shape, const PagedLayer& layer,
                          std::span<const Ask> asks, std::size_t threads, uint32_t context_max,
                          const float* sinks = nullptr) {
  std::vector<PagedRun> runs;
  std::vector<float> q;
  uint32_t rows = 0;
  const std::size_t q_row = std::size_t{shape.heads} * shape.key_dim;
  for (const Ask& ask : asks) {
    runs.push_back({rows, ask.rows, ask.position, ask.sequence->blocks});
    rows += ask.rows;
    const auto first = ask.sequence->q.begin() + static_cast<std::ptrdiff_t>(ask.position * q_row);
    q.insert(q.end(), first, first + static_cast<std::ptrdiff_t>(ask.rows * q_row));
  }
  AttentionPlan plan(shape, {rows, static_cast<uint32_t>(asks.size()), context_max,
                             static_cast<uint32_t>(threads)});
  plan.build(runs);
  ThreadPool pool(threads);
  const std::size_t out_row = std::size_t{shape.heads} * shape.value_dim;
  std::vector<float> out(rows * out_row, -1.0f);
  pool.run([&](const ThreadPool::Context& context) {
    attention(plan, layer, q.data(), q_row, out.data(), out_row, context, sinks);
  });
  return out;
}

std::vector<float> reference(const AttentionShape& shape, const PagedLayer& layer,
                             std::span<const Ask> asks, const float* sinks = nullptr) {
  std::vector<float> out;
  const std::size_t out_row = std::size_t{shape.heads} * shape.value_dim;
  for (const Ask& ask : asks) {
    for (uint32_t t = ask.position; t < ask.position + ask.rows; ++t) {
      out.resize(out.size() + out_row);
      ref::attention(shape, layer, ask.sequence->blocks, t,
                     ask.sequence->q.data() + std::size_t{t} * shape.heads * shape.key_dim,
                     out.data() + out.size() - out_row, sinks);
    }
  }
  return out;
}

AttentionShape small_shape() {
  AttentionShape shape;
  shape.heads = 6;
  shape.kv_heads = 2;
  shape.key_dim = 32;
  shape.value_dim = 32;
  shape.block_tokens = 32;
  shape.scale = 1.0f / std::sqrt(32.0f);
  return shape;
}

TEST(Attention, EqualsTheReferenceForEveryTypeBlockSizeAndDimension) {
  Prng prng(21);
  struct Dims {
    uint32_t key;
    uint32_t value;
  };
  for (const Dims dims : {Dims{32, 32}, Dims{64, 64}, Dims{20, 13}, Dims{80, 96}, Dims{160, 96}}) {
    for (const uint32_t block_tokens : {32u, 7u, 16u, 1u, 300u}) {
      for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32, KvType::kQ8_0}) {
        if (type == KvType::kQ8_0 && (dims.key % 32 != 0 || dims.value % 32 != 0)) continue;
        AttentionShape shape = small_shape();
        shape.key_dim = dims.key;
        shape.value_dim = dims.value;
        shape.block_tokens = block_tokens;
        const uint32_t tokens = 340;
        Sequence s = random_sequence(prng, shape, tokens);
        uint32_t next = 0;
        give_blocks(s, shape, tokens, next);
        const Arena arena(shape, next, type, type);
        store(arena.layer(), s, 0, tokens);
        const Ask asks[] = {{&s, 0, 1}, {&s, 30, 5}, {&s, 250, 17}, {&s, 339, 1}};
        const std::vector<float> expected = reference(shape, arena.layer(), asks);
        on_each_isa([&](bool fma) {
          SCOPED_TRACE(::testing::Message()
                       << "block " << block_tokens << " dims " << dims.key << "/" << dims.value);
          expect_same(attend(shape, arena.layer(), asks, 1, tokens), expected, fma, 3e-5f);
        });
      }
    }
  }
}

TEST(Attention, GivesTheSameBitsWhereValuesAreThePartOfTheKeysThatTheyEqual) {
  // Latent attention: one KV head, whose keys begin with the values. Beside it the same numbers
  // stored apart.
  Prng prng(31);
  struct Dims {
    uint32_t key;
    uint32_t value;
  };
  for (const Dims dims : {Dims{48, 32}, Dims{96, 64}, Dims{20, 13}, Dims{33, 33}, Dims{576, 512}}) {
    for (const uint32_t block_tokens : {32u, 7u, 16u, 1u, 300u}) {
      for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32, KvType::kQ8_0}) {
        if (type == KvType::kQ8_0 && (dims.key % 32 != 0 || dims.value % 32 != 0)) continue;
        if (dims.key == 576 && block_tokens != 32) continue;  // the scalar truth is slow
        AttentionShape shape = small_shape();
        shape.kv_heads = 1;
        shape.key_dim = dims.key;
        shape.value_dim = dims.value;
        shape.block_tokens = block_tokens;
        const uint32_t tokens = 340;
        Sequence s = random_sequence(prng, shape, tokens);
        for (uint32_t t = 0; t < tokens; ++t) {
          std::copy_n(s.k.data() + std::size_t{t} * dims.key, dims.value,
                      s.v.data() + std::size_t{t} * dims.value);
        }
        uint32_t next = 0;
        give_blocks(s, shape, tokens, next);
        const Arena apart(shape, next, type, type);
        const Arena latent(shape, next, type, type, 0xff, true);
        store(apart.layer(), s, 0, tokens);
        store(latent.layer(), s, 0, tokens);
        const Ask asks[] = {{&s, 0, 1}, {&s, 30, 5}, {&s, 250, 17}, {&s, 339, 1}};
        const std::vector<float> expected = reference(shape, latent.layer(), asks);
        on_each_isa([&](bool fma) {
          SCOPED_TRACE(::testing::Message()
                       << "block " << block_tokens << " dims " << dims.key << "/" << dims.value);
          const std::vector<float> out = attend(shape, latent.layer(), asks, 2, tokens);
          expect_same(out, expected, fma, 3e-5f);
          expect_same(out, attend(shape, apart.layer(), asks, 1, tokens), true);
        });
      }
    }
  }
}

TEST(Attention, IsCloseToSoftmaxInDoublePrecision) {
  Prng prng(22);
  const AttentionShape shape = small_shape();
  const uint32_t tokens = 700;
  Sequence s = random_sequence(prng, shape, tokens);
  uint32_t next = 0;
  give_blocks(s, shape, tokens, next);
  const Arena arena(shape, next, KvType::kF32, KvType::kF32);
  store(arena.layer(), s, 0, tokens);
  const Ask asks[] = {{&s, 699, 1}};
  const std::vector<float> out = attend(shape, arena.layer(), asks, 1, tokens);
  for (uint32_t h = 0; h < shape.heads; ++h) {
    std::vector<double> weights(tokens);
    double sum = 0;
    for (uint32_t t = 0; t < tokens; ++t) {
      double score = 0;
      for (uint32_t d = 0; d < 32; ++d) {
        score += double{s.q[(699 * shape.heads + h) * 32 + d]} *
                 s.k[(t * shape.kv_heads + h / 3) * 32 + d];
      }
      weights[t] = std::exp(score * shape.scale);
      sum += weights[t];
    }
    for (uint32_t j = 0; j < 32; ++j) {
      double expected = 0;
      for (uint32_t t = 0; t < tokens; ++t) {
        expected += weights[t] / sum * s.v[(t * shape.kv_heads + h / 3) * 32 + j];
      }
      EXPECT_NEAR(out[h * 32 + j], expected, 2e-5);
    }
  }
}

TEST(Attention, ASinkTakesPartInTheSoftmaxWithoutAValue) {
  // Beside softmax in double precision over the positions and the sink; from one that takes nothing
  // to one that takes all.
  Prng prng(36);
  for (const uint32_t window : {0u, 100u}) {
    AttentionShape shape = small_shape();
    shape.window = window;
    const uint32_t tokens = 700;
    Sequence s = random_sequence(prng, shape, tokens);
    uint32_t next = 0;
    give_blocks(s, shape, tokens, next);
    const Arena arena(shape, next, KvType::kF32, KvType::kF32);
    store(arena.layer(), s, 0, tokens);
    const std::vector<float> sinks = {-1e30f, -3.0f, 0.0f, 2.5f, 9.0f, 1e30f};
    const Ask asks[] = {{&s, 699, 1}};
    const std::vector<float> out = attend(shape, arena.layer(), asks, 1, tokens, sinks.data());
    for (uint32_t h = 0; h < shape.heads; ++h) {
      const uint32_t first = window == 0 ? 0 : tokens - window;
      std::vector<double> scores(tokens);
      double most = double{sinks[h]};
      for (uint32_t t = first; t < tokens; ++t) {
        for (uint32_t d = 0; d < 32; ++d) {
          scores[t] += double{s.q[(699 * shape.heads + h) * 32 + d]} *
                       s.k[(t * shape.kv_heads + h / 3) * 32 + d] * double{shape.scale};
        }
        most = std::max(most, scores[t]);
      }
      double sum = std::exp(double{sinks[h]} - most);
      for (uint32_t t = first; t < tokens; ++t) sum += std::exp(scores[t] - most);
      for (uint32_t j = 0; j < 32; ++j) {
        double expected = 0;
        for (uint32_t t = first; t < tokens; ++t) {
          expected += std::exp(scores[t] - most) / sum * s.v[(t * shape.kv_heads + h / 3) * 32 + j];
        }
        EXPECT_NEAR(out[h * 32 + j], expected, 2e-5) << "head " << h;
      }
    }
    // The first head's is as good as none.
    const std::vector<float> without = attend(shape, arena.layer(), asks, 1, tokens);
    expect_same(std::span(out).first(32), std::span(without).first(32), true);
  }
}

TEST(Attention, AttentionRule1_WithSinksARowIsTheSameAloneInAChunkInABatchAndOnAnyThread) {
  Prng prng(37);
  for (const uint32_t window : {0u, 300u}) {
    AttentionShape shape = small_shape();
    shape.window = window;
    const uint32_t prefix = 416;
    const uint32_t tokens = 800;
    const std::vector<float> sinks = random_floats(prng, shape.heads, 3);
    Sequence a = random_sequence(prng, shape, tokens);
    Sequence b = random_sequence(prng, shape, tokens);
    uint32_t next = 0;
    give_blocks(a, shape, tokens, next);
    // Shares the blocks of a prefix.
    std::copy_n(a.k.begin(), prefix * shape.kv_heads * shape.key_dim, b.k.begin());
    std::copy_n(a.v.begin(), prefix * shape.kv_heads * shape.value_dim, b.v.begin());
    b.blocks.assign(a.blocks.begin(), a.blocks.begin() + prefix / shape.block_tokens);
    while (b.blocks.size() < a.blocks.size()) b.blocks.push_back(BlockId(next++));
    const Arena arena(shape, next);
    store(arena.layer(), a, 0, tokens);
    store(arena.layer(), b, prefix, tokens);
    const std::size_t row = std::size_t{shape.heads} * shape.value_dim;
    const Ask all[] = {{&a, 0, tokens}};
    const std::vector<float> truth = reference(shape, arena.layer(), all, sinks.data());
    on_each_isa([&](bool fma) {
      const std::vector<float> whole = attend(shape, arena.layer(), all, 1, tokens, sinks.data());
      expect_same(whole, truth, fma, 3e-5f);
      for (const uint32_t chunk : {1u, 7u, 256u}) {
        for (uint32_t at = 0; at < tokens; at += chunk * (chunk == 1 ? 37 : 1)) {
          const uint32_t count = std::min(chunk, tokens - at);
          const Ask some[] = {{&b, 3, 1}, {&a, at, count}, {&b, 790, 2}};
          const std::vector<float> out =
              attend(shape, arena.layer(), some, 1 + at % 3, tokens, sinks.data());
          expect_same(std::span(out).subspan(row, count * row),
                      std::span(whole).subspan(at * row, count * row), true);
        }
      }
    });
  }
}

TEST(Attention, AttentionRule1_ARowIsTheSameAloneInAChunkAndInABatch) {
  Prng prng(23);
  const AttentionShape shape = small_shape();
  const uint32_t tokens = 600;
  Sequence a = random_sequence(prng, shape, tokens);
  Sequence b = random_sequence(prng, shape, tokens);
  uint32_t next = 0;
  give_blocks(a, shape, tokens, next);
  give_blocks(b, shape, tokens, next);
  const Arena arena(shape, next);
  store(arena.layer(), a, 0, tokens);
  store(arena.layer(), b, 0, tokens);
  const std::size_t row = std::size_t{shape.heads} * shape.value_dim;
  on_each_isa([&](bool) {
    const Ask all[] = {{&a, 0, tokens}};
    const std::vector<float> whole = attend(shape, arena.layer(), all, 1, tokens);
    for (const uint32_t chunk : {1u, 7u, 64u, 256u}) {
      for (uint32_t at = 0; at < tokens; at += chunk * (chunk == 1 ? 37 : 1)) {
        const uint32_t count = std::min(chunk, tokens - at);
        const Ask some[] = {{&b, 3, 1}, {&a, at, count}, {&b, 511, 70}};
        const std::vector<float> out = attend(shape, arena.layer(), some, 2, tokens);
        expect_same(std::span(out).subspan(row, count * row),
                    std::span(whole).subspan(at * row, count * row), true);
      }
    }
  });
}

TEST(Attention, AttentionRule4_BlockSizeDoesNotEnter) {
  Prng prng(24);
  AttentionShape shape = small_shape();
  const uint32_t tokens = 530;
  const Sequence original = random_sequence(prng, shape, tokens);
  constexpr KvTypes kTypes[] = {{KvType::kF16, KvType::kF16},
                                {KvType::kQ8_0, KvType::kQ8_0},
                                {KvType::kQ8_0, KvType::kF32},
                                {KvType::kBF16, KvType::kQ8_0}};
  for (const KvTypes types : kTypes) {
    std::vector<std::vector<float>> results;
    on_each_isa([&](bool) {
      results.clear();
      for (const uint32_t block_tokens : {1u, 7u, 16u, 32u, 64u, 128u, 256u, 1000u}) {
        shape.block_tokens = block_tokens;
        Sequence s = original;
        uint32_t next = 0;
        give_blocks(s, shape, tokens, next);
        const Arena arena(shape, next, types.key, types.value);
        store(arena.layer(), s, 0, tokens);
        const Ask asks[] = {{&s, 529, 1}, {&s, 200, 80}, {&s, 0, 40}};
        results.push_back(attend(shape, arena.layer(), asks, 2, tokens));
        expect_same(results.back(), results.front(), true);
      }
    });
  }
}

TEST(Attention, AttentionRule1_ThreadsDoNotEnter) {
  Prng prng(25);
  const AttentionShape shape = small_shape();
  const uint32_t tokens = 1100;
  Sequence s = random_sequence(prng, shape, tokens);
  uint32_t next = 0;
  give_blocks(s, shape, tokens, next);
  const Arena arena(shape, next);
  store(arena.layer(), s, 0, tokens);
  const Ask asks[] = {{&s, 1099, 1}, {&s, 900, 3}, {&s, 400, 100}};
  const std::vector<float> one = attend(shape, arena.layer(), asks, 1, tokens);
  for (const std::size_t threads : {2, 3, 7}) {
    expect_same(attend(shape, arena.layer(), asks, threads, tokens), one, true);
  }
}

TEST(Attention, AttentionRule4_SharingBlocksWithOthersDoesNotShow) {
  Prng prng(26);
  const AttentionShape shape = small_shape();
  const uint32_t prefix = 544;  // ends inside a segment
  const uint32_t tokens = 900;
  Sequence first = random_sequence(prng, shape, tokens);
  uint32_t next = 0;
  give_blocks(first, shape, tokens, next);
  std::vector<Sequence> others;
  for (int i = 0; i < 40; ++i) {
    Sequence s = random_sequence(prng, shape, tokens);
    std::copy_n(first.k.begin(), prefix * shape.kv_heads * shape.key_dim, s.k.begin());
    std::copy_n(first.v.begin(), prefix * shape.kv_heads * shape.value_dim, s.v.begin());
    s.blocks.assign(first.blocks.begin(), first.blocks.begin() + prefix / shape.block_tokens);
    while (s.blocks.size() < first.blocks.size()) s.blocks.push_back(BlockId(next++));
    others.push_back(std::move(s));
  }
  const Arena arena(shape, next);
  store(arena.layer(), first, 0, tokens);
  for (const Sequence& s : others) store(arena.layer(), s, prefix, tokens);
  std::vector<Ask> asks = {{&first, 899, 1}};
  for (std::size_t i = 0; i < others.size(); ++i) {
    asks.push_back({&others[i], static_cast<uint32_t>(600 + 5 * i), i % 5 == 0 ? 4u : 1u});
  }
  on_each_isa([&](bool) {
    const std::vector<float> together = attend(shape, arena.layer(), asks, 2, tokens);
    std::size_t at = 0;
    for (const Ask& ask : asks) {
      const std::vector<float> alone = attend(shape, arena.layer(), {&ask, 1}, 1, tokens);
      expect_same(std::span(together).subspan(at, alone.size()), alone, true);
      at += alone.size();
    }
  });
}

TEST(Attention, AttentionRule5_PositionsOutsideTheMaskAreNeverUsed) {
  // Everything that a row may not see is NaN: later positions, the rest of a block, blocks behind
  // the window.
  Prng prng(27);
  for (const uint32_t window : {0u, 1u, 50u, 256u, 300u}) {
    for (const uint32_t block_tokens : {32u, 7u}) {
      AttentionShape shape = small_shape();
      shape.window = window;
      shape.block_tokens = block_tokens;
      const uint32_t tokens = 640;
      Sequence s = random_sequence(prng, shape, tokens);
      uint32_t next = 0;
      give_blocks(s, shape, tokens, next);
      const Arena clean(shape, next);
      store(clean.layer(), s, 0, tokens);
      for (const uint32_t position : {0u, 33u, 255u, 256u, 400u, 601u}) {
        for (const uint32_t rows : {1u, 3u, 20u}) {
          const uint32_t begin = window != 0 && position + 1 > window ? position + 1 - window : 0;
          Sequence masked = s;
          for (std::size_t i = 0; i < begin / block_tokens; ++i)
            masked.blocks[i] = BlockId();  // gone
          const Arena poisoned(shape, next);
          store(poisoned.layer(), masked, begin, position + rows);
          const Ask poisoned_ask[] = {{&masked, position, rows}};
          const Ask clean_ask[] = {{&s, position, rows}};
          const std::vector<float> expected = reference(shape, clean.layer(), clean_ask);
          on_each_isa([&](bool fma) {
            expect_same(attend(shape, poisoned.layer(), poisoned_ask, 2, tokens), expected, fma,
                        3e-5f);
          });
        }
      }
    }
  }
}

TEST(Attention, AttentionRule5_ALaterTokensOverflowDoesNotReachEarlierRows) {
  // Values beyond f16 become infinite; rows of the same tile that do not see them stay finite.
  Prng prng(28);
  const AttentionShape shape = small_shape();
  Sequence s = random_sequence(prng, shape, 64);
  uint32_t next = 0;
  give_blocks(s, shape, 64, next);
  for (uint32_t j = 0; j < shape.kv_heads * shape.value_dim; ++j)
    s.v[40 * shape.kv_heads * shape.value_dim + j] = 1e6f;
  const Arena arena(shape, next);
  store(arena.layer(), s, 0, 64);
  const Ask asks[] = {{&s, 20, 44}};
  const std::vector<float> out = attend(shape, arena.layer(), asks, 1, 64);
  const std::size_t row = std::size_t{shape.heads} * shape.value_dim;
  for (std::size_t i = 0; i < 20 * row; ++i) ASSERT_TRUE(std::isfinite(out[i])) << i;
  EXPECT_TRUE(std::isinf(out[20 * row]));
}

TEST(Attention, AttentionRule3_KeysAndValuesAreReadBackThroughTheCacheType) {
  Prng prng(29);
  const AttentionShape shape = small_shape();
  Sequence s = random_sequence(prng, shape, 8);
  uint32_t next = 0;
  give_blocks(s, shape, 8, next);
  const Arena arena(shape, next, KvType::kBF16, KvType::kF16);
  store(arena.layer(), s, 0, 8);
  std::vector<float> k(shape.key_dim);
  std::vector<float> v(shape.value_dim);
  for (uint32_t t = 0; t < 8; ++t) {
    for (uint32_t h = 0; h < shape.kv_heads; ++h) {
      load_kv(arena.layer(), s.blocks, t, h, k.data(), v.data());
      for (uint32_t d = 0; d < shape.key_dim; ++d) {
        const float x = s.k[(t * shape.kv_heads + h) * shape.key_dim + d];
        EXPECT_NEAR(k[d], x, std::abs(x) * 0x1p-8);
        EXPECT_EQ(std::bit_cast<uint32_t>(k[d]) & 0xffff, 0u);
      }
      for (uint32_t d = 0; d < shape.value_dim; ++d) {
        const float x = s.v[(t * shape.kv_heads + h) * shape.value_dim + d];
        EXPECT_NEAR(v[d], x, std::abs(x) * 0x1p-11 + 0x1p-24);
        EXPECT_EQ(std::bit_cast<uint32_t>(v[d]) & 0x1fff, 0u);
      }
    }
  }
}

TEST(Attention, AttentionRule3_Q8KeepsEachGroupWithinHalfAStepOfItsLargestValue) {
  Prng prng(34);
  AttentionShape shape = small_shape();
  shape.key_dim = 96;
  shape.value_dim = 64;
  shape.block_tokens = 7;
  Sequence s = random_sequence(prng, shape, 20);
  uint32_t next = 0;
  give_blocks(s, shape, 20, next);
  on_each_isa([&](bool) {
    const Arena arena(shape, next, KvType::kQ8_0, KvType::kQ8_0);
    store(arena.layer(), s, 0, 20);
    std::vector<float> k(shape.key_dim);
    std::vector<float> v(shape.value_dim);
    const auto check = [](std::span<const float> read, const float* x) {
      for (std::size_t g = 0; g < read.size(); g += kKvScaleGroup) {
        const ref::KvGroup expected = ref::quantize_kv(x + g);
        float amax = 0;
        for (std::size_t i = 0; i < kKvScaleGroup; ++i) amax = std::max(amax, std::abs(x[g + i]));
        for (std::size_t i = 0; i < kKvScaleGroup; ++i) {
          ASSERT_EQ(read[g + i],
                    static_cast<float>(expected.codes[i]) * half_to_float(expected.scale));
          // Half a step, and the rounding of the scale to f16.
          ASSERT_NEAR(read[g + i], x[g + i], amax / 254 * (1 + 0x1p-9f));
        }
      }
    };
    for (uint32_t t = 0; t < 20; ++t) {
      for (uint32_t h = 0; h < shape.kv_heads; ++h) {
        load_kv(arena.layer(), s.blocks, t, h, k.data(), v.data());
        check(k, s.k.data() + (t * shape.kv_heads + h) * shape.key_dim);
        check(v, s.v.data() + (t * shape.kv_heads + h) * shape.value_dim);
      }
    }
  });
}

TEST(Attention, SoftCapBoundsTheScores) {
  Prng prng(30);
  AttentionShape shape = small_shape();
  shape.logit_softcap = 2.0f;
  shape.scale = 5.0f;
  Sequence s = random_sequence(prng, shape, 300);
  uint32_t next = 0;
  give_blocks(s, shape, 300, next);
  const Arena arena(shape, next);
  store(arena.layer(), s, 0, 300);
  const Ask asks[] = {{&s, 299, 1}, {&s, 100, 20}};
  const std::vector<float> expected = reference(shape, arena.layer(), asks);
  on_each_isa([&](bool fma) {
    expect_same(attend(shape, arena.layer(), asks, 1, 300), expected, fma, 3e-5f);
  });
}

TEST(Attention, RefusesShapesItCannotDoInWords) {
  AttentionShape shape = small_shape();
  EXPECT_TRUE(check_attention_shape(shape).has_value());
  shape.heads = 7;
  EXPECT_NE(check_attention_shape(shape).error().message.find("7 query heads on 2 KV heads"),
            std::string::npos);
  shape.heads = 600;
  EXPECT_NE(check_attention_shape(shape).error().message.find("at most 256"), std::string::npos);
  shape = small_shape();
  shape.value_dim = 0;
  EXPECT_EQ(check_attention_shape(shape).code(), ErrorCode::kUnsupported);
}

TEST(Attention, ManyQueryHeadsPerKvHeadAndOneToOneBothWork) {
  Prng prng(31);
  struct Heads {
    uint32_t query;
    uint32_t kv;
  };
  for (const Heads heads : {Heads{4, 4}, Heads{20, 1}, Heads{130, 1}}) {
    AttentionShape shape = small_shape();
    shape.heads = heads.query;
    shape.kv_heads = heads.kv;
    Sequence s = random_sequence(prng, shape, 290);
    uint32_t next = 0;
    give_blocks(s, shape, 290, next);
    const Arena arena(shape, next);
    store(arena.layer(), s, 0, 290);
    const Ask asks[] = {{&s, 289, 1}, {&s, 10, 9}};
    const std::vector<float> expected = reference(shape, arena.layer(), asks);
    on_each_isa([&](bool fma) {
      expect_same(attend(shape, arena.layer(), asks, 2, 290), expected, fma, 3e-5f);
    });
  }
}

TEST(Attention, WhenScratchIsFullRowsStreamWithTheSameBits) {
  Prng prng(32);
  const AttentionShape shape = small_shape();
  const uint32_t tokens = 1500;
  Sequence s = random_sequence(prng, shape, tokens);
  uint32_t next = 0;
  give_blocks(s, shape, tokens, next);
  const Arena arena(shape, next);
  store(arena.layer(), s, 0, tokens);
  // Scratch holds the states of one row a run; short runs of eight rows are more than that
  // together.
  std::vector<Ask> asks;
  for (uint32_t i = 0; i < 40; ++i) asks.push_back({&s, 1100 + 8 * i, 8});
  const std::vector<float> together = attend(shape, arena.layer(), asks, 2, tokens);
  std::size_t at = 0;
  for (const Ask& ask : asks) {
    const std::vector<float> alone = attend(shape, arena.layer(), {&ask, 1}, 1, tokens);
    expect_same(std::span(together).subspan(at, alone.size()), alone, true);
    at += alone.size();
  }
}

TEST(Attention, RandomMixedStepsEqualTheReference) {
  const uint64_t seed = 33;
  RecordProperty("seed", static_cast<int>(seed));
  Prng prng(seed);
  for (int round = 0; round < 30; ++round) {
    AttentionShape shape;
    shape.kv_heads = 1 + static_cast<uint32_t>(prng.below(3));
    shape.heads = shape.kv_heads * (1 + static_cast<uint32_t>(prng.below(4)));
    shape.key_dim = 1 + static_cast<uint32_t>(prng.below(70));
    shape.value_dim = 1 + static_cast<uint32_t>(prng.below(70));
    shape.block_tokens = 1 + static_cast<uint32_t>(prng.below(70));
    shape.window = prng.below(2) == 0 ? 0 : 1 + static_cast<uint32_t>(prng.below(400));
    shape.scale = 0.2f;
    constexpr KvType kTypes[] = {KvType::kF16, KvType::kBF16, KvType::kF32, KvType::kQ8_0};
    const KvTypes types = {kTypes[prng.below(4)], kTypes[prng.below(4)]};
    const auto whole_groups = [](KvType type, uint32_t dim) {
      return type == KvType::kQ8_0 ? static_cast<uint32_t>(round_up(dim, kKvScaleGroup)) : dim;
    };
    shape.key_dim = whole_groups(types.key, shape.key_dim);
    shape.value_dim = whole_groups(types.value, shape.value_dim);
    const uint32_t tokens = 1 + static_cast<uint32_t>(prng.below(800));
    std::vector<Sequence> sequences(1 + prng.below(4));
    uint32_t next = 0;
    for (Sequence& s : sequences) {
      s = random_sequence(prng, shape, tokens);
      give_blocks(s, shape, tokens, next);
    }
    const Arena arena(shape, next, types.key, types.value);
    std::vector<Ask> asks;
    for (const Sequence& s : sequences) {
      store(arena.layer(), s, 0, tokens);
      const auto position = static_cast<uint32_t>(prng.below(tokens));
      asks.push_back(
          {&s, position, 1 + static_cast<uint32_t>(prng.below(std::min(60u, tokens - position)))});
    }
    const std::vector<float> some = random_floats(prng, shape.heads, 4);
    const float* sinks = prng.below(2) == 0 ? some.data() : nullptr;
    const std::vector<float> expected = reference(shape, arena.layer(), asks, sinks);
    on_each_isa([&](bool fma) {
      SCOPED_TRACE(::testing::Message() << "round " << round);
      expect_same(attend(shape, arena.layer(), asks, 1 + prng.below(3), tokens, sinks), expected,
                  fma, 5e-5f);
    });
  }
}

TEST(KvQuant, GivesTheReferencesBytesOnEveryIsa) {
  Prng prng(35);
  std::vector<float> x;
  for (int group = 0; group < 60; ++group) {
    const std::vector<float> part =
        random_floats(prng, kKvScaleGroup, std::exp2(static_cast<double>(prng.below(60)) - 35));
    x.insert(x.end(), part.begin(), part.end());
  }
  std::fill_n(x.begin(), kKvScaleGroup, 0.0f);
  std::fill_n(x.begin() + kKvScaleGroup, kKvScaleGroup, 127.0f * 0x1p-25f);  // a scale of 0: a tie
  x[100] = 3e38f;  // beyond the largest scale
  for (int i = 0; i < 5; ++i) x[160 + i] = static_cast<float>(i) + 0.5f;  // ties between codes
  x[165] = 127.0f;
  std::vector<int8_t> codes(x.size());
  std::vector<uint16_t> scales(x.size() / kKvScaleGroup);
  on_each_isa([&](bool) {
    quantize_kv(x.data(), x.size(), codes.data(), scales.data());
    for (std::size_t g = 0; g < scales.size(); ++g) {
      const ref::KvGroup expected = ref::quantize_kv(x.data() + g * kKvScaleGroup);
      ASSERT_EQ(scales[g], expected.scale) << "group " << g;
      for (std::size_t i = 0; i < kKvScaleGroup; ++i) {
        ASSERT_EQ(codes[g * kKvScaleGroup + i], expected.codes[i]) << "group " << g;
      }
    }
  });
}

TEST(KvQuant, WhatIsNotFiniteBecomesFiniteCodesAndScales) {
  on_each_isa([&](bool) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      float x[kKvScaleGroup] = {1.0f, bad, 2.0f};
      int8_t codes[kKvScaleGroup];
      uint16_t scale;
      quantize_kv(x, kKvScaleGroup, codes, &scale);
      EXPECT_TRUE(std::isfinite(half_to_float(scale)));
      for (const int8_t code : codes) EXPECT_GE(code, -127);
    }
  });
}

}  // namespace
}  // namespace pagewise::kernels
