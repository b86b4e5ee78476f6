// SPDX-License-Identifier: Apache-2.0
#include "kernels/isa.h"

#include <hwy/targets.h>

namespace pagewise::kernels {

std::vector<std::string_view> isa_names() {
  std::vector<std::string_view> names;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets())
    names.emplace_back(hwy::TargetName(target));
  return names;
}

bool use_isa(std::string_view name) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (name != hwy::TargetName(target)) continue;
    // Named for tests in Highway, but what it does is what is wanted: dispatch sees this one alone.
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    return true;
  }
  return false;
}

}  // namespace pagewise::kernels
