// SPDX-License-Identifier: Apache-2.0
#include "server/key_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace pagewise::server {

KeyLimits::Ticket::Ticket(Ticket&& other) noexcept { *this = std::move(other); }

KeyLimits::Ticket& KeyLimits::Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  state_ = std::move(other.state_);
  key_ = other.key_;
  tokens_ = std::exchange(other.tokens_, 0);
  return *this;
}

void KeyLimits::Ticket::give_back() {
  if (state_ == nullptr) return;
  {
    std::lock_guard lock(state_->mutex);
    Use& use = state_->uses[key_];
    --use.requests;
    use.tokens -= tokens_;
  }
  state_.reset();
  tokens_ = 0;
}

ApiResult<KeyLimits::Ticket> KeyLimits::enter(const ApiKey& key) {
  std::lock_guard lock(state_->mutex);
  Use& use = state_->uses[key.index];
  if (key.requests_max != 0 && use.requests >= key.requests_max) {
    return ApiError{ErrorKind::kRateLimited,
                    fmt::format("this key may have {} request{} under way at once (max-requests), "
                                "running and waiting together: try again when one has ended",
                                key.requests_max, key.requests_max == 1 ? "" : "s"),
                    "", "", ""};
  }
  ++use.requests;
  Ticket ticket;
  ticket.state_ = state_;
  ticket.key_ = key.index;
  return ApiResult<Ticket>(std::move(ticket));
}

std::optional<ApiError> KeyLimits::take_tokens(Ticket& ticket, const ApiKey& key, uint64_t prompt,
                                               uint64_t generated) {
  std::lock_guard lock(state_->mutex);
  Use& use = state_->uses[key.index];
  const uint64_t tokens = prompt + generated;
  if (key.tokens_max != 0 && use.tokens + tokens > key.tokens_max) {
    return ApiError{
        ErrorKind::kTokensLimited,
        fmt::format("this request may take {} tokens ({} of the prompt, {} to generate); this key "
                    "may have {} under way at once (max-tokens), and {} are taken: try again when "
                    "a request has ended, or ask for fewer",
                    tokens, prompt, generated, key.tokens_max, use.tokens),
        "", "", ""};
  }
  use.tokens += tokens;
  ticket.tokens_ += tokens;
  return std::nullopt;
}

ApiResult<uint64_t> tokens_allowed(const ApiKey& key, uint64_t prompt, uint32_t choices,
                                   uint64_t asked) {
  if (key.tokens_max == 0) return asked;
  const uint64_t least = prompt + (asked == 0 ? 0 : choices);
  if (least > key.tokens_max) {
    return ApiError{
        ErrorKind::kInvalidRequest,
        fmt::format("this request takes at least {} tokens ({} of the prompt), this key "
                    "may have {} under way at once (max-tokens)",
                    least, prompt, key.tokens_max),
        "", "", ""};
  }
  return std::min(asked, (key.tokens_max - prompt) / choices);
}

}  // namespace pagewise::server
