// SPDX-License-Identifier: Apache-2.0
// For tests: runs a body once on each instruction set that this CPU has and the kernels are
// compiled for.
#pragma once

#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace pagewise::kernels::testing {

/// `body(fma)`: fma tells whether results must equal the scalar reference bit for bit.
template <typename Body>
void on_each_isa(Body&& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    body(target != HWY_EMU128 && target != HWY_SCALAR);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

/// Uniform in [-range, range).
inline std::vector<float> random_floats(Prng& prng, std::size_t n, double range = 1.0) {
  std::vector<float> x(n);
  for (float& value : x) value = static_cast<float>((prng.uniform() * 2 - 1) * range);
  return x;
}

/// Equal bits where `exact`; else equal within `tolerance` relative to the largest value.
inline void expect_same(std::span<const float> actual, std::span<const float> expected, bool exact,
                        float tolerance = 1e-5f) {
  ASSERT_EQ(actual.size(), expected.size());
  float largest = 0;
  for (const float x : expected) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (exact) {
      ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
          << "index " << i << ": " << actual[i] << " is not " << expected[i];
    } else {
      ASSERT_NEAR(actual[i], expected[i], tolerance * largest) << "index " << i;
    }
  }
}

}  // namespace pagewise::kernels::testing
