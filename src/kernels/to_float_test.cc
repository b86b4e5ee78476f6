// SPDX-License-Identifier: Apache-2.0
#include "kernels/to_float.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "kernels/half.h"

namespace pagewise::kernels {
namespace {

constexpr TensorType kOwn[] = {TensorType::kF32,  TensorType::kF16,    TensorType::kBF16,
                               TensorType::kQ4_0, TensorType::kQ4_1,   TensorType::kQ5_0,
                               TensorType::kQ5_1, TensorType::kQ8_0,   TensorType::kQ2_K,
                               TensorType::kQ3_K, TensorType::kQ4_K,   TensorType::kQ5_K,
                               TensorType::kQ6_K, TensorType::kIQ4_NL, TensorType::kMXFP4};

std::vector<uint8_t> random_bytes(Prng& prng, std::size_t n) {
  std::vector<uint8_t> bytes(n);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(prng.next());
  return bytes;
}

void expect_equal_values(const std::vector<float>& ours, const std::vector<float>& theirs) {
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (std::isnan(theirs[i])) {
      ASSERT_TRUE(std::isnan(ours[i])) << "index " << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(ours[i]), std::bit_cast<uint32_t>(theirs[i]))
          << "index " << i << ": " << ours[i] << " is not " << theirs[i];
    }
  }
}

#ifdef PAGEWISE_GGML
TEST(ToFloat, OwnDecodersGiveGgmlsBitsForRandomBytes) {
  const uint64_t seed = 20261130;
  RecordProperty("seed", static_cast<int>(seed));
  Prng prng(seed);
  for (const TensorType type : kOwn) {
    const TensorTypeInfo& info = *tensor_type_info(type);
    SCOPED_TRACE(info.name);
    const ToFloat theirs = ggml_to_float(type);
    if (type == TensorType::kF32) {
      EXPECT_EQ(theirs, nullptr);  // ggml has no decoder for what needs none
      continue;
    }
    ASSERT_NE(theirs, nullptr);
    const int64_t elements = 64 * 256;
    const std::vector<uint8_t> bytes = random_bytes(prng, row_bytes(type, elements));
    std::vector<float> a(elements);
    std::vector<float> b(elements);
    own_to_float(type)(bytes.data(), a.data(), elements);
    theirs(bytes.data(), b.data(), elements);
    expect_equal_values(a, b);
  }
}

TEST(ToFloat, TypesWithoutOwnDecoderGoThroughGgml) {
  for (const TensorType type :
       {TensorType::kIQ4_XS, TensorType::kIQ2_XXS, TensorType::kTQ1_0, TensorType::kIQ1_M}) {
    EXPECT_EQ(own_to_float(type), nullptr);
    EXPECT_TRUE(find_to_float(type).has_value()) << tensor_type_info(type)->name;
  }
}
#else
TEST(ToFloat, WithoutGgmlARareTypeIsRefusedByNameWithWhatToDo) {
  const Result<ToFloat> found = find_to_float(TensorType::kIQ4_XS);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(found.error().message.find("IQ4_XS"), std::string::npos);
  EXPECT_NE(found.error().message.find("PAGEWISE_GGML"), std::string::npos);
}
#endif

TEST(ToFloat, EveryOwnTypeIsFoundAndNeedsNoAlignment) {
  Prng prng(7);
  for (const TensorType type : kOwn) {
    SCOPED_TRACE(tensor_type_info(type)->name);
    ASSERT_TRUE(find_to_float(type).has_value());
    const int64_t elements = 512;
    const std::vector<uint8_t> bytes = random_bytes(prng, row_bytes(type, elements));
    std::vector<uint8_t> shifted(bytes.size() + 1);
    std::memcpy(shifted.data() + 1, bytes.data(), bytes.size());
    std::vector<float> a(elements);
    std::vector<float> b(elements);
    find_to_float(type).value()(bytes.data(), a.data(), elements);
    find_to_float(type).value()(shifted.data() + 1, b.data(), elements);
    expect_equal_values(a, b);
  }
}

TEST(ToFloat, IntegersAreNoWeightsAndAreRefusedByName) {
  const Result<ToFloat> found = find_to_float(TensorType::kI32);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(found.error().message.find("I32"), std::string::npos);
  EXPECT_FALSE(find_to_float(static_cast<TensorType>(99)).has_value());
}

TEST(ToFloat, DecodesAQ4_1BlockAsItsFormatSays) {
  std::vector<uint8_t> block(20);
  const uint16_t scale = float_to_half(0.5f);
  const uint16_t minimum = float_to_half(-3.0f);
  std::memcpy(block.data(), &scale, 2);
  std::memcpy(block.data() + 2, &minimum, 2);
  block[4] = 0xf2;  // value 0 is 2, value 16 is 15
  std::vector<float> y(32);
  own_to_float(TensorType::kQ4_1)(block.data(), y.data(), 32);
  EXPECT_EQ(y[0], 0.5f * 2 - 3);
  EXPECT_EQ(y[16], 0.5f * 15 - 3);
  EXPECT_EQ(y[1], -3.0f);
}

TEST(ToFloat, DecodesAnMxfp4BlockAsItsFormatSays) {
  // Two exponents that make a float subnormal, and an ordinary one; low nibbles come first.
  const std::pair<int, float> scales[] = {{0, 0x1p-127f}, {1, 0x1p-126f}, {128, 2.0f}};
  for (const auto& [exponent, scale] : scales) {
    std::vector<uint8_t> block(17);
    block[0] = static_cast<uint8_t>(exponent);
    block[1] = 0xf2;  // E2M1: value 0 is 1, value 16 is -6
    block[2] = 0x91;  // value 1 is 0.5, value 17 is -0.5
    std::vector<float> y(32);
    own_to_float(TensorType::kMXFP4)(block.data(), y.data(), 32);
    EXPECT_EQ(y[0], scale);
    EXPECT_EQ(y[16], -6 * scale);
    EXPECT_EQ(y[1], 0.5f * scale);
    EXPECT_EQ(y[17], -0.5f * scale);
    EXPECT_EQ(y[2], 0.0f);
  }
}

TEST(Half, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = half_to_float(static_cast<uint16_t>(half));
    if (std::isnan(value)) {
      EXPECT_TRUE((half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0);
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    } else {
      ASSERT_EQ(float_to_half(value), half);
    }
  }
}

TEST(Half, RoundsToNearestEvenAndOverflowsToInfinity) {
  EXPECT_EQ(float_to_half(1.0f + 0x1p-11f), float_to_half(1.0f));  // a tie, down to even
  EXPECT_EQ(float_to_half(1.0f + 3 * 0x1p-11f),
            float_to_half(1.0f + 0x1p-9f));  // a tie, up to even
  EXPECT_EQ(half_to_float(float_to_half(65519.0f)), 65504.0f);
  EXPECT_EQ(half_to_float(float_to_half(65520.0f)), INFINITY);
  EXPECT_EQ(half_to_float(float_to_half(-1e30f)), -INFINITY);
  EXPECT_EQ(half_to_float(float_to_half(0x1p-25f)), 0.0f);  // a tie, down to even
  EXPECT_EQ(half_to_float(float_to_half(0x1.8p-25f)), 0x1p-24f);
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), float_to_bf16(1.0f));
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace pagewise::kernels
