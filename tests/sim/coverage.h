// SPDX-License-Identifier: Apache-2.0
// What a number of simulated scenarios met: counts by kind, and the ranges of what was drawn. A
// simulation that never meets a kind of event proves nothing about it, so tests ask for each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

namespace pagewise::engine::sim {

/// Only numbers, so that one process can hand it to another as bytes.
struct Coverage {
  struct Range {
    uint64_t least = UINT64_MAX, most = 0;
    void add(uint64_t value) {
      least = std::min(least, value);
      most = std::max(most, value);
    }
  };
  // Drawn.
  Range pool_blocks, block_tokens, requests_a_run;
  // Met. Every one of these is to be more than zero over a few thousand seeds.
  uint64_t runs = 0, requests = 0, steps = 0, tokens_generated = 0;
  uint64_t refused = 0;          // by Core::check
  uint64_t chunked = 0;          // runs of a step that cut a prompt
  uint64_t scored_tokens = 0;    // of prompts whose log-probabilities were asked for
  uint64_t penalized = 0;        // requests with a penalty
  uint64_t hit_tokens = 0;       // read from the cache instead of computed
  uint64_t nothing_lost = 0;     // runs in which hits could be held to their full length
  uint64_t hits_partial = 0;     // admissions whose hit ends inside a block
  uint64_t joins = 0;            // requests that waited for a prefix being computed
  uint64_t preemptions = 0;      // sequences
  uint64_t evictions = 0;        // blocks
  uint64_t blocks_returned = 0;  // to the system, idle
  uint64_t forks = 0;            // choices beyond the first
  uint64_t copies_on_write = 0;
  uint64_t cancelled_waiting = 0, cancelled_prefilling = 0, cancelled_decoding = 0;
  uint64_t cancelled_ended = 0;  // too late: the request had ended
  uint64_t vanished = 0;         // clients that were gone while their request ran
  uint64_t failed = 0;           // requests that ended with the executor's error
  uint64_t leases_written_tokens = 0, leases_read_tokens = 0;
  uint64_t leases_refused = 0, leases_broken = 0;
  uint64_t leases_expired = 0;  // times that time alone ended some
  uint64_t namespaces = 0;      // runs whose requests have several
  uint64_t windows = 0;         // runs with a sliding group
  uint64_t window_hit_tokens = 0, window_preemptions = 0;
  uint64_t floors = 0, ceilings = 0;  // runs with them
  uint64_t floors_met = 0;  // steps after which a namespace had its floor's blocks or less
  uint64_t evictions_ceiling = 0, evictions_below_floor = 0;
  uint64_t pools_grown = 0, pools_shrunk = 0, resizes_refused = 0;

  struct Count {
    const char* name;
    uint64_t Coverage::*value;
  };
  static constexpr Count kCounts[] = {
      {"runs", &Coverage::runs},
      {"requests", &Coverage::requests},
      {"steps", &Coverage::steps},
      {"tokens generated", &Coverage::tokens_generated},
      {"requests refused", &Coverage::refused},
      {"prompt chunks", &Coverage::chunked},
      {"prompt tokens scored", &Coverage::scored_tokens},
      {"requests with penalties", &Coverage::penalized},
      {"tokens hit", &Coverage::hit_tokens},
      {"runs that lost nothing", &Coverage::nothing_lost},
      {"hits inside a block", &Coverage::hits_partial},
      {"in-flight joins", &Coverage::joins},
      {"preemptions", &Coverage::preemptions},
      {"evictions", &Coverage::evictions},
      {"idle blocks returned", &Coverage::blocks_returned},
      {"forks", &Coverage::forks},
      {"copies on write", &Coverage::copies_on_write},
      {"cancelled while waiting", &Coverage::cancelled_waiting},
      {"cancelled while prefilling", &Coverage::cancelled_prefilling},
      {"cancelled while decoding", &Coverage::cancelled_decoding},
      {"cancelled after the end", &Coverage::cancelled_ended},
      {"clients vanished", &Coverage::vanished},
      {"requests failed", &Coverage::failed},
      {"tokens written for leases", &Coverage::leases_written_tokens},
      {"tokens read by leases", &Coverage::leases_read_tokens},
      {"leases refused", &Coverage::leases_refused},
      {"leases broken", &Coverage::leases_broken},
      {"leases expired", &Coverage::leases_expired},
      {"runs with namespaces", &Coverage::namespaces},
      {"runs with windows", &Coverage::windows},
      {"tokens hit behind windows", &Coverage::window_hit_tokens},
      {"preemptions with windows", &Coverage::window_preemptions},
      {"runs with floors", &Coverage::floors},
      {"runs with ceilings", &Coverage::ceilings},
      {"steps at a floor", &Coverage::floors_met},
      {"evictions by a ceiling", &Coverage::evictions_ceiling},
      {"evictions below a floor", &Coverage::evictions_below_floor},
      {"pools grown", &Coverage::pools_grown},
      {"pools shrunk", &Coverage::pools_shrunk},
      {"resizes refused", &Coverage::resizes_refused},
  };

  void add(const Coverage& other) {
    for (const auto range :
         {&Coverage::pool_blocks, &Coverage::block_tokens, &Coverage::requests_a_run}) {
      (this->*range).least = std::min((this->*range).least, (other.*range).least);
      (this->*range).most = std::max((this->*range).most, (other.*range).most);
    }
    for (const Count& count : kCounts) this->*count.value += other.*count.value;
  }

  /// The kinds that never occurred.
  std::vector<std::string> missed() const {
    std::vector<std::string> names;
    for (const Count& count : kCounts) {
      if (this->*count.value == 0) names.emplace_back(count.name);
    }
    return names;
  }

  void print() const {
    const auto range = [](const char* name, const Range& of) {
      std::printf("%s %llu to %llu", name, static_cast<unsigned long long>(of.least),
                  static_cast<unsigned long long>(of.most));
    };
    range("pools of", pool_blocks);
    range(" blocks, blocks of", block_tokens);
    range(" positions, crowds of", requests_a_run);
    std::printf(" requests\n");
    for (std::size_t i = 0; i < std::size(kCounts); ++i) {
      std::printf("%14llu %-27s%s", static_cast<unsigned long long>(this->*kCounts[i].value),
                  kCounts[i].name, i % 2 == 1 || i + 1 == std::size(kCounts) ? "\n" : "");
    }
    std::fflush(stdout);
  }
};

}  // namespace pagewise::engine::sim
