// SPDX-License-Identifier: Apache-2.0
// The whole engine under random load, deterministic to the last bit.
//
// A seed makes a scenario (scenario.h) and a course of events: arrivals, cancellations, clients
// that vanish, failing steps, time. The executor stamps each position with the prefix it stands for
// and refuses to read a wrong one. After every step all invariants are proved; at the end every
// request has ended, nothing is live, and every answer equals that of the same request alone on an
// engine without a cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/coverage.h"

namespace pagewise::engine::sim {

struct Outcome {
  std::vector<std::string> failures;  // first things first; empty is what everybody wants
  /// Digest of all that happened, in order: what was submitted, scheduled and delivered, when, and
  /// which blocks it used.
  uint64_t trace = 0;
};

/// Runs one seed, or of its crowd only the requests named by `only` (ascending). A broken invariant
/// stops the process (PW_CHECK); everything else comes back as failures. With `questions` somebody
/// keeps asking what is known of prompts, which must not show in anything. Requires: gtest was
/// initialised. Thread: one at a time.
Outcome run(uint64_t seed, Coverage& coverage,
            const std::optional<std::vector<uint32_t>>& only = std::nullopt,
            bool questions = false);

/// The machine and the crowd in words, for people: one line each.
std::string describe(uint64_t seed,
                     const std::optional<std::vector<uint32_t>>& only = std::nullopt);

/// How many requests the seed's crowd has.
uint32_t requests_of(uint64_t seed);

}  // namespace pagewise::engine::sim
