// SPDX-License-Identifier: Apache-2.0
// Which of several servers a request goes to.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "simulate/replica.h"

namespace pagewise::simulate {

enum class Routing : uint8_t {
  kRandom,
  kLeastLoaded,  // the fewest requests that have not ended
  /// The fewest prompt tokens to compute before the answer can begin: those that wait there
  /// already, and of this prompt what is not cached there. So a cached prefix draws requests to
  /// itself until its server is further behind than computing the prefix again would take.
  kPrefixAware,
};

/// "random", "least-loaded", "prefix-aware".
std::string_view routing_name(Routing routing);
std::optional<Routing> parse_routing(std::string_view name);

/// Draws for kRandom, and nothing else.
class Router {
 public:
  Router(Routing routing, uint64_t seed) : routing_(routing), prng_(mix64(seed)) {}

  /// An index into `replicas`; of equal ones the first. Requires: at least one.
  std::size_t choose(std::span<const std::unique_ptr<Replica>> replicas,
                     const std::vector<TokenId>& prompt);

 private:
  const Routing routing_;
  Prng prng_;
};

}  // namespace pagewise::simulate
