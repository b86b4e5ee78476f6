// SPDX-License-Identifier: Apache-2.0
// Kernels of every instruction set that this CPU has against the scalar truth (kernels/ref.h), over
// shapes, weight types, KV types, block lists and windows that the input chooses.
//
// With FMA the bits must be equal (docs/design.md, section 5); without it (EMU128) a result is near
// the truth, and still a function of its own row alone. Values come from a generator seeded by the
// input: libFuzzer chooses shapes, not floats.
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/prng.h"
#include "fuzz/fuzz.h"
#include "kernels/attention/attention.h"
#include "kernels/half.h"
#include "kernels/isa.h"
#include "kernels/isa_testing.h"
#include "kernels/linear/linear.h"
#include "kernels/ops.h"
#include "kernels/ref.h"
#include "kernels/thread_pool.h"

namespace pagewise::kernels {
namespace {

using fuzz::Input;
using testing::on_each_isa;

/// Equal bits; any two NaNs are equal, because which operand's NaN comes out is the hardware's
/// choice.
bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

/// Without FMA: within `tolerance`, which the caller gives in units of the result.
void expect_near(std::span<const float> actual, std::span<const float> expected, bool exact,
                 float tolerance, const std::string& what) {
  FUZZ_CHECK(actual.size() == expected.size(), "{}", what);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const bool same =
        exact ? same_bits(actual[i], expected[i]) : std::fabs(actual[i] - expected[i]) <= tolerance;
    FUZZ_CHECK(same, "{} on {}, index {}: {} is not {}", what, isa_name(), i, actual[i],
               expected[i]);
  }
}

/// Floats of a kind that the input chooses.
class Values {
 public:
  /// With `bounded` no sum or product of a few of them overflows.
  explicit Values(Input& in, bool bounded = false)
      : kind_(in.byte() % (bounded ? 5 : 6)), prng_(in.number(4)) {}

  /// Values of ordinary size, for which a tolerance means something.
  bool is_tame() const { return kind_ < 3; }
  float next() {
    const auto uniform = static_cast<float>(prng_.uniform() * 2 - 1);
    switch (kind_) {
      case 0:
        return uniform * 2;
      case 1:  // many zeros and ties
        return static_cast<float>(static_cast<int>(prng_.below(5)) - 2) * 0.5f;
      case 2:
        return uniform * std::exp2(static_cast<float>(prng_.below(8)) - 5);
      case 3:  // subnormals and neighbours
        return uniform * 1e-37f;
      case 4:  // the integer forms at their extremes
        return prng_.below(2) == 0 ? 127.0f : -127.0f;
      default:
        return uniform * std::exp2(static_cast<float>(prng_.below(240)) - 120);
    }
  }
  std::vector<float> list(std::size_t n) {
    std::vector<float> out(n);
    for (float& x : out) x = next();
    return out;
  }
  Prng& prng() { return prng_; }

 private:
  const int kind_;
  Prng prng_;
};

// ---------------------------------------------------------------- linear layers

constexpr TensorType kWeightTypes[] = {
    TensorType::kQ4_1,   TensorType::kQ5_0,   TensorType::kQ8_0,  TensorType::kQ4_K,
    TensorType::kQ6_K,   TensorType::kF32,    TensorType::kF16,   TensorType::kBF16,
    TensorType::kQ4_0,   TensorType::kQ5_1,   TensorType::kQ2_K,  TensorType::kQ3_K,
    TensorType::kQ5_K,   TensorType::kIQ4_NL, TensorType::kMXFP4, TensorType::kIQ2_XXS,
    TensorType::kIQ4_XS, TensorType::kIQ3_S,  TensorType::kTQ2_0};

/// Where the f16 scales of a block stand.
std::vector<std::size_t> half_fields(TensorType type) {
  switch (type) {
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return {0, 2};
    case TensorType::kQ2_K:
      return {80, 82};
    case TensorType::kQ3_K:
      return {108};
    case TensorType::kQ6_K:
      return {208};
    case TensorType::kTQ2_0:
      return {64};
    case TensorType::kF32:
    case TensorType::kBF16:
    case TensorType::kMXFP4:
      return {};
    default:
      return {0};
  }
}

/// Random codes; scales of ordinary size, unless `any_bytes`.
std::vector<std::byte> weights_of(Prng& prng, TensorType type, std::size_t bytes, bool any_bytes) {
  std::vector<std::byte> data(bytes);
  for (std::byte& byte : data) byte = static_cast<std::byte>(prng.next() >> 56);
  if (any_bytes) return data;
  const TensorTypeInfo& info = *tensor_type_info(type);
  for (std::size_t at = 0; at < bytes; at += info.block_bytes) {
    for (const std::size_t field : half_fields(type)) {
      const uint16_t half = float_to_half(static_cast<float>(prng.uniform() * 0.1 - 0.05));
      std::memcpy(data.data() + at + field, &half, sizeof half);
    }
    if (type == TensorType::kF32) {
      const auto value = static_cast<float>(prng.uniform() * 2 - 1);
      std::memcpy(data.data() + at, &value, sizeof value);
    }
    if (type == TensorType::kBF16) {
      const uint16_t value = float_to_bf16(static_cast<float>(prng.uniform() * 2 - 1));
      std::memcpy(data.data() + at, &value, sizeof value);
    }
    if (type == TensorType::kMXFP4) data[at] = static_cast<std::byte>(118 + prng.below(10));
  }
  return data;
}

void check_linear(Input& in) {
  const TensorType type = in.pick(kWeightTypes);
  const bool any_bytes = in.byte() % 8 == 7;
  const std::size_t block = tensor_type_info(type)->block_elements;
  const bool integer = linear_family(type) == LinearFamily::kInteger;
  const std::size_t unit = integer ? std::max<std::size_t>(block, kQuantBlock) : block;
  const std::size_t columns = unit * in.between(1, std::max<std::size_t>(1, 640 / unit));
  const std::size_t outputs = in.between(1, 50);
  const std::size_t rows = in.between(1, 30);
  const std::size_t row_split = in.below(rows + 1);
  const std::size_t first_row = in.below(6);  // rows before them, which must not matter
  Values values(in);
  const std::vector<std::byte> data =
      weights_of(values.prng(), type, outputs * row_bytes(type, columns), any_bytes);
  const auto packed = LinearWeights::pack(type, outputs, columns, data);
  if (!packed) {  // only types that need ggml, in a build without
    FUZZ_CHECK(packed.error().code == ErrorCode::kUnsupported, "{}", packed.error().message);
    return;
  }
  const LinearWeights& weights = *packed;
  const std::string what =
      fmt::format("linear {} {}x{} rows {}", tensor_type_info(type)->name, outputs, columns, rows);
  Activations x(first_row + rows, columns);
  for (std::size_t r = 0; r < x.rows(); ++r) {
    for (std::size_t k = 0; k < columns; ++k) x.row(r)[k] = values.next();
  }
  std::vector<float> decoded(columns);
  std::vector<float> expected;
  float largest = 0;  // the largest sum of |w x|: what rounding errors are relative to
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < outputs; ++o) {
      const std::byte* row = data.data() + o * row_bytes(type, columns);
      expected.push_back(ref::linear(type, row, x.row(first_row + r), columns));
      find_to_float(type).value()(row, decoded.data(), static_cast<int64_t>(columns));
      float sum = 0;
      for (std::size_t k = 0; k < columns; ++k)
        sum += std::fabs(decoded[k] * x.row(first_row + r)[k]);
      largest = std::max(largest, sum);
      if (r == 0 && o + 1 == outputs) {
        std::vector<float> given_back(columns);
        weights.decode_row(o, given_back.data());
        expect_near(given_back, decoded, true, 0, what + " decoded");
      }
    }
  }
  constexpr float kUntouched = 12345.0f;
  const std::size_t stride = outputs + 3;
  on_each_isa([&](bool fma) {
    if (!fma && (any_bytes || !values.is_tame())) return;
    for (std::size_t r = 0; r < x.rows(); ++r) {
      if (integer) x.quantize(r);
    }
    // In two pieces of rows, and panels one by one or all at once.
    std::vector<float> out(rows * stride, kUntouched);
    const std::size_t middle = first_row + row_split;
    for (const Range part : {Range{first_row, middle}, Range{middle, first_row + rows}}) {
      if (part.empty()) continue;
      float* to = out.data() + (part.begin - first_row) * stride;
      if (row_split % 2 == 0) {
        linear(weights, x, part, {0, weights.panels()}, to, stride);
      } else {
        for (std::size_t p = 0; p < weights.panels(); ++p) {
          linear(weights, x, part, {p, p + 1}, to, stride);
        }
      }
    }
    for (std::size_t r = 0; r < rows; ++r) {
      const std::span<const float> row(out.data() + r * stride, stride);
      expect_near(row.first(outputs), std::span(expected).subspan(r * outputs, outputs), fma,
                  3e-6f * largest + 1e-20f, what);
      for (const float beyond : row.subspan(outputs)) {
        FUZZ_CHECK(beyond == kUntouched, "{}: written beyond its outputs", what);
      }
    }
  });
}

// ---------------------------------------------------------------- attention

struct Sequence {
  std::vector<BlockId> blocks;
  uint32_t position = 0;  // of its first row in the step
  uint32_t rows = 0;
  std::vector<float> q;  // [rows][heads * key_dim]
};

struct AttentionCase {
  AttentionShape shape;
  PagedLayer layer;
  AlignedArray<std::byte> arena;
  std::vector<Sequence> sequences;
  std::vector<float> sinks;  // [heads], or empty
  uint32_t rows = 0;
  uint32_t context_max = 0;
};

/// One layer's arena, filled with NaNs that no result may show.
void make_arena(AttentionCase& c, uint32_t blocks, KvType key_type, KvType value_type,
                bool latent) {
  const AttentionShape& shape = c.shape;
  c.layer.block_tokens = shape.block_tokens;
  c.layer.kv_heads = shape.kv_heads;
  c.layer.key_dim = shape.key_dim;
  c.layer.value_dim = shape.value_dim;
  c.layer.key_type = key_type;
  c.layer.value_type = value_type;
  c.layer.latent = latent;
  const std::size_t keys = kv_row_bytes(key_type, shape.key_dim) * shape.block_tokens;
  c.layer.value_offset = latent ? 0 : keys;
  c.layer.head_stride =
      keys + (latent ? 0 : kv_row_bytes(value_type, shape.value_dim) * shape.block_tokens);
  c.layer.block_stride = round_up(c.layer.head_stride * shape.kv_heads, 64);
  c.arena = AlignedArray<std::byte>(c.layer.block_stride * blocks);
  std::fill_n(c.arena.data(), c.arena.size(), std::byte{0xff});
  c.layer.base = c.arena.data();
}

/// Stores positions [begin, end) of a sequence, with the rounding of the cache type.
void store(AttentionCase& c, const Sequence& s, uint32_t begin, uint32_t end, Values& values) {
  if (begin >= end) return;
  const std::size_t k_row = std::size_t{c.shape.kv_heads} * c.shape.key_dim;
  const std::size_t v_row = std::size_t{c.shape.kv_heads} * c.shape.value_dim;
  const std::vector<float> k = values.list((end - begin) * k_row);
  const std::vector<float> v = values.list((end - begin) * v_row);
  const PagedRun run{0, end - begin, begin, s.blocks};
  store_kv(c.layer, run, {0, end - begin}, k.data(), k_row, v.data(), v_row);
}

AttentionCase attention_case(Input& in, Values& values) {
  AttentionCase c;
  AttentionShape& shape = c.shape;
  shape.kv_heads = static_cast<uint32_t>(in.between(1, 3));
  shape.heads = shape.kv_heads * static_cast<uint32_t>(in.between(1, 6));
  shape.key_dim = static_cast<uint32_t>(in.between(1, 80));
  shape.value_dim = in.flag() ? shape.key_dim : static_cast<uint32_t>(in.between(1, 80));
  constexpr uint32_t kBlockTokens[] = {32, 16, 1, 2, 3, 7, 33, 64, 128, 256, 300};
  shape.block_tokens = in.pick(kBlockTokens);
  shape.window = in.flag() ? static_cast<uint32_t>(in.between(1, 600)) : 0;
  shape.scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  const uint8_t scores = in.byte() % 4;
  shape.logit_softcap = scores == 3 ? 5.0f : 0.0f;
  constexpr KvType kTypes[] = {KvType::kF16, KvType::kBF16, KvType::kF32, KvType::kQ8_0};
  KvType key_type = in.pick(kTypes);
  KvType value_type = in.pick(kTypes);
  for (auto& [type, dim] :
       {std::pair<KvType&, uint32_t&>{key_type, shape.key_dim}, {value_type, shape.value_dim}}) {
    if (type == KvType::kQ8_0) dim = static_cast<uint32_t>(round_up(dim, 32));
  }
  if (!check_attention_shape(shape).has_value()) return c;
  for (uint32_t h = 0; scores == 2 && h < shape.heads; ++h) {
    c.sinks.push_back(static_cast<float>(values.prng().uniform() * 12 - 6));
  }

  const auto count = static_cast<uint32_t>(in.between(1, 4));
  const auto shared_blocks = static_cast<uint32_t>(in.below(12));  // with the first sequence
  std::vector<uint32_t> ends;
  uint64_t work = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Sequence s;
    s.position = static_cast<uint32_t>(in.below(620));
    s.rows = static_cast<uint32_t>(in.byte() % 4 == 3 ? in.between(1, 40) : in.between(1, 3));
    // The scalar truth is slow: what a case may cost is bounded.
    const uint64_t row_work =
        uint64_t{s.position + s.rows} * shape.heads * (shape.key_dim + shape.value_dim);
    s.rows = static_cast<uint32_t>(
        std::clamp<uint64_t>(1'500'000 / std::max<uint64_t>(row_work, 1), 1, s.rows));
    work += row_work * s.rows;
    if (i > 0 && work > 4'000'000) break;
    c.sequences.push_back(std::move(s));
  }
  uint32_t next = 0;
  for (Sequence& s : c.sequences) {
    const auto blocks = ceil_div(s.position + s.rows, shape.block_tokens);
    for (uint32_t b = 0; b < blocks; ++b) {
      const Sequence& first = c.sequences.front();
      // A shared block lies before what any of its sequences writes in this step.
      const uint32_t end = (b + 1) * shape.block_tokens;
      const bool shared =
          &s != &first && b < shared_blocks && end <= s.position && end <= first.position;
      s.blocks.push_back(shared ? first.blocks[b] : BlockId(next++));
    }
    c.context_max = std::max(c.context_max, s.position + s.rows);
    c.rows += s.rows;
  }
  // Ids in an order of their own.
  std::vector<uint32_t> order(next);
  for (uint32_t i = 0; i < next; ++i) order[i] = i;
  for (uint32_t i = next; i > 1; --i) std::swap(order[i - 1], order[values.prng().below(i)]);
  for (Sequence& s : c.sequences) {
    for (BlockId& block : s.blocks) block = BlockId(order[block.value]);
  }
  // Values that are a part of the keys.
  const bool latent = in.byte() % 4 == 3;
  if (latent) {
    value_type = key_type;
    shape.value_dim = std::min(shape.value_dim, shape.key_dim);
    if (key_type == KvType::kQ8_0) {
      shape.value_dim = std::max(32U, shape.value_dim / 32 * 32);
    }
  }
  make_arena(c, next, key_type, value_type, latent);
  for (Sequence& s : c.sequences) {
    // Behind the window of the first row nothing is ever stored, and whole blocks are not there.
    const uint32_t seen_from =
        shape.window != 0 && s.position + 1 > shape.window ? s.position + 1 - shape.window : 0;
    store(c, s, seen_from, s.position + s.rows, values);
    for (uint32_t b = 0; (b + 1) * shape.block_tokens <= seen_from; ++b) s.blocks[b] = BlockId();
    s.q = values.list(std::size_t{s.rows} * shape.heads * shape.key_dim);
  }
  return c;
}

/// Attention of the chosen sequences in one step, in the order given.
std::vector<float> attend(const AttentionCase& c, std::span<const std::size_t> chosen,
                          std::size_t threads) {
  std::vector<PagedRun> runs;
  std::vector<float> q;
  uint32_t rows = 0;
  for (const std::size_t i : chosen) {
    const Sequence& s = c.sequences[i];
    runs.push_back({rows, s.rows, s.position, s.blocks});
    rows += s.rows;
    q.insert(q.end(), s.q.begin(), s.q.end());
  }
  AttentionPlan plan(c.shape, {rows, static_cast<uint32_t>(runs.size()), c.context_max,
                               static_cast<uint32_t>(threads)});
  plan.build(runs);
  const std::size_t out_row = std::size_t{c.shape.heads} * c.shape.value_dim;
  std::vector<float> out(rows * out_row, -1.0f);
  ThreadPool pool(threads);
  pool.run([&](const ThreadPool::Context& context) {
    attention(plan, c.layer, q.data(), std::size_t{c.shape.heads} * c.shape.key_dim, out.data(),
              out_row, context, c.sinks.empty() ? nullptr : c.sinks.data());
  });
  return out;
}

void check_attention(Input& in) {
  const std::size_t threads = in.between(1, 3);
  // Scores that overflow have no maximum to subtract: what such a row gets is not defined, only
  // that it stays its own (attention_test, rule 5) and that no answer is made of it (Core::sample).
  Values values(in, true);
  const AttentionCase c = attention_case(in, values);
  if (c.sequences.empty()) return;
  const AttentionShape& shape = c.shape;
  const std::string what = fmt::format(
      "attention heads {}/{} dims {}/{} block {} window {} sinks {} K {} V {}{} sequences {}",
      shape.heads, shape.kv_heads, shape.key_dim, shape.value_dim, shape.block_tokens, shape.window,
      c.sinks.size(), kv_type_name(c.layer.key_type), kv_type_name(c.layer.value_type),
      c.layer.latent ? ", a part of K," : "", c.sequences.size());
  const std::size_t out_row = std::size_t{shape.heads} * shape.value_dim;
  std::vector<float> expected;
  for (const Sequence& s : c.sequences) {
    for (uint32_t r = 0; r < s.rows; ++r) {
      expected.resize(expected.size() + out_row);
      ref::attention(shape, c.layer, s.blocks, s.position + r,
                     s.q.data() + std::size_t{r} * shape.heads * shape.key_dim,
                     expected.data() + expected.size() - out_row,
                     c.sinks.empty() ? nullptr : c.sinks.data());
    }
  }
  std::vector<std::size_t> all(c.sequences.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  on_each_isa([&](bool fma) {
    const std::vector<float> out = attend(c, all, threads);
    if (fma || values.is_tame()) expect_near(out, expected, fma, 3e-4f, what);
    // Alone and on one thread the last sequence gets the same bits, with FMA or without.
    const std::size_t last = all.size() - 1;
    const std::vector<float> alone = attend(c, std::span(&last, 1), 1);
    expect_near(std::span(out).last(alone.size()), alone, true, 0, what + " alone");
  });
}

// ---------------------------------------------------------------- row operations

void check_ops(Input& in) {
  const std::size_t n = in.between(1, 300);
  const bool in_place = in.flag();
  const std::size_t pairs = in.between(1, 40);
  const std::size_t heads = in.between(1, 3);
  const std::size_t unturned = in.below(9);
  const std::size_t position = in.below(64);
  const RopeLayout layout = in.flag() ? RopeLayout::kNeox : RopeLayout::kNormal;
  Values values(in);
  const bool tame = values.is_tame();
  const std::vector<float> a = values.list(n);
  const std::vector<float> b = values.list(n);

  std::vector<float> norm(n), silu(n), gelu(n), swiglu(n), exps(n), sums(n), scaled(n);
  ref::rms_norm(a.data(), b.data(), n, 1e-5f, norm.data());
  ref::silu_mul(a.data(), b.data(), n, silu.data());
  ref::gelu_mul(a.data(), b.data(), n, gelu.data());
  ref::clamped_swiglu_mul(a.data(), b.data(), n, 7.0f, swiglu.data());
  for (std::size_t i = 0; i < n; ++i) {
    exps[i] = ref::exp(a[i]);
    sums[i] = a[i] + b[i];
    scaled[i] = a[i] * b[0];
  }
  std::vector<double> frequencies(pairs);
  for (std::size_t i = 0; i < pairs; ++i) frequencies[i] = 1.0 / static_cast<double>(i + 1);
  RopeTable table(64, frequencies);
  table.prepare(position);
  const std::size_t head_dim = 2 * pairs + unturned;
  const std::vector<float> unrotated = values.list(heads * head_dim);
  std::vector<float> rotated = unrotated;
  ref::rope(rotated.data(), heads, head_dim, layout, table, position);
  const auto first_largest =
      static_cast<std::size_t>(std::max_element(a.begin(), a.end()) - a.begin());

  const std::string what = fmt::format("of {} values", n);
  on_each_isa([&](bool fma) {
    const bool comparable = fma || tame;
    std::vector<float> out = a;
    const auto compare = [&](std::span<const float> expected, float tolerance, const char* name) {
      if (comparable) expect_near(out, expected, fma, tolerance, fmt::format("{} {}", name, what));
    };
    const auto fresh = [&]() -> float* {
      out = in_place ? a : std::vector<float>(n);
      return out.data();
    };
    const auto source = [&] { return in_place ? out.data() : a.data(); };
    float* to = fresh();
    rms_norm(source(), b.data(), n, 1e-5f, to);
    compare(norm, 1e-4f, "rms_norm");
    to = fresh();
    silu_mul(source(), b.data(), n, to);
    compare(silu, 1e-4f, "silu_mul");
    to = fresh();
    gelu_mul(source(), b.data(), n, to);
    compare(gelu, 1e-4f, "gelu_mul");
    to = fresh();
    clamped_swiglu_mul(source(), b.data(), n, 7.0f, to);
    compare(swiglu, 1e-4f, "clamped_swiglu_mul");
    to = fresh();
    exp(source(), n, to);
    if (fma) compare(exps, 0, "exp");
    out = a;
    add(out.data(), b.data(), n);
    expect_near(out, sums, true, 0, "add " + what);
    out = a;
    scale(out.data(), b[0], n);
    expect_near(out, scaled, true, 0, "scale " + what);
    FUZZ_CHECK(argmax(a.data(), n) == first_largest, "argmax {}", what);
    out = unrotated;
    rope(out.data(), heads, head_dim, layout, table, position);
    compare(rotated, 1e-4f, "rope");
  });
}

void check_quantize(Input& in) {
  const std::size_t columns = in.between(1, 200);
  const std::size_t rows = in.between(1, 9);
  Values values(in);
  Activations x(rows, columns);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t k = 0; k < columns; ++k) x.row(r)[k] = values.next();
  }
  on_each_isa([&](bool) {
    for (std::size_t r = 0; r < rows; ++r) {
      x.quantize(r);
      for (std::size_t b = 0; b < x.blocks(); ++b) {
        const ref::QuantizedBlock expected = ref::quantize_block(x.row(r) + b * kQuantBlock);
        const QuantGroup& group = x.group(r / kQuantRows)[b];
        const std::size_t lane = r % kQuantRows;
        int sum = 0;
        int pair_sums[2][2] = {};
        for (std::size_t k = 0; k < kQuantBlock; ++k) {
          FUZZ_CHECK(group.quants[k / 4][lane][k % 4] == expected.quants[k],
                     "row {} value {} on {}", r, b * kQuantBlock + k, isa_name());
          sum += expected.quants[k];
          pair_sums[k / 16][k % 4 / 2] += expected.quants[k];
        }
        for (std::size_t i = 0; i < 4; ++i) {
          FUZZ_CHECK(group.pair_offsets[i / 2][lane][i % 2] == -16 * pair_sums[i / 2][i % 2],
                     "row {} block {} on {}", r, b, isa_name());
        }
        FUZZ_CHECK(same_bits(group.scales[lane], expected.scale) &&
                       group.offset_sums[lane] == -128 * sum &&
                       same_bits(group.scaled_sums[lane], expected.scale * static_cast<float>(sum)),
                   "row {} block {} on {}", r, b, isa_name());
      }
    }
  });
}

/// Any bits as floats, to the 16-bit types and back.
void check_conversions(Input& in) {
  const std::size_t n = in.between(1, 70);
  std::vector<float> wide(n);
  std::vector<uint16_t> narrow(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto bits = static_cast<uint32_t>(in.number(4));
    wide[i] = std::bit_cast<float>(bits);
    narrow[i] = static_cast<uint16_t>(bits);
  }
  on_each_isa([&](bool) {
    std::vector<uint16_t> halves(n), bf16(n);
    f32_to_f16(wide.data(), n, halves.data());
    f32_to_bf16(wide.data(), n, bf16.data());
    std::vector<float> from_halves(n), from_bf16(n);
    f16_to_f32(narrow.data(), n, from_halves.data());
    bf16_to_f32(narrow.data(), n, from_bf16.data());
    for (std::size_t i = 0; i < n; ++i) {
      const bool nan = std::isnan(wide[i]);
      FUZZ_CHECK(nan ? std::isnan(half_to_float(halves[i])) : halves[i] == float_to_half(wide[i]),
                 "{:#x} to f16 on {}", std::bit_cast<uint32_t>(wide[i]), isa_name());
      FUZZ_CHECK(nan ? std::isnan(bf16_to_float(bf16[i])) : bf16[i] == float_to_bf16(wide[i]),
                 "{:#x} to bf16 on {}", std::bit_cast<uint32_t>(wide[i]), isa_name());
      FUZZ_CHECK(same_bits(from_halves[i], half_to_float(narrow[i])), "f16 {:#x} on {}", narrow[i],
                 isa_name());
      FUZZ_CHECK(same_bits(from_bf16[i], bf16_to_float(narrow[i])), "bf16 {:#x} on {}", narrow[i],
                 isa_name());
    }
  });
}

/// Our decoders beside ggml's, on any bytes.
void check_decoders(Input& in) {
  const TensorType type = in.pick(kWeightTypes);
  const TensorTypeInfo& info = *tensor_type_info(type);
  const ToFloat own = own_to_float(type);
  const ToFloat peer = ggml_to_float(type);
  if (own == nullptr || peer == nullptr) return;
  const std::size_t blocks = in.between(1, 3);
  std::string bytes(in.rest().substr(0, blocks * info.block_bytes));
  bytes.resize(blocks * info.block_bytes, '\x5a');
  // The file gives no alignment to rows.
  const std::string shifted = "x" + bytes;
  const auto n = static_cast<int64_t>(blocks * info.block_elements);
  std::vector<float> ours(static_cast<std::size_t>(n)), theirs(static_cast<std::size_t>(n));
  own(shifted.data() + 1, ours.data(), n);
  peer(bytes.data(), theirs.data(), n);
  expect_near(ours, theirs, true, 0, fmt::format("decoder of {}", info.name));
}

}  // namespace
}  // namespace pagewise::kernels

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace pagewise::kernels;
  pagewise::fuzz::Input in(data, size);
  switch (in.byte() % 6) {
    case 0:
      check_linear(in);
      break;
    case 1:
      check_attention(in);
      break;
    case 2:
      check_ops(in);
      break;
    case 3:
      check_quantize(in);
      break;
    case 4:
      check_conversions(in);
      break;
    default:
      check_decoders(in);
      break;
  }
  return 0;
}
