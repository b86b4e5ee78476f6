// SPDX-License-Identifier: Apache-2.0
// A trace replayed: the server's own scheduler, pool and index under a clock that is arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "simulate/replica.h"
#include "simulate/routing.h"
#include "workload/trace.h"

namespace pagewise::simulate {

struct SimulationOptions {
  ReplicaOptions replica;  // of each
  uint32_t replicas = 1;
  Routing routing = Routing::kPrefixAware;
  uint64_t seed = 1;  // of kRandom
  // For reports: of the model whose geometry this is; empty where only a calibration gives it.
  std::string model_name, kv_type_name;
};

struct Outcome {
  Measured all;
  std::vector<Measured> replicas;
};

/// The same trace and options give the same outcome, to the last bit. Errors: those of
/// Replica::create and Replica::run_until. Cost: about that of the engine's bookkeeping
/// (docs/simulate.md has figures).
Result<Outcome> simulate(const workload::Trace& trace, const SimulationOptions& options);

}  // namespace pagewise::simulate
