// SPDX-License-Identifier: Apache-2.0
// Requests as a trace knows them: when, how long, and which parts of their prompts are the same.
//
// A prompt is a run of pieces. Two prompts share the pieces at their front that have the same ids;
// what a piece says does not matter to a cache, so its tokens are made up, always the same for the
// same id:
//
//   pieces   │ 17: 512 tokens │ 4: 512 tokens │ 0: 80 tokens │ 23: 60 tokens │
//   tokens   │ digits of 17 · · · · · · · · · │ 0 0 0 0 0 0  │ digits of 23 ·│
//                                               an answer: what the simulated model says is 0 0 0
//                                               ...
//
// so that a conversation's next prompt continues what its last answer left in the cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"

namespace pagewise::workload {

/// The vocabulary is small, because a simulated step writes a row of logits for every token of an
/// answer. An id is spelled in its lowest digits first, so that ids given one after the other
/// differ from their first token on; two in 511 behind the same prefix agree in one token, two in
/// 261,121 in two.
inline constexpr uint32_t kVocabSize = 512;
inline constexpr TokenId kAnswerToken{0};
inline constexpr uint32_t kAnswerPiece = 0;

/// Bounds of what is read or made: within them no sum of tokens or times overflows.
inline constexpr uint64_t kRequestTokensMax = uint64_t{1} << 24;
inline constexpr TimeNs kArrivalNsMax = TimeNs{1} << 60;  // 36 years

struct Piece {
  uint32_t id = kAnswerPiece;
  uint32_t tokens = 0;
  bool operator==(const Piece&) const = default;
};

struct TraceRequest {
  TimeNs arrival_ns = 0;
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  uint32_t pieces = 0;
  uint64_t pieces_begin = 0;
};

/// In order of arrival. Memory: 24 bytes a request and 8 a piece.
class Trace {
 public:
  /// Requires: at least one piece, none without tokens; together at most kRequestTokensMax; not
  /// before the last request.
  void add(TimeNs arrival_ns, std::span<const Piece> pieces, uint32_t output_tokens);
  void reserve(std::size_t requests, std::size_t pieces);

  const std::vector<TraceRequest>& requests() const { return requests_; }
  std::span<const Piece> pieces(const TraceRequest& request) const {
    return std::span(pieces_).subspan(request.pieces_begin, request.pieces);
  }
  /// The prompt's tokens, [prompt_tokens].
  std::vector<TokenId> prompt(const TraceRequest& request) const;
  uint64_t prompt_tokens() const;
  uint64_t output_tokens() const;

 private:
  std::vector<TraceRequest> requests_;
  std::vector<Piece> pieces_;
};

/// How a trace is changed before it is replayed.
struct Changes {
  uint64_t begin = 0,
           end = UINT64_MAX;     // only these requests, counted from 0; the first comes at 0
  uint32_t lengths_divisor = 1;  // of every piece and answer, rounded up
  double speed_up = 1;           // of arrivals
};
/// Errors: kInvalidArgument for no request in the range, and for arrivals that would lie more than
/// 36 years apart.
Result<Trace> changed(const Trace& trace, const Changes& changes);

}  // namespace pagewise::workload
