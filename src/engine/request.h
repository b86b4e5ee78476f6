// SPDX-License-Identifier: Apache-2.0
// What the server hands to the engine, and what comes back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "grammar/grammar.h"
#include "kv/cache_marker.h"
#include "kv/inspection.h"
#include "sampling/params.h"

namespace pagewise::engine {

// Where cached prefixes may end, and which ends are marked (kv/cache_marker.h).
using kv::CacheMarker;
using kv::CachePosition;
using kv::LeaseClass;

/// What an answer calls read (reported_usage): what markers read (B7), or all that was reused (C7).
enum class BillRule : uint8_t { kMarkers, kReuse };

struct CacheOptions {
  bool use_cache = true;        // false: neither reads nor enters the cache
  std::string cache_namespace;  // reuse never crosses namespaces
  std::string account;          // in whose statistics the request counts
  uint32_t tariff = 0;          // and under which line of the caller's price table
  BillRule bill = BillRule::kMarkers;
  /// Ascending; look-back walks these, 20 a marker (reference B4).
  std::vector<CachePosition> positions;
  std::vector<CacheMarker> markers;  // ascending by position, at most 4
};

struct Request {
  std::vector<TokenId> prompt;  // at least one
  /// New tokens per choice; clamped to the room left. 0: prefill only (B12).
  uint64_t max_tokens = 0;
  uint32_t choices = 1;
  sampling::Params sampling;  // choice i samples with (seed, i)
  std::vector<std::string> stops;
  bool ignore_eos = false;
  /// What every choice must be; null: anything. It ends where the grammar says that it may (by an
  /// end-of-generation token) or must, and is cut by max_tokens, stop strings and the context as
  /// any other. With ignore_eos only where it must. The prompt is no part of it.
  std::shared_ptr<const grammar::Grammar> grammar;
  bool want_control_text = false;  // control tokens appear in the text (raw completions may ask)
  /// These appear in any case: what a model writes around its tool calls.
  std::vector<TokenId> control_text = {};
  /// Log-probabilities of the prompt's own tokens, and this many of the best in each place;
  /// negative: none. Every position is then computed: the request reads nothing from the cache, and
  /// its markers do not count; what it computes enters the cache as always.
  int32_t prompt_logprobs = -1;
  /// Bytes in front of the answer that its first tokens may complete to a character: what a prompt
  /// of token ids was cut in, when the answer is shown behind it. At most 3.
  std::string text_before;
  CacheOptions cache;
};

/// Decided at admission, when the look-up holds the blocks: final for the request (design section
/// 7).
struct Admission {
  RequestId request;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  // physical: read from the cache and not computed
  // Contractual, reference B7; all zero without markers, input_tokens is then the whole prompt.
  uint32_t cache_read_tokens = 0;
  uint32_t cache_created_5m_tokens = 0;
  uint32_t cache_created_1h_tokens = 0;
  uint32_t input_tokens = 0;
  uint32_t blocks = 0;         // that the prompt occupies
  uint32_t blocks_shared = 0;  // of these, read from the cache
  TimeNs queue_ns = 0;
  TimeNs lookup_ns = 0;
};

enum class FinishReason : uint8_t {
  kNone,  // still running
  kStop,  // end-of-generation token
  kStopString,
  kLength,   // max_tokens
  kContext,  // the served context is full
  kCancelled,
  kError,
};

struct TokenOutput {
  sampling::Sampled sampled;
  std::string bytes;  // what this token stands for; may be part of a character
};

/// A stretch of the prompt, in order and without gaps: token `position` and those behind it. The
/// prompt's first token has nothing that it could follow from; its entry is without numbers.
struct PromptLogprobs {
  uint32_t position = 0;
  std::vector<sampling::Sampled> tokens;
};

/// New output of one choice. Text is whole characters, with nothing of a stop string in it.
struct Delta {
  uint32_t choice = 0;
  std::string text;
  std::vector<TokenOutput> tokens;  // tokens whose text became final with this delta, for logprobs
  FinishReason finish = FinishReason::kNone;
  uint32_t stop_index = 0;  // into Request::stops when finish is kStopString
  uint32_t completion_tokens =
      0;                   // of this choice so far; an end-of-generation token counts as one
  double logprob_sum = 0;  // over those tokens; only when log-probabilities were asked for
};

struct Finished {
  Status status;                   // not ok: failed after admission
  uint32_t completion_tokens = 0;  // all choices
  TimeNs prefill_ns = 0;           // admission to the first token
  TimeNs first_ns = 0;             // submission to the first token
  TimeNs total_ns = 0;
};

/// "What do you know of this prompt?", asked without changing anything: nothing is computed, held,
/// refreshed or counted.
struct LookUp {
  std::vector<TokenId> tokens;  // at least one
  std::string cache_namespace;
  bool use_cache = true;
  uint32_t beyond_max = 0;  // tokens wanted of how a cached prompt goes on
};

/// As of one moment between two steps.
struct LookedUp {
  kv::Inspection found;
  bool prefix_cache = true;     // false: the engine keeps none
  TimeNs lease_left_ns = 0;     // of found.lease
  TimeNs prefill_token_ns = 0;  // what a prompt's token took in the last step that had one; 0: none
};

/// Where a request's results go. Called on the engine thread; must not block. The order is:
/// on_admitted once, on_prompt any number of times (only with Request::prompt_logprobs, until the
/// whole prompt was told), on_delta any number of times, on_finished once; or on_finished alone
/// when the request fails or is cancelled while it waits.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void on_admitted(const Admission& admission) = 0;
  virtual void on_prompt(PromptLogprobs&&) {}
  virtual void on_delta(Delta&& delta) = 0;
  virtual void on_finished(const Finished& finished) = 0;
};

}  // namespace pagewise::engine
