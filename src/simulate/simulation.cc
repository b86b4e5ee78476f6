// SPDX-License-Identifier: Apache-2.0
#include "simulate/simulation.h"

#include <memory>
#include <utility>

#include "base/check.h"

namespace pagewise::simulate {

Result<Outcome> simulate(const workload::Trace& trace, const SimulationOptions& options) {
  PW_CHECK(options.replicas > 0);
  std::vector<std::unique_ptr<Replica>> replicas;
  for (uint32_t i = 0; i < options.replicas; ++i) {
    PW_ASSIGN_OR_RETURN(std::unique_ptr<Replica> replica, Replica::create(options.replica));
    replicas.push_back(std::move(replica));
  }
  Router router(options.routing, options.seed);
  uint64_t id = 0;
  for (const workload::TraceRequest& request : trace.requests()) {
    for (const std::unique_ptr<Replica>& replica : replicas) {
      PW_RETURN_IF_ERROR(replica->run_until(request.arrival_ns));
    }
    std::vector<TokenId> prompt = trace.prompt(request);
    Replica& chosen = *replicas[router.choose(replicas, prompt)];
    chosen.offer(RequestId(++id), std::move(prompt), trace.pieces(request), request.output_tokens,
                 request.arrival_ns);
  }
  Outcome outcome;
  for (const std::unique_ptr<Replica>& replica : replicas) {
    PW_RETURN_IF_ERROR(replica->finish());
    outcome.replicas.push_back(replica->measured());
    outcome.all.merge(outcome.replicas.back());
  }
  return outcome;
}

}  // namespace pagewise::simulate
