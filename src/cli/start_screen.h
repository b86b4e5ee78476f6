// SPDX-License-Identifier: Apache-2.0
// What `pagewise serve` says when it is ready.
#pragma once

#include <cstdint>
#include <string>

#include "cli/pool_size.h"
#include "cli/serve_flags.h"
#include "kv/geometry.h"
#include "model/cpu_executor.h"
#include "model/spec.h"
#include "server/served_model.h"

namespace pagewise::cli {

/// Several lines: what is served, what fits, where, and a command to try.
std::string start_screen(const ServeFlags& flags, const model::ModelSpec& spec,
                         const kv::Geometry& geometry, const Pool& pool,
                         const model::CpuExecutor& executor, const server::ServedModel& served,
                         uint16_t port);

}  // namespace pagewise::cli
