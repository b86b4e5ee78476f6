// SPDX-License-Identifier: Apache-2.0
#include "planner/reach.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "planner/numbers.h"

namespace pagewise::planner {
namespace {

constexpr uint32_t kBlockSizes[] = {16, 32, 64, 128};

class ReachTable {
 public:
  ReachTable(const PlanInput& input, const KvCost& cost, const std::vector<Member>& members)
      : input_(input),
        cost_(cost),
        members_(members),
        wanted_(*input.users),
        memory_(*input.memory) {}

  Result<Reach> make() {
    reach_.wanted = wanted_;
    reach_.sequences = sequences_paged(cost_, members_, memory_);
    PW_RETURN_IF_ERROR(by_type());
    PW_RETURN_IF_ERROR(by_block());
    by_cap();
    add("memory", format_size(memory_for(cost_, members_)), wanted_, memory_for(cost_, members_),
        true);
    return std::move(reach_);
  }

 private:
  void add(std::string by, std::string value, uint64_t sequences, uint64_t memory, bool served) {
    reach_.options.push_back(
        {std::move(by), std::move(value), sequences, memory, sequences >= wanted_, served});
  }

  /// What so many users take; saturates at 2^63.
  uint64_t memory_for(const KvCost& cost, const std::vector<Member>& members) const {
    using Wide = unsigned __int128;
    Wide bytes = 0;
    uint64_t count = 0;
    for (const Member& member : members) {
      bytes += Wide{cost.paged(member.used)} * member.count;
      count += member.count;
    }
    const Wide need = (bytes * wanted_ + count - 1) / count;
    return static_cast<uint64_t>(std::min<Wide>(need, uint64_t{1} << 63));
  }

  Status by_type() {
    if (!input_.layout || input_.token_bytes) return Status::ok();
    for (const KvFormat& format : kv_formats()) {
      PlanInput other = input_;
      other.key_format = other.value_format = &format;
      const auto cost = cost_of(other);
      if (!cost.has_value()) continue;  // a type that does not fit the heads
      add("KV type", std::string(format.name), sequences_paged(**cost, members_, memory_),
          memory_for(**cost, members_), format.served);
    }
    return Status::ok();
  }

  Status by_block() {
    for (const uint32_t block_tokens : kBlockSizes) {
      PlanInput other = input_;
      other.block_tokens = block_tokens;
      PW_ASSIGN_OR_RETURN(const auto cost, cost_of(other));
      add("block size", std::to_string(block_tokens), sequences_paged(*cost, members_, memory_),
          memory_for(*cost, members_), true);
    }
    return Status::ok();
  }

  std::vector<Member> capped(uint64_t tokens) const {
    std::vector<Member> members = members_;
    for (Member& member : members) {
      member.used = std::min(member.used, tokens);
      member.maximum = std::min(member.maximum, tokens);
    }
    return members;
  }

  /// The greatest cap, in whole blocks, that lets all users run; none where not even one block
  /// each does, or where no cap is needed.
  void by_cap() {
    const uint64_t block = input_.block_tokens;
    uint64_t longest = 0;
    for (const Member& member : members_) longest = std::max(longest, member.used);
    uint64_t low = 0;
    uint64_t high = ceil_div(longest, block);
    while (low < high) {
      const uint64_t middle = low + (high - low + 1) / 2;
      if (sequences_paged(cost_, capped(middle * block), memory_) >= wanted_) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    if (low == 0 || low * block >= longest) return;
    const std::vector<Member> members = capped(low * block);
    add("context cap", grouped(low * block) + " tokens", sequences_paged(cost_, members, memory_),
        memory_for(cost_, members), true);
  }

  const PlanInput& input_;
  const KvCost& cost_;
  const std::vector<Member>& members_;
  const uint64_t wanted_;
  const uint64_t memory_;
  Reach reach_;
};

}  // namespace

Result<Reach> make_reach(const PlanInput& input, const KvCost& cost,
                         const std::vector<Member>& members) {
  PW_CHECK(input.users.has_value() && input.memory.has_value() && !members.empty());
  return ReachTable(input, cost, members).make();
}

}  // namespace pagewise::planner
