// SPDX-License-Identifier: Apache-2.0
#include "workload/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/bytes.h"
#include "base/check.h"

namespace pagewise::workload {
namespace {

constexpr uint32_t kDigitBase = kVocabSize - 1;  // token 0 belongs to answers
constexpr uint32_t kDigits = 4;                  // 511^4 > 2^32
constexpr std::size_t kFillTokens = 4096;

/// What stands in a piece behind the digits: anything but answers.
std::array<TokenId, kFillTokens> make_fill() {
  std::array<TokenId, kFillTokens> fill;
  for (std::size_t i = 0; i < kFillTokens; ++i) {
    fill[i] = TokenId(static_cast<int32_t>(1 + i % kDigitBase));
  }
  return fill;
}

void write_piece(const Piece& piece, std::span<TokenId> out) {
  if (piece.id == kAnswerPiece) {
    std::fill(out.begin(), out.end(), kAnswerToken);
    return;
  }
  static const std::array<TokenId, kFillTokens> fill = make_fill();
  for (std::size_t at = 0; at < out.size(); at += kFillTokens) {
    std::copy_n(fill.begin(), std::min(kFillTokens, out.size() - at),
                out.begin() + static_cast<std::ptrdiff_t>(at));
  }
  uint32_t left = piece.id;
  for (std::size_t i = 0; i < std::min<std::size_t>(kDigits, out.size()); ++i) {
    out[i] = TokenId(static_cast<int32_t>(1 + left % kDigitBase));
    left /= kDigitBase;
  }
}

}  // namespace

void Trace::reserve(std::size_t requests, std::size_t pieces) {
  requests_.reserve(requests);
  pieces_.reserve(pieces);
}

void Trace::add(TimeNs arrival_ns, std::span<const Piece> pieces, uint32_t output_tokens) {
  PW_CHECK(!pieces.empty() && arrival_ns >= 0 && arrival_ns <= kArrivalNsMax);
  PW_CHECK(requests_.empty() || requests_.back().arrival_ns <= arrival_ns);
  uint64_t tokens = 0;
  for (const Piece& piece : pieces) {
    PW_CHECK(piece.tokens > 0);
    tokens += piece.tokens;
  }
  PW_CHECK(tokens <= kRequestTokensMax && output_tokens <= kRequestTokensMax);
  TraceRequest request;
  request.arrival_ns = arrival_ns;
  request.prompt_tokens = static_cast<uint32_t>(tokens);
  request.output_tokens = output_tokens;
  request.pieces = static_cast<uint32_t>(pieces.size());
  request.pieces_begin = pieces_.size();
  requests_.push_back(request);
  pieces_.insert(pieces_.end(), pieces.begin(), pieces.end());
}

std::vector<TokenId> Trace::prompt(const TraceRequest& request) const {
  std::vector<TokenId> tokens(request.prompt_tokens);
  std::span<TokenId> left = tokens;
  for (const Piece& piece : pieces(request)) {
    write_piece(piece, left.first(piece.tokens));
    left = left.subspan(piece.tokens);
  }
  return tokens;
}

uint64_t Trace::prompt_tokens() const {
  uint64_t sum = 0;
  for (const TraceRequest& request : requests_) sum += request.prompt_tokens;
  return sum;
}

uint64_t Trace::output_tokens() const {
  uint64_t sum = 0;
  for (const TraceRequest& request : requests_) sum += request.output_tokens;
  return sum;
}

Result<Trace> changed(const Trace& trace, const Changes& changes) {
  PW_CHECK(changes.lengths_divisor > 0 && changes.speed_up > 0);
  const std::vector<TraceRequest>& requests = trace.requests();
  const uint64_t end = std::min<uint64_t>(changes.end, requests.size());
  if (changes.begin >= end) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("there is no request from {} on: the trace has {}", changes.begin,
                             requests.size())};
  }
  const TimeNs first_ns = requests[changes.begin].arrival_ns;
  const double last_ns =
      static_cast<double>(requests[end - 1].arrival_ns - first_ns) / changes.speed_up;
  if (last_ns > static_cast<double>(kArrivalNsMax) / 2) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("at {} times their speed the arrivals take more than 18 years",
                             changes.speed_up)};
  }
  Trace out;
  std::vector<Piece> pieces;
  for (uint64_t i = changes.begin; i < end; ++i) {
    const TraceRequest& request = requests[i];
    const std::span<const Piece> before = trace.pieces(request);
    pieces.assign(before.begin(), before.end());
    for (Piece& piece : pieces) {
      piece.tokens = static_cast<uint32_t>(ceil_div(piece.tokens, changes.lengths_divisor));
    }
    const double arrival_ns = static_cast<double>(request.arrival_ns - first_ns) / changes.speed_up;
    out.add(std::llround(arrival_ns), pieces,
            static_cast<uint32_t>(ceil_div(request.output_tokens, changes.lengths_divisor)));
  }
  return out;
}

}  // namespace pagewise::workload
