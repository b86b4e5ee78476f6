// SPDX-License-Identifier: Apache-2.0
// A client of the simulation: one request, what it heard of it, and a digest of all that everybody
// heard.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "engine/test_support.h"

namespace pagewise::engine::sim {

/// A digest of events in their order.
class Trace {
 public:
  void add(uint64_t value) { hash_ = mix64(hash_ ^ mix64(value)); }
  void add(std::string_view text) {
    add(text.size());
    for (const char c : text) add(static_cast<unsigned char>(c));
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

/// A client's end of one request.
class Client final : public RequestSink {
 public:
  Client(const Request& request, uint64_t number, Trace& trace, std::vector<uint64_t>& admitted)
      : request(request),
        answer(request.choices),
        number_(number),
        trace_(trace),
        admitted_(admitted) {}

  void on_admitted(const Admission& value) override {
    mark('a');
    admitted_.push_back(number_);
    for (const uint64_t number :
         {value.cached_tokens, value.cache_read_tokens, value.cache_created_5m_tokens,
          value.cache_created_1h_tokens, value.input_tokens, value.blocks, value.blocks_shared}) {
      trace_.add(number);
    }
    trace_.add(static_cast<uint64_t>(value.queue_ns));
    answer.on_admitted(value);
  }
  void on_prompt(PromptLogprobs&& piece) override {
    mark('p');
    trace_.add(piece.position);
    trace_.add(piece.tokens.size());
    answer.on_prompt(std::move(piece));
  }
  void on_delta(Delta&& delta) override {
    mark('d');
    trace_.add(delta.choice);
    trace_.add(delta.text);
    for (const TokenOutput& token : delta.tokens)
      trace_.add(static_cast<uint64_t>(token.sampled.token.value));
    trace_.add(static_cast<uint64_t>(delta.finish));
    trace_.add(delta.completion_tokens);
    generated |= delta.completion_tokens > 0;
    answer.on_delta(std::move(delta));
  }
  void on_finished(const Finished& value) override {
    mark('f');
    trace_.add(static_cast<uint64_t>(value.status.code()));
    trace_.add(static_cast<uint64_t>(value.total_ns));
    answer.on_finished(value);
  }

  bool ended() const { return answer.finished.has_value(); }
  bool failed() const {
    return ended() && answer.finished->status.code() != ErrorCode::kOk &&
           answer.finished->status.code() != ErrorCode::kCancelled;
  }

  const Request& request;
  Recorder answer;
  RequestId id;
  bool refused = false;
  bool cancelled = false;
  bool generated = false;
  std::vector<const Client*> ended_before;  // when this one came

 private:
  void mark(char event) {
    trace_.add(static_cast<uint64_t>(event));
    trace_.add(number_);
  }
  const uint64_t number_;
  Trace& trace_;
  std::vector<uint64_t>& admitted_;
};

using Clients = std::vector<std::shared_ptr<Client>>;

}  // namespace pagewise::engine::sim
