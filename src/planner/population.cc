// SPDX-License-Identifier: Apache-2.0
#include "planner/population.h"

#include <algorithm>

#include "base/check.h"

namespace pagewise::planner {
namespace {

using Wide = unsigned __int128;
constexpr uint64_t kSizeMax = (uint64_t{1} << 63) - 1;

/// Sum over the members; at most 2^32 requests of less than 2^63 bytes, so it cannot wrap.
template <typename BytesOf>
Wide sum_of(const std::vector<Member>& members, const BytesOf& bytes_of) {
  Wide sum = 0;
  for (const Member& member : members) sum += Wide{bytes_of(member)} * member.count;
  return sum;
}

/// Requests of that many bytes together that fit, on average; 0 bytes: none.
uint64_t fitting(uint64_t memory, uint64_t requests, Wide bytes) {
  if (bytes == 0) return 0;
  return static_cast<uint64_t>(std::min<Wide>(Wide{memory} * requests / bytes, kSizeMax));
}

uint64_t count_of(const std::vector<Member>& members) {
  uint64_t count = 0;
  for (const Member& member : members) count += member.count;
  return count;
}

}  // namespace

uint64_t sequences_paged(const KvCost& cost, const std::vector<Member>& members, uint64_t memory) {
  return fitting(memory, count_of(members),
                 sum_of(members, [&](const Member& m) { return cost.paged(m.used); }));
}

Result<PopulationPlan> plan_population(const KvCost& cost, const std::vector<Member>& members,
                                       std::optional<uint64_t> memory,
                                       std::optional<uint64_t> prefix_tokens) {
  PopulationPlan plan;
  plan.requests = count_of(members);
  PW_CHECK(plan.requests > 0);
  Wide tokens = 0;
  for (const Member& member : members) {
    PW_CHECK(member.used <= member.maximum && member.maximum <= kTokensMax);
    plan.tokens_max = std::max(plan.tokens_max, member.used);
    tokens += Wide{member.used} * member.count;
  }
  plan.tokens_mean = static_cast<uint64_t>((tokens + plan.requests / 2) / plan.requests);

  const Wide naive = sum_of(members, [&](const Member& m) { return cost.exact(m.maximum); });
  const Wide used = sum_of(members, [&](const Member& m) { return cost.exact(m.used); });
  const Wide paged = sum_of(members, [&](const Member& m) { return cost.paged(m.used); });
  const Wide reserved = sum_of(members, [&](const Member& m) { return cost.paged(m.maximum); });
  if (std::max({naive, paged, reserved}) > kSizeMax) {
    return Error{ErrorCode::kInvalidArgument, "the requests together exceed 2^63 bytes"};
  }
  plan.naive_bytes = static_cast<uint64_t>(naive);
  plan.used_bytes = static_cast<uint64_t>(used);
  plan.wasted_bytes = plan.naive_bytes - plan.used_bytes;
  plan.paged_bytes = static_cast<uint64_t>(paged);
  if (!memory) return plan;

  plan.sequences_naive = fitting(*memory, plan.requests, reserved);
  plan.sequences_paged = fitting(*memory, plan.requests, paged);
  if (prefix_tokens) {
    // The prefix once, and of each request what is its own.
    const uint64_t once = cost.shared_bytes(kTokensMax, std::min(*prefix_tokens, plan.tokens_max));
    const Wide own = sum_of(members, [&](const Member& m) {
      return cost.paged(m.used) - cost.shared_bytes(m.used, *prefix_tokens);
    });
    plan.sequences_sharing = once > *memory ? 0 : fitting(*memory - once, plan.requests, own);
  }
  return plan;
}

}  // namespace pagewise::planner
