// SPDX-License-Identifier: Apache-2.0
// The live curve as GET /v1/cache/curve shows it.
#pragma once

#include <string>

#include "base/json.h"
#include "engine/operations.h"

namespace pagewise::server {

json::object curve_json(const engine::CurveReport& report);

/// One sentence: what half, twice and four times the memory would find; or why nobody can tell.
std::string curve_summary(const engine::CurveReport& report);

}  // namespace pagewise::server
