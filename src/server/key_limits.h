// SPDX-License-Identifier: Apache-2.0
// What each key has under way, against what its line of the key file allows: requests, running and
// waiting, and the tokens that they may come to. Whatever ends a request gives its part back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "server/api_error.h"
#include "server/api_keys.h"

namespace pagewise::server {

/// Thread: any.
class KeyLimits {
  struct Use {
    uint32_t requests = 0;
    uint64_t tokens = 0;
  };
  struct State {
    explicit State(std::size_t keys) : uses(keys) {}
    std::mutex mutex;
    std::vector<Use> uses;  // by key; guarded by mutex
  };

 public:
  explicit KeyLimits(std::size_t keys) : state_(std::make_shared<State>(keys)) {}

  /// One request's part, until it is given back or destroyed; may outlive the limits. A default one
  /// holds nothing. Thread: one at a time.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept;
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { give_back(); }
    void give_back();

   private:
    friend class KeyLimits;
    std::shared_ptr<State> state_;  // null: nothing is held
    uint32_t key_ = 0;
    uint64_t tokens_ = 0;
  };

  /// A request begins. Errors: kRateLimited with the numbers.
  ApiResult<Ticket> enter(const ApiKey& key);
  /// It may take so many tokens: its prompt, and all its answers. Errors: kTokensLimited with the
  /// numbers.
  std::optional<ApiError> take_tokens(Ticket& ticket, const ApiKey& key, uint64_t prompt,
                                      uint64_t generated);

 private:
  std::shared_ptr<State> state_;
};

/// The most new tokens of one answer, up to `asked`, that a request of this key can ever have;
/// max_tokens is a cap, so it is lowered and not refused. Errors: a 400 with both numbers when the
/// prompt alone is too much for the key.
ApiResult<uint64_t> tokens_allowed(const ApiKey& key, uint64_t prompt, uint32_t choices,
                                   uint64_t asked);

}  // namespace pagewise::server
