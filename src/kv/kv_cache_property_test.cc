// SPDX-License-Identifier: Apache-2.0
// The cache against a naive model, over seeded random lives: one list of events, the real structure
// and a model of maps and vectors side by side, compared after each event.
//
// The model keeps the bytes. Each position of each block holds a fingerprint of the whole prefix
// that it stands for (namespace and every token up to it), written by the test as an executor
// would: steps write, orders copy and zero. Whatever the cache hands out is checked against the
// prefix that it claims to be. From the same fingerprints the model derives how far a hit must go:
// to the longest position for which every full group has all blocks, and every sliding group those
// of its window.
//
// A failing seed is printed; PAGEWISE_SEED=n runs it alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/prng.h"
#include "kv/geometry.h"
#include "kv/kv_cache.h"

namespace pagewise::kv {
namespace {

using Tokens = std::vector<TokenId>;

uint64_t current_seed = 0;
void print_seed(int) {
  std::fprintf(stderr, "stopped by a check: replay with PAGEWISE_SEED=%lu\n", current_seed);
  std::_Exit(1);
}

uint64_t fingerprint(uint64_t previous, TokenId token) {
  return mix64(previous ^ (static_cast<uint64_t>(token.value) + 1) * 0x9e3779b97f4a7c15ULL);
}
uint64_t first_fingerprint(const std::string& space) {
  uint64_t value = 1;
  for (char c : space) value = mix64(value ^ static_cast<unsigned char>(c));
  return value;
}

uint32_t common(const Tokens& a, const Tokens& b) {
  uint32_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

enum class Sabotage {
  kNone,
  kLoseCopies,
  kPublishBeforeStep,
  kShortWindow,
  kNoFloors,
  kNoCeilings
};

class Life {
 public:
  Life(uint64_t seed, Sabotage sabotage) : prng_(seed), sabotage_(sabotage) {
    constexpr uint32_t kSizes[] = {1, 2, 2, 16, 16, 32, 256};
    config_.block_tokens = kSizes[prng_.below(std::size(kSizes))];
    const uint32_t blocks = 8 + static_cast<uint32_t>(prng_.below(chance(80) ? 40 : 505));
    const auto another = [&] { return 8 + static_cast<uint32_t>(prng_.below(blocks)); };
    const auto window = [&] {
      const uint64_t most = chance(70) ? 3 * config_.block_tokens + 2 : 600;
      return 1 + static_cast<uint32_t>(prng_.below(most));
    };
    switch (prng_.below(8)) {
      case 0:  // no group sees everything
        config_.groups.push_back({blocks, window()});
        if (chance(50)) config_.groups.push_back({another(), window()});
        break;
      case 1:
      case 2:
      case 3:
        config_.groups.push_back({blocks, 0});
        config_.groups.push_back({another(), window()});
        if (chance(20)) config_.groups.push_back({another(), window()});
        if (chance(20)) config_.groups.push_back({another(), 0});
        if (chance(30)) std::swap(config_.groups[0], config_.groups[1]);
        break;
      case 4:
      case 5:
        config_.groups.push_back({blocks, 0});
        config_.groups.push_back({another(), 0});
        break;
      default:
        config_.groups.push_back({blocks, 0});
    }
    for (const CacheGroup& group : config_.groups) sliding_ |= group.window != 0;
    config_.shuffle_blocks = chance(30);
    config_.shuffle_seed = seed;
    config_.protected_share = std::vector<double>{0, 0.3, 0.8, 1}[prng_.below(4)];
    config_.lease_5m_ns = 50;
    config_.lease_1h_ns = 400;
    config_.lease_share = std::vector<double>{0, 0.3, 0.5, 1}[prng_.below(4)];
    config_.lease_share_namespace = chance(30) ? 0.6 : 1.0;
    config_.cache_tokens_min =
        chance(50) ? 1 + static_cast<uint32_t>(prng_.below(2 * config_.block_tokens)) : 0;
    if (chance(30)) config_.cache_mode = CacheMode::kStrict;
    alphabet_ = 1 + static_cast<uint32_t>(prng_.below(4));
    spaces_ = 1 + static_cast<uint32_t>(prng_.below(3));
    patient_ = chance(70);
    const uint64_t longest =
        (sliding_ ? 12 : 6) * uint64_t{config_.block_tokens} + (sliding_ ? 40 : 4);
    length_max_ = 1 + prng_.below(std::min<uint64_t>(longest, 700));
    // Swarm: a life may lack some kinds of event altogether.
    for (uint32_t& weight : weights_)
      weight = chance(25) ? 0 : 1 + static_cast<uint32_t>(prng_.below(10));
    weights_[kAdmit] = std::max(weights_[kAdmit], 3u);
    weights_[kClear] = chance(70) ? 0 : 1;
    weights_[kResize] = sabotage_ != Sabotage::kNone || chance(70) ? 0 : 1;

    if (chance(50)) draw_quotas();
    CacheConfig given = config_;
    for (NamespaceQuota& quota : given.quotas) {
      if (sabotage_ == Sabotage::kNoFloors) quota.floor_blocks = 0;
      if (sabotage_ == Sabotage::kNoCeilings) quota.ceiling_blocks = 0;
    }
    for (CacheGroup& group : given.groups)
      group.window -= sabotage_ == Sabotage::kShortWindow && group.window > 1;
    auto created = KvCache::create(given);
    cache_ = std::move(created).value();
    for (const CacheGroup& group : config_.groups) {
      memory_.emplace_back(std::size_t{group.blocks} * config_.block_tokens, 0);
      idle_.emplace_back(group.blocks);
      taken_by_.emplace_back(group.blocks);
    }
    cache_->set_time(now_);
  }

  /// Empty when all is well; else what went wrong.
  std::string run(uint32_t events) {
    for (uint32_t i = 0; i < events && failure_.empty(); ++i) {
      event();
      check_counts();
    }
    while (!open_.empty() && failure_.empty()) {
      release(0);
      check_counts();
    }
    for (uint32_t g = 0; g < cache_->groups(); ++g) {
      if (cache_->counts(g).live != 0) fail("blocks stay live after every sequence was released");
    }
    cache_->clear();
    for (uint32_t g = 0; g < cache_->groups(); ++g) {
      if (cache_->counts(g).free != cache_->counts(g).pool) fail("a cleared cache is not free");
    }
    return failure_;
  }

  uint64_t hits = 0, evictions = 0, reads = 0, broken = 0, copies = 0, twins = 0;
  uint64_t window_hits = 0;  // of tokens, behind blocks that a sliding group lacked
  uint64_t shortened = 0;    // hits that ended before a full group's blocks did
  uint64_t joined = 0;       // entries that were not there yet when the request came
  uint64_t unreachable = 0, passed = 0, returned = 0;
  uint64_t grown = 0, shrunk = 0, resizes_refused = 0;
  uint64_t floors_held = 0, below_floor = 0, ceilings = 0, floors_refused = 0;

 private:
  enum Event { kAdmit, kStep, kReserve, kFork, kRelease, kTime, kClear, kResize, kEvents };

  struct Pending {
    uint32_t tokens;
    LeaseClass lease;
    TimeNs start;
  };
  struct Open {
    SeqId id;
    std::string space;
    bool use_cache = true;
    uint64_t epoch = 0;
    Tokens tokens;  // prompt, then generated
    uint32_t computed = 0;
    uint32_t published = 0;  // of these, by its own publish
    uint32_t covered = 0;    // positions asked for: a step is on its way while these are more
    uint32_t promised = 0;   // positions that the admission asked for
    uint32_t prompt = 0;     // tokens
    std::vector<Pending> pending;
  };
  struct Entry {
    LeaseClass lease;
    TimeNs expires;
    TimeNs readable;  // since
  };
  using Entries = std::map<std::pair<std::string, Tokens>, Entry>;

  bool chance(uint32_t percent) { return prng_.below(100) < percent; }
  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

  void event() {
    uint32_t sum = 0;
    for (uint32_t weight : weights_) sum += weight;
    uint64_t drawn = prng_.below(sum);
    uint32_t kind = 0;
    while (drawn >= weights_[kind]) drawn -= weights_[kind++];
    if (kind == kAdmit || (open_.empty() && kind != kTime && kind != kClear && kind != kResize))
      return admit();
    const std::size_t which = open_.empty() ? 0 : prng_.below(open_.size());
    switch (kind) {
      case kStep:
        return step(which);
      case kReserve:
        return reserve(which);
      case kFork:
        return fork(which);
      case kRelease:
        return release(which);
      case kTime:
        return pass_time();
      case kResize:
        return resize();
      default:
        return clear();
    }
  }

  std::string draw_space() { return std::string(1, static_cast<char>('a' + prng_.below(spaces_))); }

  /// Floors that sum to anything up to the whole pool, and ceilings from a block on.
  void draw_quotas() {
    uint32_t rest = measure();
    for (uint32_t i = 0; i < spaces_; ++i) {
      if (chance(30)) continue;
      NamespaceQuota quota;
      quota.name = std::string(1, static_cast<char>('a' + i));
      if (chance(60)) quota.floor_blocks = static_cast<uint32_t>(prng_.below(rest + 1));
      if (chance(50)) {
        quota.ceiling_blocks =
            std::max(1u, quota.floor_blocks) + static_cast<uint32_t>(prng_.below(measure() + 2));
      }
      rest -= quota.floor_blocks;
      config_.quotas.push_back(quota);
    }
  }
  uint32_t measure() const {
    uint32_t blocks = UINT32_MAX;
    for (const CacheGroup& group : config_.groups) {
      if (group.window == 0) blocks = std::min(blocks, group.blocks);
    }
    for (const CacheGroup& group : config_.groups) {
      if (blocks == UINT32_MAX || !has_full()) blocks = std::min(blocks, group.blocks);
    }
    return blocks;
  }
  bool has_full() const {
    return std::any_of(config_.groups.begin(), config_.groups.end(),
                       [](const CacheGroup& group) { return group.window == 0; });
  }
  uint32_t floor_of(const NamespaceQuota& quota, uint32_t g) const {
    if (config_.groups[g].window == 0) return quota.floor_blocks;
    return quota.floor_blocks * config_.groups[g].blocks / measure();
  }
  uint32_t ceiling_of(const NamespaceQuota& quota, uint32_t g) const {
    if (quota.ceiling_blocks == 0) return UINT32_MAX;
    if (config_.groups[g].window == 0) return quota.ceiling_blocks;
    return (quota.ceiling_blocks * config_.groups[g].blocks + measure() - 1) / measure();
  }

  /// What a namespace has in a group, by who took the blocks: in use, and cached.
  struct Use {
    uint32_t live = 0, cached = 0;
  };
  Use use_of(const std::string& space, uint32_t g) const {
    std::set<uint32_t> held;
    const auto hold = [&](const Open& open) {
      for (const BlockId block : cache_->table(open.id, g)) {
        if (block.valid()) held.insert(block.value);
      }
    };
    for (const Open& open : open_) hold(open);
    if (held_now_ != nullptr) hold(*held_now_);
    Use use;
    for (uint32_t id = 0; id < taken_by_[g].size(); ++id) {
      if (taken_by_[g][id] != space) continue;
      if (held.contains(id)) {
        ++use.live;
      } else {
        use.cached += cache_->findable(g, BlockId(id));
      }
    }
    return use;
  }

  /// Blocks that the namespace can have: not those that others' floors keep, unless it is alone.
  uint32_t available_to(const std::string& space, bool alone, uint32_t g) const {
    uint32_t blocks = cache_->counts(g).available();
    for (const NamespaceQuota& quota : config_.quotas) {
      if (quota.name == space || alone) continue;
      blocks -= std::min(use_of(quota.name, g).cached, floor_of(quota, g));
    }
    return blocks;
  }

  // What every namespace with a floor has cached, by quota and group, before something happens.
  using Kept = std::vector<std::vector<uint32_t>>;
  Kept kept() const {
    Kept kept;
    for (const NamespaceQuota& quota : config_.quotas) {
      kept.emplace_back();
      for (uint32_t g = 0; g < cache_->groups(); ++g)
        kept.back().push_back(use_of(quota.name, g).cached);
    }
    return kept;
  }
  /// A namespace's call pushes no other below its floor, unless its sequence is the only one.
  void check_floors(const Kept& before, const std::string& actor, bool alone) {
    const Kept after = kept();
    const bool counted = cache_->counters().evictions_below_floor != below_floor;
    below_floor = cache_->counters().evictions_below_floor;
    if (counted && !alone) fail("a floor was broken for a sequence that does not run alone");
    if (alone) return;
    for (std::size_t q = 0; q < before.size(); ++q) {
      if (config_.quotas[q].name == actor) continue;
      // With a node of a full group its blocks of sliding groups go: nothing leads to them any
      // more.
      bool nodes_went = false;
      for (uint32_t g = 0; g < cache_->groups(); ++g)
        nodes_went |= config_.groups[g].window == 0 && after[q][g] < before[q][g];
      for (uint32_t g = 0; g < cache_->groups(); ++g) {
        if (nodes_went && config_.groups[g].window != 0) continue;
        const uint32_t floor = std::min(before[q][g], floor_of(config_.quotas[q], g));
        if (after[q][g] < floor) fail("a namespace was pushed below its floor by another");
        floors_held += after[q][g] == floor && floor > 0 && cache_->counts(g).free == 0;
      }
    }
  }
  void check_ceilings() {
    for (const NamespaceQuota& quota : config_.quotas) {
      for (uint32_t g = 0; g < cache_->groups(); ++g) {
        const Use use = use_of(quota.name, g);
        if (use.cached > 0 && use.live + use.cached > ceiling_of(quota, g))
          fail("a namespace caches beyond its ceiling");
      }
    }
    ceilings = cache_->counters().evictions_ceiling;
  }

  Tokens draw_tokens() {
    Tokens tokens;
    if (!history_.empty() && chance(60)) {
      const Tokens& old = history_[prng_.below(history_.size())].second;
      tokens.assign(old.begin(),
                    old.begin() + static_cast<std::ptrdiff_t>(prng_.below(old.size() + 1)));
    }
    const uint64_t more = prng_.below(1 + (chance(50) ? length_max_ : 4));
    for (uint64_t i = 0; i < more || tokens.empty(); ++i) tokens.push_back(draw_token());
    return tokens;
  }
  TokenId draw_token() { return TokenId(static_cast<int32_t>(prng_.below(alphabet_))); }

  // What a cache that never forgets would find.
  uint32_t longest_published(const std::string& space, const Tokens& tokens) const {
    uint32_t longest = 0;
    for (const auto& [where, known] : history_) {
      if (where == space) longest = std::max(longest, common(known, tokens));
    }
    return longest;
  }

  uint32_t blocks_for(uint64_t tokens) const {
    return static_cast<uint32_t>((tokens + config_.block_tokens - 1) / config_.block_tokens);
  }

  uint32_t held_at_rest(uint32_t g, uint32_t tokens) const {
    return static_cast<uint32_t>(
        blocks_held(tokens, config_.groups[g].window, config_.block_tokens));
  }
  uint32_t first_held(uint32_t g, uint32_t tokens) const {
    const uint32_t window = config_.groups[g].window;
    return window == 0 || tokens < window ? 0 : (tokens - window) / config_.block_tokens;
  }

  std::string setting() const {
    std::string text = "blocks of " + std::to_string(config_.block_tokens);
    for (const CacheGroup& group : config_.groups) {
      text += ", " + std::to_string(group.blocks) + " with window " + std::to_string(group.window);
    }
    return text;
  }

  // Straight from the rule: the fingerprints that findable blocks hold, by group.
  uint32_t longest_hit(const std::string& space, const Tokens& tokens) const {
    const uint32_t size = config_.block_tokens;
    std::vector<std::unordered_set<uint64_t>> there(cache_->groups());
    for (uint32_t g = 0; g < cache_->groups(); ++g) {
      for (uint32_t id = 0; id < idle_[g].size(); ++id) {
        if (!cache_->findable(g, BlockId(id))) continue;
        const auto first = memory_[g].begin() + std::size_t{id} * size;
        there[g].insert(first, first + size);
      }
      there[g].erase(0);
    }
    std::vector<uint64_t> prints;
    uint64_t print = first_fingerprint(space);
    for (const TokenId token : tokens) prints.push_back(print = fingerprint(print, token));
    for (uint32_t p = static_cast<uint32_t>(tokens.size()) - 1; p > 0; --p) {
      bool all = true;
      for (uint32_t g = 0; g < cache_->groups() && all; ++g) {
        for (uint32_t i = first_held(g, p); i < blocks_for(p) && all; ++i)
          all = there[g].contains(prints[std::min((i + 1) * size, p) - 1]);
      }
      if (all) return p;
    }
    return 0;
  }

  // The two bounds of a sliding group, and what is behind its window.
  void check_windows() {
    const uint32_t size = config_.block_tokens;
    for (const Open& open : open_) {
      for (uint32_t g = 0; g < cache_->groups(); ++g) {
        const uint32_t window = config_.groups[g].window;
        const std::span<const BlockId> table = cache_->table(open.id, g);
        uint32_t first = 0;
        while (first < table.size() && !table[first].valid()) ++first;
        for (uint32_t i = first; i < table.size(); ++i) {
          if (!table[i].valid()) fail("a hole in a table");
        }
        if (first != first_held(g, open.computed)) fail("another window than the position's");
        if (table.size() < blocks_for(open.computed)) fail("a table too short");
        if (window == 0) continue;
        passed += first;
        const auto positions = static_cast<uint32_t>((table.size() - first) * size);
        if (open.computed - first * size > window + size)
          fail("more than window + 1 block of positions at rest");
        if (open.covered <= open.computed && table.size() - first > held_at_rest(g, open.computed))
          fail("more blocks at rest than a window touches");
        const uint32_t step = std::max(open.covered, open.computed) - open.computed;
        if (positions > window + step + 2 * size)
          fail("more than window + step + 2 blocks of positions during a step");
      }
    }
  }

  // Which blocks' memory could go back to the system, since when.
  struct Idle {
    bool free = true, handed_out = false;
    TimeNs since = 0;
  };
  void follow_idle() {
    for (uint32_t g = 0; g < cache_->groups(); ++g) {
      std::vector<bool> used(idle_[g].size(), false);
      for (const Open& open : open_) {
        for (const BlockId block : cache_->table(open.id, g)) {
          if (block.valid()) used[block.value] = true;
        }
      }
      for (uint32_t id = 0; id < idle_[g].size(); ++id) {
        Idle& idle = idle_[g][id];
        const bool free = !used[id] && !cache_->findable(g, BlockId(id));
        if (free && !idle.free) idle.since = now_;
        idle.free = free;
      }
    }
  }
  void return_idle() {
    const TimeNs until = now_ - 1 - static_cast<TimeNs>(prng_.below(100));
    std::optional<TimeNs> oldest;
    for (uint32_t g = 0; g < cache_->groups(); ++g) {
      std::vector<BlockId> expected, named;
      for (uint32_t id = 0; id < idle_[g].size(); ++id) {
        Idle& idle = idle_[g][id];
        if (!idle.free || !idle.handed_out) continue;
        if (!oldest || idle.since < *oldest) oldest = idle.since;
        if (idle.since > until) continue;
        expected.emplace_back(id);
        idle.handed_out = false;
      }
      if (g == 0 && oldest && (!cache_->oldest_idle() || *cache_->oldest_idle() > *oldest))
        fail("an idle block that nobody knows of");
      cache_->take_idle(g, until, named);
      returned += named.size();
      std::sort(named.begin(), named.end());
      if (named != expected) fail("other idle blocks than the model's");
    }
  }

  void perform(const Orders& orders) {
    const uint32_t size = config_.block_tokens;
    for (const FreshBlock& fresh : orders.fresh) {
      idle_[fresh.group][fresh.block.value] = {false, true, now_};
      taken_by_[fresh.group][fresh.block.value] = acting_space_;
      for (const Open& open : open_) {
        for (BlockId block : cache_->table(open.id, fresh.group)) {
          if (block == fresh.block && open.id != acting_)
            fail("a block that a sequence holds was handed out");
        }
      }
      std::fill_n(memory_[fresh.group].begin() + std::size_t{fresh.block.value} * size, size, 0);
    }
    for (const CopyOrder& copy : orders.copies) {
      ++copies;
      if (sabotage_ == Sabotage::kLoseCopies) continue;
      if (copy.positions == 0 || copy.positions >= size) fail("a copy of none or all of a block");
      std::copy_n(memory_[copy.group].begin() + std::size_t{copy.from.value} * size, copy.positions,
                  memory_[copy.group].begin() + std::size_t{copy.to.value} * size);
    }
  }

  // Every computed position of the sequence holds what it stands for.
  void check_memory(const Open& open) {
    uint64_t expected = first_fingerprint(open.space);
    for (uint32_t p = 0; p < open.computed; ++p) {
      expected = fingerprint(expected, open.tokens[p]);
      for (uint32_t g = 0; g < cache_->groups(); ++g) {
        if (p / config_.block_tokens < first_held(g, open.computed)) continue;
        if (!cache_->table(open.id, g)[p / config_.block_tokens].valid())
          return fail("a position of the window is in no block");
        if (cell(open, g, p) != expected) return fail("a position holds another prefix's K and V");
      }
    }
  }
  uint64_t& cell(const Open& open, uint32_t g, uint32_t p) {
    const BlockId block = cache_->table(open.id, g)[p / config_.block_tokens];
    return memory_[g][std::size_t{block.value} * config_.block_tokens + p % config_.block_tokens];
  }

  void admit() {
    Open open;
    open.space = draw_space();
    open.tokens = draw_tokens();
    open.use_cache = !chance(10);
    const bool may_read = open.use_cache && !chance(10);
    open.epoch = epochs_[open.space];
    const uint32_t n = static_cast<uint32_t>(open.tokens.size());

    std::vector<CachePosition> positions;
    std::vector<CacheMarker> markers;
    if (chance(60) && (may_read || !open.use_cache)) {
      uint32_t at = 0;
      while (at < n && positions.size() < 60) {
        at += 1 + static_cast<uint32_t>(prng_.below(1 + n / 8));
        if (at <= n) positions.push_back({at});
      }
      std::set<uint32_t> marked;
      for (uint64_t i = 0; i < 1 + prng_.below(4) && !positions.empty(); ++i) {
        marked.insert(static_cast<uint32_t>(prng_.below(positions.size())));
      }
      for (uint32_t position : marked) {
        markers.push_back({position, chance(40) ? LeaseClass::k1h : LeaseClass::k5m});
      }
    }
    AdmitRequest request;
    request.tokens = open.tokens;
    request.cache_namespace = open.space;
    request.use_cache = open.use_cache;
    request.read_cache = may_read;
    request.positions = positions;
    request.markers = markers;
    request.cover_tokens = chance(50) ? static_cast<uint32_t>(prng_.below(n + 1)) : 0;
    request.start = now_ - static_cast<TimeNs>(prng_.below(20));
    if (chance(15)) request.resumes_from = static_cast<uint32_t>(prng_.below(n + 1));

    const std::vector<BlockCounts> before = counts();
    const bool alone = open_.empty();
    const Kept kept_before = kept();
    const CacheCounters counters = cache_->counters();
    const AdmitEstimate estimate = cache_->estimate(request);
    // Cells are many where blocks are large: the rule is followed where it is cheap.
    const bool follow = memory_[0].size() <= 1500;
    const uint32_t by_rule =
        may_read && follow ? longest_hit(open.space, open.tokens) : open.computed;
    Orders orders;
    Result<Admitted> admitted = cache_->admit(request, orders);
    if (admitted.has_value() != estimate.fits_now) fail("the estimate and the admission disagree");
    if (!admitted) {
      if (admitted.error().code != ErrorCode::kPoolExhausted) fail("refused with another code");
      if (counts() != before || !orders.fresh.empty()) fail("a refused admission left traces");
      if (open_.empty() && estimate.fits_ever)
        fail("a request that fits the pool was refused by an idle cache");
      return;
    }
    open.id = admitted->seq;
    open.prompt = n;
    open.computed = admitted->cached_tokens;
    acting_ = open.id;
    acting_space_ = open.space;
    perform(orders);
    held_now_ = &open;
    check_floors(kept_before, open.space, alone);
    held_now_ = nullptr;
    if (open.computed != estimate.cached_tokens) fail("the estimate's hit is not the admission's");
    if (open.computed >= n) fail("no token is left to compute");
    const uint32_t known =
        may_read ? std::min(n - 1, longest_published(open.space, open.tokens)) : 0;
    if (open.computed > known) fail("a hit on what nobody published");
    // With free blocks for the rest nothing is in a hit's way; without, its partial block may be
    // the missing memory.
    open.promised = std::max(known, request.cover_tokens);
    const uint32_t whole = std::min(known, by_rule) / config_.block_tokens;
    const uint32_t rest = blocks_for(open.promised) - whole;
    bool has_room = true;
    for (uint32_t g = 0; g < cache_->groups(); ++g) {
      uint32_t needed = rest;
      if (config_.groups[g].window != 0) {
        needed = held_at_rest(g, open.promised) + 1;
        for (const Open& other : open_) needed += held_at_rest(g, other.promised);
      }
      has_room = has_room && before[g].free >= needed;
    }
    if (may_read && follow) {
      if (open.computed > by_rule) fail("a hit beyond what the rule allows");
      if (open.computed < by_rule && (has_room || open.computed % config_.block_tokens != 0)) {
        fail("a hit of " + std::to_string(open.computed) + ", by the rule " +
             std::to_string(by_rule) + " of " + std::to_string(n) + " tokens, " + setting());
      }
    }
    for (uint32_t g = 0; g < cache_->groups(); ++g) {
      if (first_held(g, open.computed) > 0) window_hits += open.computed;
    }
    shortened += open.computed < known && has_room && sliding_;
    if (open.computed < known && cache_->counters().evictions == 0 && has_room) {
      fail("a hit of " + std::to_string(open.computed) + " of " + std::to_string(known) +
           " known tokens, block size " + std::to_string(config_.block_tokens) +
           ", though nothing was evicted");
    }
    uint32_t running = 0;  // whole blocks that open sequences have published cannot be lost
    for (const Open& other : open_) {
      if (!may_read || !other.use_cache || other.space != open.space || other.epoch != open.epoch)
        continue;
      // Behind a window only what ends where the other is now.
      if (sliding_ && (other.published >= n || other.published != other.computed ||
                       other.published % config_.block_tokens != 0 ||
                       common(other.tokens, open.tokens) < other.published))
        continue;
      running =
          std::max(running, std::min({n - 1, common(other.tokens, open.tokens), other.published}));
    }
    if (open.computed < running / config_.block_tokens * config_.block_tokens)
      fail("a running prefix was not found");
    for (uint32_t g = 0; g < cache_->groups(); ++g) {
      const uint32_t covered = config_.groups[g].window == 0 ? request.cover_tokens : 0;
      if (cache_->table(open.id, g).size() != blocks_for(std::max(covered, open.computed)))
        fail("tables of another length than asked for");
    }
    check_memory(open);
    check_usage(open, request, admitted->usage, counters);
    hits += open.computed;
    reads += admitted->usage.read_tokens;
    open_.push_back(std::move(open));
  }

  // The bill, predicted from the model's own entries and B4's words.
  void check_usage(Open& open, const AdmitRequest& request, const CacheUsage& usage,
                   const CacheCounters& before) {
    const uint32_t n = static_cast<uint32_t>(open.tokens.size());
    if (usage.read_tokens + usage.created_5m_tokens + usage.created_1h_tokens +
            usage.input_tokens !=
        n) {
      return fail("usage does not add up to the prompt");
    }
    // The admission's own blocks may have broken an entry: its bill cannot be predicted then.
    if (forget_if_broken()) return;
    if (cache_->counters().leases_unreachable != before.leases_unreachable) {
      // Which of the markers it was depends on blocks that the model does not know of.
      if (!sliding_) fail("a marker out of reach without a window");
      ++unreachable;
      return clear_all();
    }
    if (!open.use_cache) {
      if (usage.input_tokens != n) fail("usage of a request that skips the cache");
      return;
    }
    const uint32_t minimum =
        config_.cache_tokens_min == 0 ? config_.block_tokens : config_.cache_tokens_min;
    const auto prefix = [&](uint32_t length) {
      return std::make_pair(open.space, Tokens(open.tokens.begin(), open.tokens.begin() + length));
    };
    const auto known = [&](uint32_t length) {
      const bool in_memory = length <= open.computed || (length == n && open.computed == n - 1);
      return in_memory && entries_.contains(prefix(length));
    };
    const auto visible = [&](uint32_t length) {
      if (!known(length)) return false;
      const bool existed = entries_.at(prefix(length)).readable <= request.start;
      joined += !existed && strict();
      return existed || !strict();
    };
    uint32_t a = 0;
    std::optional<LeaseClass> reader;
    for (const CacheMarker& marker : request.markers) {
      for (uint32_t back = 0; back < 20 && back <= marker.position; ++back) {
        const uint32_t length = request.positions[marker.position - back].tokens;
        if (!visible(length)) continue;
        if (length > a) reader.reset();
        if (length >= a) reader = std::max(reader.value_or(LeaseClass::k5m), marker.lease);
        a = std::max(a, length);
        break;
      }
    }
    if (reader) refresh(prefix(a), *reader, request.start);
    // Refusals hit the longest new creations first.
    uint64_t refused = cache_->counters().leases_refused - before.leases_refused;
    uint32_t b = a, c = a;
    std::vector<CacheMarker> counting;
    for (std::size_t i = request.markers.size(); i-- > 0;) {
      const uint32_t length = request.positions[request.markers[i].position].tokens;
      if (length < minimum) continue;
      if (known(length)) {
        refresh(prefix(length), request.markers[i].lease, request.start);
      } else if ((length > a || sliding_) && refused > 0) {
        --refused;
        continue;
      } else {
        open.pending.push_back({length, request.markers[i].lease, request.start});
      }
      counting.insert(counting.begin(), request.markers[i]);
    }
    if (refused != 0) fail("more leases refused than asked for");
    for (const CacheMarker& marker : counting) {
      const uint32_t length = request.positions[marker.position].tokens;
      if (length > a && marker.lease == LeaseClass::k1h) b = length;
      c = length;
    }
    const CacheUsage expected{a, c > b ? c - b : 0, b - a, n - std::max({a, b, c})};
    if (!(usage == expected)) {
      fail("usage read " + std::to_string(usage.read_tokens) + " 5m " +
           std::to_string(usage.created_5m_tokens) + " 1h " +
           std::to_string(usage.created_1h_tokens) + ", expected " + std::to_string(a) + " " +
           std::to_string(expected.created_5m_tokens) + " " +
           std::to_string(expected.created_1h_tokens));
    }
  }
  // After a break the model and the cache start over together, so that both know the same entries
  // again.
  bool forget_if_broken() {
    if (cache_->counters().leases_broken == broken_seen_) return false;
    broken += cache_->counters().leases_broken - broken_seen_;
    broken_seen_ = cache_->counters().leases_broken;
    clear_all();
    return true;
  }

  bool strict() const { return config_.cache_mode == CacheMode::kStrict; }
  TimeNs lease_ns(LeaseClass lease) const {
    return lease == LeaseClass::k1h ? config_.lease_1h_ns : config_.lease_5m_ns;
  }
  void refresh(const std::pair<std::string, Tokens>& key, LeaseClass lease, TimeNs start) {
    Entry& entry = entries_.at(key);
    entry.lease = std::max(entry.lease, lease);
    entry.expires = std::max(entry.expires, start + lease_ns(entry.lease));
  }

  void step(std::size_t which) {
    Open& open = open_[which];
    acting_ = open.id;
    const uint32_t left = static_cast<uint32_t>(open.tokens.size()) - open.computed;
    uint32_t more = left == 0 ? 1 : 1 + static_cast<uint32_t>(prng_.below(left));
    if (left == 0) {  // a generated token
      open.tokens.push_back(draw_token());
    }
    const uint32_t end = open.computed + more;
    if (!ensure(open, end)) return patient_ ? release(which) : void();
    if (sabotage_ == Sabotage::kPublishBeforeStep) {
      publish(open, end);
      admit();
      return;
    }
    uint64_t value = first_fingerprint(open.space);
    for (uint32_t p = 0; p < end; ++p) {
      value = fingerprint(value, open.tokens[p]);
      if (p < open.computed) continue;
      for (uint32_t g = 0; g < cache_->groups(); ++g) cell(open, g, p) = value;
    }
    publish(open, end);
  }

  void publish(Open& open, uint32_t end) {
    open.computed = open.published = end;
    open.covered = std::max(open.covered, end);
    const Tokens computed(open.tokens.begin(), open.tokens.begin() + end);
    cache_->publish(open.id, computed);
    if (!open.use_cache || open.epoch != epochs_[open.space]) return;
    history_.emplace_back(open.space, computed);
    if (forget_if_broken()) return;
    if (strict() && end < open.prompt) return;
    while (!open.pending.empty() && open.pending.back().tokens <= end) {
      const Pending pending = open.pending.back();
      open.pending.pop_back();
      if (pending.start + lease_ns(pending.lease) <= now_) continue;
      const auto key =
          std::make_pair(open.space, Tokens(computed.begin(), computed.begin() + pending.tokens));
      entries_.try_emplace(key, Entry{pending.lease, pending.start, now_});
      refresh(key, pending.lease, pending.start);
    }
  }

  bool ensure(Open& open, uint32_t tokens) {
    std::vector<uint32_t> needed(cache_->groups());
    const bool alone = open_.size() == 1;
    const Kept kept_before = kept();
    acting_space_ = open.space;
    const bool writes_partial = tokens > open.computed && open.computed % config_.block_tokens != 0;
    bool fits = true;
    for (uint32_t g = 0; g < cache_->groups(); ++g) {
      const auto have = static_cast<uint32_t>(cache_->table(open.id, g).size());
      uint32_t holders = 0;
      if (writes_partial) {
        const BlockId tail = cache_->table(open.id, g)[open.computed / config_.block_tokens];
        for (const Open& other : open_) {
          for (BlockId block : cache_->table(other.id, g)) holders += block == tail;
        }
      }
      needed[g] = (blocks_for(tokens) > have ? blocks_for(tokens) - have : 0) + (holders > 1);
      fits = fits && (needed[g] == 0 || needed[g] <= available_to(open.space, alone, g));
    }
    if ((cache_->coverable(open.id, tokens) >= tokens) != fits)
      fail("what can be covered is not what ensure covers");
    const std::vector<BlockCounts> before = counts();
    Orders orders;
    const Status status = cache_->ensure(open.id, tokens, orders);
    if (status.has_value() != fits) fail("ensure succeeded or failed against the count of blocks");
    if (!status) {
      if (counts() != before || !orders.fresh.empty()) fail("a failed ensure left traces");
      return false;
    }
    for (uint32_t g = 0; g < cache_->groups(); ++g) {
      const auto taken = std::count_if(orders.fresh.begin(), orders.fresh.end(),
                                       [&](const FreshBlock& fresh) { return fresh.group == g; });
      if (static_cast<uint32_t>(taken) != needed[g])
        fail("ensure took another number of blocks than needed");
    }
    perform(orders);
    check_floors(kept_before, open.space, alone);
    if (cache_->tokens_covered(open.id) < tokens) fail("ensure covers too little");
    open.covered = std::max(open.covered, tokens);
    forget_if_broken();
    return true;
  }

  void reserve(std::size_t which) {
    acting_ = open_[which].id;
    ensure(open_[which], open_[which].computed +
                             static_cast<uint32_t>(prng_.below(2 * config_.block_tokens + 2)));
  }

  void fork(std::size_t which) {
    if (open_.size() > 40) return;
    Open copy = open_[which];
    copy.pending.clear();
    copy.id = cache_->fork(open_[which].id);
    copy.covered = copy.computed;
    copy.promised = 0;
    copy.tokens.resize(copy.computed);
    if (copy.tokens.empty()) copy.tokens.push_back(draw_token());
    check_memory(copy);
    open_.push_back(std::move(copy));
  }

  void release(std::size_t which) {
    check_memory(open_[which]);
    cache_->release(open_[which].id);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(which));
    forget_if_broken();  // by its namespace's ceiling
  }

  void pass_time() {
    now_ += static_cast<TimeNs>(prng_.below(60));
    cache_->set_time(now_);
    std::erase_if(entries_, [&](const auto& item) { return item.second.expires <= now_; });
    if (cache_->entries() != entries_.size()) fail("another number of entries than the model's");
    if (chance(50)) return_idle();
  }

  // The pool becomes larger or smaller while it is used. Refused only where sequences hold more.
  void resize() {
    std::vector<uint32_t> blocks;
    bool fits = true;
    for (uint32_t g = 0; g < cache_->groups(); ++g) {
      const BlockCounts now = cache_->counts(g);
      // Seldom tiny: such a pool has nothing to find.
      const uint32_t least = chance(10) ? 1 : (now.pool + 2) / 2;
      const uint32_t most = std::max(least, std::min(2 * now.pool, 1024u));
      blocks.push_back(least + static_cast<uint32_t>(prng_.below(most - least + 1)));
      if (chance(30)) blocks.back() = std::max(1u, now.live);
      fits = fits && now.live <= blocks.back();
    }
    // What the floors leave no room for is refused, too.
    std::vector<CacheGroup> after = config_.groups;
    for (uint32_t g = 0; g < cache_->groups(); ++g) after[g].blocks = blocks[g];
    std::swap(after, config_.groups);
    uint32_t floors = 0;
    for (const NamespaceQuota& quota : config_.quotas) floors += quota.floor_blocks;
    floors_refused += fits && floors > measure();
    fits = fits && floors <= measure();
    std::swap(after, config_.groups);
    follow_idle();
    const std::vector<BlockCounts> before = counts();
    std::vector<FreshBlock> dropped;
    const Status status = cache_->resize(blocks, dropped);
    if (status.has_value() != fits) return fail("a resize against the count of live blocks");
    if (!status) {
      ++resizes_refused;
      if (status.code() != ErrorCode::kPoolExhausted) fail("refused with another code");
      if (counts() != before || !dropped.empty()) fail("a refused resize left traces");
      return;
    }
    for (uint32_t g = 0; g < cache_->groups(); ++g) {
      config_.groups[g].blocks = blocks[g];
      const BlockCounts now = cache_->counts(g);
      if (now.pool != blocks[g]) fail("a pool of another size than asked for");
      if (now.live != before[g].live) fail("a resize took or gave live blocks");
      if (blocks[g] >= before[g].pool && now.cached < before[g].cached && cache_->groups() == 1 &&
          config_.quotas.empty() && cache_->counters().leases_broken == broken_seen_)
        fail("a pool that grew gave cached blocks up");
      (blocks[g] > before[g].pool ? grown : shrunk) += blocks[g] != before[g].pool;
      const std::size_t ids = std::max<std::size_t>(idle_[g].size(), blocks[g]);
      memory_[g].resize(ids * config_.block_tokens, 0);
      idle_[g].resize(ids);
      taken_by_[g].resize(ids);
    }
    below_floor = cache_->counters().evictions_below_floor;
    for (const FreshBlock& block : dropped) {
      // What it held is lost, and its memory is not returned a second time.
      std::fill_n(
          memory_[block.group].begin() + std::size_t{block.block.value} * config_.block_tokens,
          config_.block_tokens, 0);
      Idle& idle = idle_[block.group][block.block.value];
      if (!idle.handed_out) fail("memory of a block that was never handed out is to be returned");
      idle.handed_out = false;
      ++returned;
    }
    for (const Open& open : open_) check_memory(open);
    forget_if_broken();
  }

  void clear() {
    if (chance(30)) return clear_all();
    const std::string space = draw_space();
    cache_->clear(space);
    forget(space);
  }
  void clear_all() {
    cache_->clear();
    for (uint32_t i = 0; i < spaces_; ++i) forget(std::string(1, static_cast<char>('a' + i)));
  }
  void forget(const std::string& space) {
    ++epochs_[space];
    std::erase_if(history_, [&](const auto& item) { return item.first == space; });
    std::erase_if(entries_, [&](const auto& item) { return item.first.first == space; });
  }

  std::vector<BlockCounts> counts() const {
    std::vector<BlockCounts> all;
    for (uint32_t g = 0; g < cache_->groups(); ++g) all.push_back(cache_->counts(g));
    return all;
  }

  void check_counts() {
    cache_->check_invariants();
    check_windows();
    check_ceilings();
    follow_idle();
    for (uint32_t g = 0; g < cache_->groups(); ++g) {
      const BlockCounts now = cache_->counts(g);
      if (now.live + now.cached + now.free != now.pool)
        fail("live + cached + free is not the pool");
      std::set<BlockId> held;
      for (const Open& open : open_) {
        for (BlockId block : cache_->table(open.id, g)) {
          if (block.valid()) held.insert(block);
        }
      }
      if (now.live != held.size()) fail("live is not the number of held blocks");
      if (now.leased > config_.lease_share * now.pool) fail("leases exceed their share");
    }
    evictions = cache_->counters().evictions;
    twins = cache_->counters().twins;
  }

  Prng prng_;
  const Sabotage sabotage_;
  CacheConfig config_;
  uint32_t alphabet_ = 2, spaces_ = 1;
  uint64_t length_max_ = 8;
  bool sliding_ = false;  // some group has a window
  bool patient_ = true;   // a full pool makes somebody leave
  uint32_t weights_[kEvents] = {};
  std::unique_ptr<KvCache> cache_;
  std::vector<std::vector<uint64_t>> memory_;       // [group][block * block_tokens + offset]
  std::vector<std::vector<Idle>> idle_;             // [group][block]
  std::vector<std::vector<std::string>> taken_by_;  // [group][block]: the namespace
  std::vector<Open> open_;
  const Open* held_now_ = nullptr;  // admitted, and not yet in open_
  std::vector<std::pair<std::string, Tokens>>
      history_;  // everything published since the last clear
  std::map<std::string, uint64_t> epochs_;
  Entries entries_;
  uint64_t broken_seen_ = 0;
  TimeNs now_ = 1000;
  SeqId acting_;
  std::string acting_space_;
  std::string failure_;
};

uint64_t first_seed() {
  const char* given = std::getenv("PAGEWISE_SEED");
  return given ? std::strtoull(given, nullptr, 10) : 1;
}
// PAGEWISE_RUNS=n looks at more lives than every test run does.
uint64_t runs(uint64_t usual) {
  if (const char* given = std::getenv("PAGEWISE_RUNS")) return std::strtoull(given, nullptr, 10);
  return std::getenv("PAGEWISE_SEED") ? 1 : usual;
}

TEST(KvCacheProperty, AgreesWithTheNaiveModelInEveryLife) {
  for (const int signal : {SIGABRT, SIGSEGV}) std::signal(signal, print_seed);
  const uint64_t first = first_seed(), count = runs(2000);
  std::printf("seeds %lu to %lu\n", first, first + count - 1);
  uint64_t hits = 0, evictions = 0, reads = 0, broken = 0, copies = 0, twins = 0;
  uint64_t window_hits = 0, shortened = 0, unreachable = 0, passed = 0, returned = 0;
  uint64_t grown = 0, shrunk = 0, refused = 0, joined = 0;
  uint64_t floors_held = 0, below_floor = 0, ceilings = 0, floors_refused = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    current_seed = seed;
    Life life(seed, Sabotage::kNone);
    const std::string failure = life.run(300);
    ASSERT_EQ(failure, "") << "replay with PAGEWISE_SEED=" << seed;
    hits += life.hits, evictions += life.evictions, reads += life.reads, broken += life.broken;
    copies += life.copies, twins += life.twins;
    window_hits += life.window_hits, shortened += life.shortened, passed += life.passed;
    unreachable += life.unreachable, returned += life.returned;
    joined += life.joined;
    floors_held += life.floors_held, below_floor += life.below_floor;
    ceilings += life.ceilings, floors_refused += life.floors_refused;
    grown += life.grown, shrunk += life.shrunk, refused += life.resizes_refused;
  }
  std::printf(
      "hit tokens %lu, read tokens %lu, evictions %lu, broken leases %lu, copies %lu, twins %lu\n",
      hits, reads, evictions, broken, copies, twins);
  std::printf(
      "behind windows: hit tokens %lu, shortened hits %lu, blocks given up %lu, markers out of "
      "reach "
      "%lu; idle blocks returned %lu\n",
      window_hits, shortened, passed, unreachable, returned);
  std::printf("entries younger than who asked for them, in strict mode: %lu\n", joined);
  std::printf(
      "floors held %lu times, blocks below one given up for who ran alone %lu, resizes refused for "
      "floors %lu; blocks given up by ceilings %lu\n",
      floors_held, below_floor, floors_refused, ceilings);
  std::printf("pools grown %lu, shrunk %lu, refusals to shrink %lu\n", grown, shrunk, refused);
  if (count == 1) return;
  // The lives visit what they are for.
  EXPECT_GT(hits, 0u);
  EXPECT_GT(reads, 0u);
  EXPECT_GT(evictions, 0u);
  EXPECT_GT(broken, 0u);
  EXPECT_GT(copies, 0u);
  EXPECT_GT(twins, 0u);
  EXPECT_GT(window_hits, 0u);
  EXPECT_GT(shortened, 0u);
  EXPECT_GT(passed, 0u);
  EXPECT_GT(unreachable, 0u);
  EXPECT_GT(returned, 0u);
  EXPECT_GT(joined, 0u);
  EXPECT_GT(floors_held, 0u);
  EXPECT_GT(below_floor, 0u);
  EXPECT_GT(floors_refused, 0u);
  EXPECT_GT(ceilings, 0u);
  EXPECT_GT(grown, 0u);
  EXPECT_GT(shrunk, 0u);
  EXPECT_GT(refused, 0u);
}

/// Of `seeds` lives with the sabotage, how many are found out within `steps`. A harness that does
/// not notice a broken rule proves nothing.
uint64_t lives_caught(Sabotage sabotage, uint64_t seeds, uint32_t steps) {
  uint64_t caught = 0;
  for (current_seed = 1; current_seed <= seeds; ++current_seed)
    caught += !Life(current_seed, sabotage).run(steps).empty();
  return caught;
}

TEST(KvCacheProperty, NoticesALostCopy) {
  EXPECT_GT(lives_caught(Sabotage::kLoseCopies, 200, 80), 20u);
}

TEST(KvCacheProperty, NoticesC02BlocksThatArePublishedBeforeTheyAreComputed) {
  EXPECT_GT(lives_caught(Sabotage::kPublishBeforeStep, 200, 80), 20u);
}

TEST(KvCacheProperty, NoticesFloorsThatKeepNothing) {
  EXPECT_GT(lives_caught(Sabotage::kNoFloors, 800, 200), 20u);
}

TEST(KvCacheProperty, NoticesCeilingsThatLimitNothing) {
  EXPECT_GT(lives_caught(Sabotage::kNoCeilings, 400, 200), 20u);
}

TEST(KvCacheProperty, NoticesAWindowThatIsOnePositionShort) {
  EXPECT_GT(lives_caught(Sabotage::kShortWindow, 400, 300), 20u);
}

}  // namespace
}  // namespace pagewise::kv
