// SPDX-License-Identifier: Apache-2.0
#include "simulate/routing.h"

#include "base/check.h"

namespace pagewise::simulate {
namespace {

constexpr std::string_view kNames[] = {"random", "least-loaded", "prefix-aware"};

template <typename Cost>
std::size_t cheapest(std::span<const std::unique_ptr<Replica>> replicas, Cost cost) {
  std::size_t best = 0;
  uint64_t best_cost = UINT64_MAX;
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const uint64_t its_cost = cost(*replicas[i]);
    if (its_cost < best_cost) best = i, best_cost = its_cost;
  }
  return best;
}

}  // namespace

std::string_view routing_name(Routing routing) { return kNames[static_cast<std::size_t>(routing)]; }

std::optional<Routing> parse_routing(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<Routing>(i);
  }
  return std::nullopt;
}

std::size_t Router::choose(std::span<const std::unique_ptr<Replica>> replicas,
                           const std::vector<TokenId>& prompt) {
  PW_CHECK(!replicas.empty());
  if (replicas.size() == 1) return 0;
  switch (routing_) {
    case Routing::kRandom:
      return prng_.below(replicas.size());
    case Routing::kLeastLoaded:
      return cheapest(replicas,
                      [](const Replica& replica) -> uint64_t { return replica.requests_open(); });
    case Routing::kPrefixAware:
      return cheapest(replicas, [&](const Replica& replica) {
        return replica.prompt_tokens_open() + prompt.size() - replica.cached_tokens(prompt);
      });
  }
  return 0;
}

}  // namespace pagewise::simulate
