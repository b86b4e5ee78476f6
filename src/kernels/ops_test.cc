// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/half.h"
#include "kernels/isa.h"
#include "kernels/isa_testing.h"
#include "kernels/ref.h"

namespace pagewise::kernels {
namespace {

using testing::expect_same;
using testing::on_each_isa;
using testing::random_floats;

constexpr std::size_t kSizes[] = {1, 7, 15, 16, 17, 31, 64, 576, 1537};

TEST(Ops, RmsNormEqualsTheReference) {
  Prng prng(1);
  for (const std::size_t n : kSizes) {
    const std::vector<float> x = random_floats(prng, n, 10);
    const std::vector<float> weight = random_floats(prng, n);
    std::vector<float> expected(n);
    ref::rms_norm(x.data(), weight.data(), n, 1e-5f, expected.data());
    on_each_isa([&](bool fma) {
      std::vector<float> out(n);
      rms_norm(x.data(), weight.data(), n, 1e-5f, out.data());
      expect_same(out, expected, fma);
    });
  }
}

TEST(Ops, LayerNormEqualsTheReferenceWithABiasAndWithout) {
  Prng prng(21);
  for (const std::size_t n : kSizes) {
    std::vector<float> x = random_floats(prng, n, 10);
    for (float& value : x) value += 3.0f;  // a mean that matters
    const std::vector<float> weight = random_floats(prng, n);
    const std::vector<float> bias = random_floats(prng, n);
    for (const float* b : {bias.data(), static_cast<const float*>(nullptr)}) {
      std::vector<float> expected(n);
      ref::layer_norm(x.data(), weight.data(), b, n, 1e-5f, expected.data());
      double mean = 0, variance = 0;
      for (const float value : x) mean += static_cast<double>(value) / static_cast<double>(n);
      for (const float value : x) {
        const double apart = static_cast<double>(value) - mean;
        variance += apart * apart / static_cast<double>(n);
      }
      for (std::size_t i = 0; i < n; ++i) {
        const double normed = (static_cast<double>(x[i]) - mean) / std::sqrt(variance + 1e-5);
        const double exact = normed * static_cast<double>(weight[i]) +
                             (b == nullptr ? 0.0 : static_cast<double>(bias[i]));
        ASSERT_NEAR(static_cast<double>(expected[i]), exact, 2e-5);
      }
      on_each_isa([&](bool fma) {
        std::vector<float> out = x;
        layer_norm(out.data(), weight.data(), b, n, 1e-5f, out.data());
        expect_same(out, expected, fma);
      });
    }
  }
}

TEST(Ops, SiluMulEqualsTheReference) {
  Prng prng(2);
  for (const std::size_t n : kSizes) {
    const std::vector<float> gate = random_floats(prng, n, 30);
    const std::vector<float> up = random_floats(prng, n, 5);
    std::vector<float> expected(n);
    ref::silu_mul(gate.data(), up.data(), n, expected.data());
    on_each_isa([&](bool fma) {
      std::vector<float> out(n);
      silu_mul(gate.data(), up.data(), n, out.data());
      expect_same(out, expected, fma);
    });
  }
}

TEST(Ops, GeluMulEqualsTheReferenceAndIsNearTheTanhForm) {
  Prng prng(20);
  for (const std::size_t n : kSizes) {
    std::vector<float> gate = random_floats(prng, n, 12);
    gate[0] = -1e20f;  // far out: 0, not a NaN
    const std::vector<float> up = random_floats(prng, n, 5);
    std::vector<float> expected(n);
    ref::gelu_mul(gate.data(), up.data(), n, expected.data());
    EXPECT_NEAR(expected[0], 0.0f, 1e-6f);
    for (std::size_t i = 1; i < n; ++i) {
      const double g = static_cast<double>(gate[i]);
      const double inner = std::sqrt(2.0 / std::acos(-1.0)) * (g + 0.044715 * g * g * g);
      const double exact = 0.5 * g * (1.0 + std::tanh(inner)) * static_cast<double>(up[i]);
      ASSERT_NEAR(expected[i], exact, 1e-5 * std::abs(exact) + 1e-6) << gate[i];
    }
    on_each_isa([&](bool fma) {
      std::vector<float> out(n);
      gelu_mul(gate.data(), up.data(), n, out.data());
      expect_same(out, expected, fma);
    });
  }
}

TEST(Ops, ClampedSwigluMulEqualsTheReferenceAndIsNearItsFormula) {
  Prng prng(23);
  for (const std::size_t n : kSizes) {
    std::vector<float> gate = random_floats(prng, n, 12);
    gate[0] = -1e20f;  // far out: 0, not a NaN
    const std::vector<float> up = random_floats(prng, n, 12);
    std::vector<float> expected(n);
    ref::clamped_swiglu_mul(gate.data(), up.data(), n, 7.0f, expected.data());
    EXPECT_NEAR(expected[0], 0.0f, 1e-6f);
    for (std::size_t i = 1; i < n; ++i) {
      const double g = std::min(static_cast<double>(gate[i]), 7.0);
      const double u = std::clamp(static_cast<double>(up[i]), -7.0, 7.0);
      const double exact = g / (1.0 + std::exp(-1.702 * g)) * (u + 1.0);
      ASSERT_NEAR(expected[i], exact, 1e-5 * std::abs(exact) + 1e-6) << gate[i];
    }
    on_each_isa([&](bool fma) {
      std::vector<float> out(n);
      clamped_swiglu_mul(gate.data(), up.data(), n, 7.0f, out.data());
      expect_same(out, expected, fma);
      out = up;  // in place
      clamped_swiglu_mul(gate.data(), out.data(), n, 7.0f, out.data());
      expect_same(out, expected, fma);
    });
  }
}

TEST(Ops, GeluAndSoftCapEqualTheReference) {
  Prng prng(22);
  for (const std::size_t n : kSizes) {
    std::vector<float> x = random_floats(prng, n, 12);
    std::vector<float> activated(n);
    ref::gelu(x.data(), n, activated.data());
    on_each_isa([&](bool fma) {
      std::vector<float> out = x;
      gelu(out.data(), n, out.data());
      expect_same(out, activated, fma);
    });
    x[0] = 1e20f;  // far out: the cap, not a NaN
    std::vector<float> capped = x;
    ref::soft_cap(capped.data(), 5.0f, n);
    EXPECT_EQ(capped[0], 5.0f);
    for (std::size_t i = 1; i < n; ++i) {
      ASSERT_NEAR(static_cast<double>(capped[i]), 5.0 * std::tanh(static_cast<double>(x[i]) / 5.0),
                  3e-6);
    }
    on_each_isa([&](bool fma) {
      std::vector<float> out = x;
      soft_cap(out.data(), 5.0f, n);
      expect_same(out, capped, fma);
    });
  }
}

TEST(Ops, Rule6_ExpIsTheSameWhereverAValueStandsInARow) {
  Prng prng(3);
  const std::vector<float> x = random_floats(prng, 100, 40);
  on_each_isa([&](bool) {
    std::vector<float> whole(x.size());
    exp(x.data(), x.size(), whole.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      float alone;
      exp(&x[i], 1, &alone);
      expect_same({&alone, 1}, {&whole[i], 1}, true);
    }
  });
}

TEST(Ops, ExpIsAccurateToTwoUlpAndEqualsTheReference) {
  Prng prng(4);
  std::vector<float> x = random_floats(prng, 200'000, 87);
  x.insert(x.end(), {0.0f, -0.0f, 1.0f, -1.0f, -87.3f, 88.3f, 1e-30f});
  std::vector<float> expected(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) expected[i] = ref::exp(x[i]);
  on_each_isa([&](bool fma) {
    std::vector<float> out(x.size());
    exp(x.data(), x.size(), out.data());
    if (fma) expect_same(out, expected, true);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      ASSERT_NEAR(out[i], exact, exact * 2.4e-7) << x[i];
    }
  });
}

TEST(Ops, ExpOfZeroIsOneAndOfFarNegativesIsZero) {
  on_each_isa([&](bool) {
    const std::vector<float> x = {0.0f, -0.0f, -88.0f, -1e30f,
                                  -std::numeric_limits<float>::infinity()};
    std::vector<float> out(x.size());
    exp(x.data(), x.size(), out.data());
    EXPECT_EQ(out, (std::vector<float>{1, 1, 0, 0, 0}));
    const float large = 1e30f;
    exp(&large, 1, out.data());
    EXPECT_TRUE(std::isfinite(out[0]) && out[0] > 1e38f);
  });
}

TEST(Ops, AddAndScaleEqualPlainLoops) {
  Prng prng(5);
  for (const std::size_t n : kSizes) {
    const std::vector<float> x = random_floats(prng, n);
    const std::vector<float> y = random_floats(prng, n);
    std::vector<float> sum = x;
    std::vector<float> scaled = x;
    for (std::size_t i = 0; i < n; ++i) sum[i] += y[i];
    for (float& value : scaled) value *= 0.3f;
    on_each_isa([&](bool) {
      std::vector<float> a = x;
      add(a.data(), y.data(), n);
      expect_same(a, sum, true);
      a = x;
      scale(a.data(), 0.3f, n);
      expect_same(a, scaled, true);
    });
  }
}

TEST(Ops, ArgmaxTakesTheLowestIndexOnTies) {
  Prng prng(6);
  for (const std::size_t n : kSizes) {
    std::vector<float> x = random_floats(prng, n);
    const std::size_t first = prng.below(n);
    const std::size_t second = first + prng.below(n - first);
    x[first] = x[second] = 2.0f;
    on_each_isa([&](bool) { EXPECT_EQ(argmax(x.data(), n), first); });
    std::vector<float> negative(n, -5.0f);  // padding lanes must not win
    on_each_isa([&](bool) { EXPECT_EQ(argmax(negative.data(), n), 0u); });
  }
}

TEST(Ops, RopeEqualsTheReferenceInBothLayouts) {
  Prng prng(7);
  for (const std::size_t pairs : {1, 5, 16, 32, 48}) {
    std::vector<double> frequencies(pairs);
    for (std::size_t i = 0; i < pairs; ++i)
      frequencies[i] = std::pow(10000.0, -static_cast<double>(i) / pairs);
    RopeTable table(300, frequencies);
    for (const std::size_t position : {299, 0, 1}) table.prepare(position);
    const std::size_t head_dim = 2 * pairs + 3;  // the rest of a head is not turned
    const std::vector<float> x = random_floats(prng, 3 * head_dim);
    for (const RopeLayout layout : {RopeLayout::kNormal, RopeLayout::kNeox}) {
      for (const std::size_t position : {0, 1, 299}) {
        std::vector<float> expected = x;
        ref::rope(expected.data(), 3, head_dim, layout, table, position);
        on_each_isa([&](bool fma) {
          std::vector<float> out = x;
          rope(out.data(), 3, head_dim, layout, table, position);
          expect_same(out, expected, fma);
          EXPECT_EQ(out[head_dim - 1], x[head_dim - 1]);
        });
      }
    }
  }
}

TEST(Ops, RopeAtPositionZeroIsTheIdentityAndScoresDependOnDistanceOnly) {
  std::vector<double> frequencies = {1.0, 0.1};
  RopeTable table(64, frequencies);
  for (const std::size_t position : {0, 2, 5, 30, 33}) table.prepare(position);
  const std::vector<float> x = {1, 2, 3, 4};
  std::vector<float> y = x;
  rope(y.data(), 1, 4, RopeLayout::kNormal, table, 0);
  EXPECT_EQ(y, x);
  const auto score = [&](std::size_t a, std::size_t b) {
    std::vector<float> q = x;
    std::vector<float> k = {0.5f, -1, 2, 1};
    rope(q.data(), 1, 4, RopeLayout::kNormal, table, a);
    rope(k.data(), 1, 4, RopeLayout::kNormal, table, b);
    return std::inner_product(q.begin(), q.end(), k.begin(), 0.0f);
  };
  EXPECT_NEAR(score(5, 2), score(33, 30), 1e-4);
}

TEST(Ops, ARopeRowIsAFunctionOfItsPositionWhateverWasPreparedBefore) {
  const std::vector<double> frequencies = {1.0, 0.03, 0.0001};
  RopeTable all(1000, frequencies, 1.25);
  for (std::size_t position = 0; position < all.positions(); ++position) all.prepare(position);
  RopeTable some(2'000'000, frequencies, 1.25);
  for (const std::size_t position : {999, 3, 999, 500}) {
    some.prepare(position);
    EXPECT_TRUE(some.is_prepared(position));
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      EXPECT_EQ(some.cos(position)[i], all.cos(position)[i]);
      EXPECT_EQ(some.sin(position)[i], all.sin(position)[i]);
    }
    EXPECT_FLOAT_EQ(some.cos(position)[1],
                    static_cast<float>(1.25 * std::cos(0.03 * static_cast<double>(position))));
  }
  EXPECT_FALSE(some.is_prepared(4));
}

TEST(Ops, HalfConversionsEqualTheScalarOnes) {
  std::vector<uint16_t> halves(0x10000);
  std::iota(halves.begin(), halves.end(), 0);
  Prng prng(8);
  std::vector<float> x = random_floats(prng, 10'000, 70'000);
  const std::vector<float> small = random_floats(prng, 10'000, 1e-6);
  x.insert(x.end(), small.begin(), small.end());
  x.insert(x.end(), {INFINITY, -INFINITY, 65520.0f, 0x1p-25f, 0.0f, -0.0f});
  on_each_isa([&](bool) {
    std::vector<float> wide(halves.size());
    f16_to_f32(halves.data(), halves.size(), wide.data());
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const float expected = half_to_float(halves[i]);
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(wide[i]) : wide[i] == expected) << i;
    }
    bf16_to_f32(halves.data(), halves.size(), wide.data());
    for (std::size_t i = 0; i < wide.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), static_cast<uint32_t>(i) << 16);
    }
    std::vector<uint16_t> out(x.size());
    f32_to_f16(x.data(), x.size(), out.data());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], float_to_half(x[i])) << x[i];
    f32_to_bf16(x.data(), x.size(), out.data());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], float_to_bf16(x[i])) << x[i];
  });
}

TEST(Ops, TheProcessNamesOneInstructionSet) {
  EXPECT_FALSE(isa_name().empty());
  on_each_isa([&](bool fma) { EXPECT_EQ(isa_name() != "EMU128" && isa_name() != "SCALAR", fma); });
}

}  // namespace
}  // namespace pagewise::kernels
