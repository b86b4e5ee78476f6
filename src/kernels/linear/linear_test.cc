// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/half.h"
#include "kernels/isa_testing.h"
#include "kernels/ref.h"
#include "kernels/thread_pool.h"

namespace pagewise::kernels {
namespace {

using testing::expect_same;
using testing::on_each_isa;
using testing::random_floats;

// Random weights with random quants over their whole range and plausible scales.
std::vector<std::byte> random_weights(Prng& prng, TensorType type, std::size_t outputs,
                                      std::size_t columns) {
  std::vector<std::byte> data(outputs * row_bytes(type, columns));
  if (type == TensorType::kF32) {
    const std::vector<float> x = random_floats(prng, outputs * columns);
    std::memcpy(data.data(), x.data(), data.size());
    return data;
  }
  for (std::byte& byte : data) byte = static_cast<std::byte>(prng.next());
  const TensorTypeInfo& info = *tensor_type_info(type);
  const auto put_half = [&](std::size_t at, float value) {
    const uint16_t half = float_to_half(value);
    std::memcpy(data.data() + at, &half, 2);
  };
  for (std::size_t at = 0; at < data.size(); at += info.block_bytes) {
    switch (type) {
      case TensorType::kF16:
        put_half(at, static_cast<float>(prng.uniform() - 0.5));
        break;
      case TensorType::kBF16: {
        const uint16_t value = float_to_bf16(static_cast<float>(prng.uniform() - 0.5));
        std::memcpy(data.data() + at, &value, 2);
        break;
      }
      case TensorType::kQ4_1:
      case TensorType::kQ5_1:
        put_half(at, static_cast<float>(prng.uniform() * 0.1));
        put_half(at + 2, static_cast<float>(prng.uniform() - 0.5));
        break;
      case TensorType::kQ4_K:
      case TensorType::kQ5_K:
        put_half(at, static_cast<float>(prng.uniform() * 0.01));
        put_half(at + 2, static_cast<float>(prng.uniform() * 0.02));
        break;
      case TensorType::kQ3_K:
        put_half(at + 108, static_cast<float>(prng.uniform() * 0.01));
        break;
      case TensorType::kQ6_K:
        put_half(at + 208, static_cast<float>(prng.uniform() * 0.01));
        break;
      case TensorType::kMXFP4:  // an exponent: 2^-9 to 2^-1
        data[at] = static_cast<std::byte>(119 + prng.below(9));
        break;
      default:  // one scale, in front
        put_half(at, static_cast<float>(prng.uniform() * 0.1));
        break;
    }
  }
  return data;
}

Activations random_activations(Prng& prng, std::size_t rows, std::size_t columns) {
  Activations x(rows, columns);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::vector<float> row =
        random_floats(prng, columns, std::exp2(static_cast<double>(prng.below(8)) - 4));
    std::copy(row.begin(), row.end(), x.row(r));
  }
  return x;
}

void quantize_all(Activations& x) { x.quantize(Range{0, x.rows()}); }

struct Shape {
  std::size_t outputs;
  std::size_t columns;
};

std::vector<float> run_all(const LinearWeights& w, const Activations& x) {
  std::vector<float> out(x.rows() * w.outputs(), -1.0f);
  linear(w, x, {0, x.rows()}, {0, w.panels()}, out.data(), w.outputs());
  return out;
}

// All tuned ones, and one that is decoded.
std::vector<TensorType> all_types() {
  const std::span<const TensorType> tuned = linear_tuned_types();
  std::vector<TensorType> types(tuned.begin(), tuned.end());
  types.push_back(TensorType::kQ3_K);
  return types;
}

class LinearOfType : public ::testing::TestWithParam<TensorType> {};
INSTANTIATE_TEST_SUITE_P(Types, LinearOfType, ::testing::ValuesIn(all_types()),
                         [](const auto& info) {
                           return std::string(tensor_type_info(info.param)->name);
                         });

TEST_P(LinearOfType, EqualsTheReferenceOnEveryIsa) {
  const uint64_t seed = 11;
  RecordProperty("seed", static_cast<int>(seed));
  Prng prng(seed);
  const TensorType type = GetParam();
  const std::size_t block = std::max<std::size_t>(32, tensor_type_info(type)->block_elements);
  for (const Shape shape :
       {Shape{1, block}, Shape{16, 2 * block}, Shape{37, 3 * block}, Shape{48, 1536}}) {
    const std::vector<std::byte> data = random_weights(prng, type, shape.outputs, shape.columns);
    const LinearWeights w = LinearWeights::pack(type, shape.outputs, shape.columns, data).value();
    for (const std::size_t rows : {1, 2, 3, 4, 5, 29}) {
      Activations x = random_activations(prng, rows, shape.columns);
      std::vector<float> expected;
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t o = 0; o < shape.outputs; ++o) {
          expected.push_back(ref::linear(type, data.data() + o * row_bytes(type, shape.columns),
                                         x.row(r), shape.columns));
        }
      }
      on_each_isa([&](bool fma) {
        quantize_all(x);
        expect_same(run_all(w, x), expected, fma);
      });
    }
  }
}

TEST_P(LinearOfType, LinearRule1_ARowsResultDoesNotDependOnItsBatchOrPlace) {
  Prng prng(12);
  const TensorType type = GetParam();
  const std::size_t columns = 768;
  const std::size_t outputs = 40;
  const std::vector<std::byte> data = random_weights(prng, type, outputs, columns);
  const LinearWeights w = LinearWeights::pack(type, outputs, columns, data).value();
  Activations x = random_activations(prng, 67, columns);
  on_each_isa([&](bool) {
    quantize_all(x);
    const std::vector<float> batch = run_all(w, x);
    for (std::size_t begin = 0; begin < x.rows(); begin += 1 + begin / 3) {
      for (const std::size_t count : {1, 2, 3, 4, 7, 12, 31}) {
        const std::size_t end = std::min(begin + count, x.rows());
        std::vector<float> part((end - begin) * outputs);
        linear(w, x, {begin, end}, {0, w.panels()}, part.data(), outputs);
        expect_same(part, std::span(batch).subspan(begin * outputs, part.size()), true);
      }
    }
    // The same row at another place, among others.
    Activations moved(5, columns);
    std::copy_n(x.row(33), columns, moved.row(3));
    quantize_all(moved);
    std::vector<float> alone(outputs);
    linear(w, moved, {3, 4}, {0, w.panels()}, alone.data(), outputs);
    expect_same(alone, std::span(batch).subspan(33 * outputs, outputs), true);
  });
}

TEST_P(LinearOfType, LinearRule1_SplittingPanelsAmongThreadsChangesNothing) {
  Prng prng(13);
  const TensorType type = GetParam();
  const std::size_t columns = 512;
  const std::size_t outputs = 100;
  const std::vector<std::byte> data = random_weights(prng, type, outputs, columns);
  const LinearWeights w = LinearWeights::pack(type, outputs, columns, data).value();
  Activations x = random_activations(prng, 9, columns);
  quantize_all(x);
  const std::vector<float> expected = run_all(w, x);
  for (const std::size_t threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    std::vector<float> out(expected.size());
    pool.run([&](const ThreadPool::Context& context) {
      linear(w, x, {0, x.rows()}, context.share(w.panels()), out.data(), outputs);
    });
    expect_same(out, expected, true);
  }
}

TEST(Linear, LinearRule2_IntegerSumsInsideABlockAreExactAtTheExtremes) {
  // All weights and activations at their largest: 16-bit sums would saturate if anything were off.
  for (const TensorType type : linear_tuned_types()) {
    if (linear_family(type) != LinearFamily::kInteger) continue;
    const std::size_t columns = 256;
    const TensorTypeInfo& info = *tensor_type_info(type);
    std::vector<std::byte> data(16 * row_bytes(type, columns));
    const uint16_t one = float_to_half(1.0f);
    for (const int fill : {0xff, 0x80, 0x7f, 0x00, 0x81}) {
      std::memset(data.data(), fill, data.size());
      for (std::size_t at = 0; at < data.size(); at += info.block_bytes) {
        if (type == TensorType::kMXFP4) {
          data[at] = std::byte{128};  // 1, for the doubled values
          continue;
        }
        std::memcpy(data.data() + at + (type == TensorType::kQ6_K ? 208 : 0), &one, 2);
        if (type == TensorType::kQ4_1 || type == TensorType::kQ5_1 || type == TensorType::kQ4_K ||
            type == TensorType::kQ5_K) {
          std::memcpy(data.data() + at + 2, &one, 2);
        }
      }
      const LinearWeights w = LinearWeights::pack(type, 16, columns, data).value();
      Activations x(3, columns);
      for (std::size_t k = 0; k < columns; ++k) {
        x.row(0)[k] = 127.0f;
        x.row(1)[k] = -127.0f;
        x.row(2)[k] = k % 2 == 0 ? 127.0f : -127.0f;
      }
      std::vector<float> expected;
      for (std::size_t r = 0; r < 3; ++r) {
        expected.insert(expected.end(), 16, ref::linear(type, data.data(), x.row(r), columns));
      }
      on_each_isa([&](bool fma) {
        quantize_all(x);
        expect_same(run_all(w, x), expected, fma);
      });
    }
  }
}

TEST(Linear, LinearRule2_EveryExponentOfMxfp4ScalesAsTheReferenceDoes) {
  // Of one block the sum is one product, so it is the same without FMA; the largest overflow.
  Prng prng(19);
  constexpr std::size_t kExponents = 256;
  std::vector<std::byte> data = random_weights(prng, TensorType::kMXFP4, kExponents, kQuantBlock);
  const std::size_t bytes = row_bytes(TensorType::kMXFP4, kQuantBlock);
  for (std::size_t e = 0; e < kExponents; ++e) data[e * bytes] = static_cast<std::byte>(e);
  const LinearWeights w =
      LinearWeights::pack(TensorType::kMXFP4, kExponents, kQuantBlock, data).value();
  Activations x = random_activations(prng, 5, kQuantBlock);
  std::vector<float> expected;
  for (std::size_t r = 0; r < x.rows(); ++r) {
    for (std::size_t e = 0; e < kExponents; ++e) {
      expected.push_back(
          ref::linear(TensorType::kMXFP4, data.data() + e * bytes, x.row(r), kQuantBlock));
    }
  }
  EXPECT_TRUE(std::any_of(expected.begin(), expected.end(),
                          [](float y) { return y != 0 && std::fabs(y) < 1e-38F; }));
  on_each_isa([&](bool) {
    quantize_all(x);
    expect_same(run_all(w, x), expected, true);
  });
}

TEST(Linear, LinearRule2_TypesOutsideTheIntegerFamilyReadF32ActivationsUnquantised) {
  Prng prng(14);
  const std::vector<std::byte> data = random_weights(prng, TensorType::kF32, 16, 32);
  const LinearWeights w = LinearWeights::pack(TensorType::kF32, 16, 32, data).value();
  EXPECT_EQ(w.family(), LinearFamily::kF32);
  const Activations x = random_activations(prng, 2, 32);  // quantize() was never called
  const std::vector<float> out = run_all(w, x);
  EXPECT_EQ(out[17], ref::linear(TensorType::kF32, data.data() + row_bytes(TensorType::kF32, 32),
                                 x.row(1), 32));
}

TEST_P(LinearOfType, GivesItsRowsBackWithTheBitsOfTheDecoder) {
  Prng prng(17);
  const TensorType type = GetParam();
  const std::size_t columns = 768 + (tensor_type_info(type)->block_elements <= 32 ? 32 : 0);
  const std::vector<std::byte> data = random_weights(prng, type, 21, columns);
  const LinearWeights w = LinearWeights::pack(type, 21, columns, data).value();
  for (std::size_t o = 0; o < 21; ++o) {
    std::vector<float> expected(columns);
    std::vector<float> row(columns);
    find_to_float(type).value()(data.data() + o * row_bytes(type, columns), expected.data(),
                                static_cast<int64_t>(columns));
    w.decode_row(o, row.data());
    expect_same(row, expected, true);
  }
}

TEST_P(LinearOfType, EqualsTheReferenceOverRandomShapes) {
  const uint64_t seed = 18;
  RecordProperty("seed", static_cast<int>(seed));
  Prng prng(seed);
  const TensorType type = GetParam();
  const bool integer = linear_family(type) == LinearFamily::kInteger;
  const std::size_t block = tensor_type_info(type)->block_elements;
  for (int round = 0; round < 12; ++round) {
    // Plain floats have rows of any length, and chunks of columns with a rest.
    const std::size_t columns =
        block == 1 ? 1 + prng.below(1300) : block * (1 + prng.below(1200 / block));
    const std::size_t outputs = 1 + prng.below(100);
    const std::size_t rows = 1 + prng.below(round % 2 == 0 ? 6 : 60);
    const std::vector<std::byte> data = random_weights(prng, type, outputs, columns);
    const LinearWeights w = LinearWeights::pack(type, outputs, columns, data).value();
    Activations x = random_activations(prng, rows, columns);
    std::vector<float> expected;
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t o = 0; o < outputs; ++o) {
        expected.push_back(
            ref::linear(type, data.data() + o * row_bytes(type, columns), x.row(r), columns));
      }
    }
    on_each_isa([&](bool fma) {
      SCOPED_TRACE(::testing::Message() << outputs << " x " << columns << ", rows " << rows);
      if (integer) quantize_all(x);
      expect_same(run_all(w, x), expected, fma);
    });
  }
}

TEST(Linear, PacksTheTypesItIsTunedForAndViewsTheOthers) {
  for (const TensorType type : linear_tuned_types()) EXPECT_TRUE(linear_packs(type));
  EXPECT_FALSE(linear_packs(TensorType::kQ3_K));
  EXPECT_EQ(linear_family(TensorType::kBF16), LinearFamily::kF32);
  EXPECT_EQ(linear_family(TensorType::kIQ4_NL), LinearFamily::kInteger);
  EXPECT_EQ(linear_family(TensorType::kMXFP4), LinearFamily::kInteger);
  EXPECT_EQ(linear_family(TensorType::kQ3_K), LinearFamily::kF32);
}

TEST(Linear, WritesNothingBeyondItsOutputs) {
  Prng prng(15);
  for (const TensorType type : all_types()) {
    const std::size_t columns = std::max<std::size_t>(64, tensor_type_info(type)->block_elements);
    const std::vector<std::byte> data = random_weights(prng, type, 5, columns);
    const LinearWeights w = LinearWeights::pack(type, 5, columns, data).value();
    Activations x = random_activations(prng, 4, columns);
    quantize_all(x);
    std::vector<float> out(4 * 8, 123.0f);
    linear(w, x, {0, 4}, {0, 1}, out.data(), 8);
    for (std::size_t r = 0; r < 4; ++r) {
      for (std::size_t o = 5; o < 8; ++o) EXPECT_EQ(out[r * 8 + o], 123.0f);
    }
  }
}

TEST(Linear, RefusesShapesThatDoNotFitTheData) {
  std::vector<std::byte> data(16 * row_bytes(TensorType::kQ4_1, 64));
  EXPECT_TRUE(LinearWeights::pack(TensorType::kQ4_1, 16, 64, data).has_value());
  EXPECT_EQ(LinearWeights::pack(TensorType::kQ4_1, 17, 64, data).error().code,
            ErrorCode::kMalformed);
  EXPECT_EQ(LinearWeights::pack(TensorType::kQ4_1, 16, 65, data).error().code,
            ErrorCode::kMalformed);
  EXPECT_EQ(LinearWeights::pack(TensorType::kQ4_1, 0, 64, {}).error().code, ErrorCode::kMalformed);
  EXPECT_EQ(LinearWeights::pack(TensorType::kI8, 16, 64, data).error().code,
            ErrorCode::kUnsupported);
}

TEST(Activations, QuantiseEachBlockAsTheReferenceDoes) {
  Prng prng(16);
  const std::size_t columns = 100;  // the last block is padded with zeros
  Activations x = random_activations(prng, 6, columns);
  std::fill_n(x.row(2), columns, 0.0f);
  x.row(3)[5] = 1e-38f;
  on_each_isa([&](bool) {
    quantize_all(x);
    for (std::size_t r = 0; r < x.rows(); ++r) {
      for (std::size_t b = 0; b < x.blocks(); ++b) {
        const ref::QuantizedBlock expected = ref::quantize_block(x.row(r) + b * kQuantBlock);
        const QuantGroup& group = x.group(r / kQuantRows)[b];
        const std::size_t lane = r % kQuantRows;
        EXPECT_EQ(group.scales[lane], expected.scale);
        int sum = 0;
        int first_sum = 0;
        int pair_sums[2][2] = {};
        for (std::size_t k = 0; k < kQuantBlock; ++k) {
          EXPECT_EQ(group.quants[k / 4][lane][k % 4], expected.quants[k]);
          sum += expected.quants[k];
          first_sum += k < kQuantBlock / 2 ? expected.quants[k] : 0;
          pair_sums[k / 16][k % 4 / 2] += expected.quants[k];
        }
        for (std::size_t i = 0; i < 4; ++i)
          EXPECT_EQ(group.pair_offsets[i / 2][lane][i % 2], -16 * pair_sums[i / 2][i % 2]);
        EXPECT_EQ(group.offset_sums[lane], -128 * sum);
        EXPECT_EQ(group.half_offset_sums[lane], -128 * first_sum);
        EXPECT_EQ(group.scaled_sums[lane], expected.scale * static_cast<float>(sum));
      }
    }
  });
}

TEST(Activations, LinearRule1_AGroupOfRowsIsQuantisedToTheBytesOfEachRowAlone) {
  const uint64_t seed = 21;
  RecordProperty("seed", static_cast<int>(seed));
  Prng prng(seed);
  for (int round = 0; round < 40; ++round) {
    const std::size_t rows = 1 + prng.below(13);
    const std::size_t columns = 1 + prng.below(200);
    Activations alone = random_activations(prng, rows, columns);
    for (std::size_t r = 0; r < rows; ++r) {
      float* const row = alone.row(r);
      if (prng.below(4) == 0) std::fill_n(row, std::min(columns, kQuantBlock), 0.0f);
      if (prng.below(4) == 0) row[prng.below(columns)] = 1e-31f;
      if (prng.below(8) == 0) row[prng.below(columns)] = INFINITY;
      if (prng.below(8) == 0) row[prng.below(columns)] = NAN;
    }
    const std::size_t begin = prng.below(rows);
    const std::size_t end = begin + 1 + prng.below(rows - begin);
    on_each_isa([&](bool) {
      Activations alone_rest(rows, columns);
      Activations together(rows, columns);
      Activations together_rest(rows, columns);
      for (std::size_t r = 0; r < rows; ++r) std::copy_n(alone.row(r), columns, together.row(r));
      for (std::size_t r = begin; r < end; ++r) alone.quantize(r, &alone_rest);
      together.quantize(Range{begin, end}, &together_rest);
      const auto expect_equal = [&](const Activations& a, const Activations& b) {
        for (std::size_t r = begin; r < end; ++r) {
          ASSERT_EQ(0, std::memcmp(a.row(r), b.row(r), columns * sizeof(float))) << "row " << r;
          const std::size_t lane = r % kQuantRows;
          for (std::size_t block = 0; block < a.blocks(); ++block) {
            const QuantGroup& x = a.group(r / kQuantRows)[block];
            const QuantGroup& y = b.group(r / kQuantRows)[block];
            for (std::size_t k = 0; k < kQuantBlock / 4; ++k)
              ASSERT_EQ(0, std::memcmp(x.quants[k][lane], y.quants[k][lane], 4)) << "row " << r;
            ASSERT_EQ(0, std::memcmp(&x.scales[lane], &y.scales[lane], sizeof(float)));
            ASSERT_EQ(0, std::memcmp(&x.scaled_sums[lane], &y.scaled_sums[lane], sizeof(float)));
            ASSERT_EQ(x.offset_sums[lane], y.offset_sums[lane]);
            ASSERT_EQ(x.half_offset_sums[lane], y.half_offset_sums[lane]);
            for (std::size_t i = 0; i < 4; ++i)
              ASSERT_EQ(x.pair_offsets[i / 2][lane][i % 2], y.pair_offsets[i / 2][lane][i % 2]);
          }
        }
      };
      expect_equal(alone, together);
      expect_equal(alone_rest, together_rest);
    });
  }
}

TEST(Activations, ValuesThatAreNotFiniteStayInRange) {
  Activations x(1, 32);
  on_each_isa([&](bool) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      std::fill_n(x.row(0), 32, 1.0f);
      x.row(0)[7] = bad;
      x.quantize(0);
      for (const auto& k4 : x.group(0)->quants) {
        for (const int8_t quant : k4[0]) EXPECT_GE(quant, -127);
      }
    }
  });
}

}  // namespace
}  // namespace pagewise::kernels
