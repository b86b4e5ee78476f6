// SPDX-License-Identifier: Apache-2.0
#include "workload/generators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/prng.h"

namespace pagewise::workload {
namespace {

constexpr double kAnswerTokenS = 0.03;
/// Conversations end here, so that no prompt outgrows what servers hold.
constexpr uint32_t kConversationTokensMax = 100'000;

/// Requests in any order, sorted by arrival at the end.
class Draft {
 public:
  explicit Draft(uint64_t seed) : prng_(mix64(seed)) {}

  uint64_t requests() const { return order_.size(); }

  void add(double arrival_s, const std::vector<Piece>& pieces, uint32_t output_tokens) {
    order_.push_back(order_.size());
    arrivals_s_.push_back(arrival_s);
    outputs_.push_back(output_tokens);
    begins_.push_back(pieces_.size());
    pieces_.insert(pieces_.end(), pieces.begin(), pieces.end());
  }

  /// The first `requests` by time.
  Trace finish(uint64_t requests) {
    begins_.push_back(pieces_.size());
    std::stable_sort(order_.begin(), order_.end(),
                     [&](uint64_t a, uint64_t b) { return arrivals_s_[a] < arrivals_s_[b]; });
    Trace trace;
    trace.reserve(requests, pieces_.size());
    for (uint64_t i = 0; i < std::min<uint64_t>(requests, order_.size()); ++i) {
      const uint64_t at = order_[i];
      const std::span<const Piece> pieces =
          std::span(pieces_).subspan(begins_[at], begins_[at + 1] - begins_[at]);
      const double arrival_s = arrivals_s_[at] - arrivals_s_[order_[0]];
      trace.add(std::llround(arrival_s * 1e9), pieces, outputs_[at]);
    }
    return trace;
  }

  Piece fresh(uint64_t tokens) { return {next_id_++, static_cast<uint32_t>(tokens)}; }
  uint32_t between(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(prng_.below(high - low + 1));
  }
  double exponential(double mean) { return -mean * std::log1p(-prng_.uniform()); }
  double uniform() { return prng_.uniform(); }
  /// Low indices more often: a third of all draws go to the first of eight.
  std::size_t popular(std::size_t count) {
    const double u = prng_.uniform();
    return static_cast<std::size_t>(u * u * static_cast<double>(count));
  }

 private:
  Prng prng_;
  uint32_t next_id_ = kAnswerPiece + 1;
  std::vector<uint64_t> order_, begins_;
  std::vector<double> arrivals_s_;
  std::vector<uint32_t> outputs_;
  std::vector<Piece> pieces_;
};

struct Span {
  uint32_t low = 0, high = 0;
};

/// What a conversation is made of.
struct Manner {
  Span turns, said_tokens, answer_tokens;
  double pause_mean_s = 0;
};

/// Turn after turn, each behind all before it. Requires: the parts' bounds keep a single turn
/// below kConversationTokensMax.
void converse(Draft& draft, double begin_s, const Piece& front, const Manner& manner) {
  std::vector<Piece> pieces = {front};
  uint64_t tokens = front.tokens;
  double at_s = begin_s;
  const uint32_t turns = draft.between(manner.turns.low, manner.turns.high);
  for (uint32_t turn = 0; turn < turns && tokens < kConversationTokensMax; ++turn) {
    pieces.push_back(draft.fresh(draft.between(manner.said_tokens.low, manner.said_tokens.high)));
    const uint32_t output = draft.between(manner.answer_tokens.low, manner.answer_tokens.high);
    draft.add(at_s, pieces, output);
    tokens += pieces.back().tokens + output;
    pieces.push_back({kAnswerPiece, output});
    at_s += output * kAnswerTokenS + draft.exponential(manner.pause_mean_s);
  }
}

constexpr Manner kChat = {{1, 9}, {20, 200}, {50, 500}, 20};
constexpr Manner kAgent = {{5, 30}, {100, 1500}, {30, 200}, 2};
constexpr uint32_t kSweepItems = 200;

/// Everything that sessions of a trace have in common.
class World {
 public:
  explicit World(Draft& draft) : draft_(draft), manual_(draft.fresh(12'000)) {
    for (int i = 0; i < 8; ++i) systems_.push_back(draft.fresh(draft.between(600, 2000)));
    for (int i = 0; i < 4; ++i) tools_.push_back(draft.fresh(draft.between(4000, 8000)));
  }

  void chat(double at_s) {
    converse(draft_, at_s, systems_[draft_.popular(systems_.size())], kChat);
  }
  void agent(double at_s) { converse(draft_, at_s, tools_[draft_.popular(tools_.size())], kAgent); }
  void rag(double at_s) {
    draft_.add(at_s, {manual_, draft_.fresh(draft_.between(20, 100))}, draft_.between(100, 300));
  }
  void batch(double at_s) {
    const Piece instruction = draft_.fresh(draft_.between(300, 800));
    for (uint32_t i = 0; i < kSweepItems; ++i) {
      const Piece item = draft_.fresh(draft_.between(200, 2000));
      draft_.add(at_s + i * 0.001, {instruction, item}, draft_.between(20, 100));
    }
  }
  void single(double at_s) { draft_.add(at_s, {draft_.fresh(10'000)}, draft_.between(20, 50)); }

 private:
  Draft& draft_;
  const Piece manual_;
  std::vector<Piece> systems_, tools_;
};

/// One session of the kind, and how many requests it has on average.
struct Kind {
  std::string_view name;
  double requests_mean;
  void (*session)(World&, Draft&, double at_s);
};

constexpr double kChatMean = 5, kAgentMean = 17.5;

void mixed(World& world, Draft& draft, double at_s) {
  const double u = draft.uniform();
  if (u < 0.5) return world.chat(at_s);
  if (u < 0.7) return world.agent(at_s);
  if (u < 0.9) return world.rag(at_s);
  if (u < 0.91) return world.batch(at_s);
  world.single(at_s);
}

constexpr Kind kKinds[] = {
    {"chat", kChatMean, [](World& world, Draft&, double at_s) { world.chat(at_s); }},
    {"agent", kAgentMean, [](World& world, Draft&, double at_s) { world.agent(at_s); }},
    {"rag", 1, [](World& world, Draft&, double at_s) { world.rag(at_s); }},
    {"batch", kSweepItems, [](World& world, Draft&, double at_s) { world.batch(at_s); }},
    // One session in six is a conversation, so that half of the requests are.
    {"scan", (kChatMean + 5) / 6,
     [](World& world, Draft& draft, double at_s) {
       if (draft.uniform() < 1.0 / 6) return world.chat(at_s);
       world.single(at_s);
     }},
    {"mix", 0.5 * kChatMean + 0.2 * kAgentMean + 0.2 + 0.01 * kSweepItems + 0.09, mixed},
};

}  // namespace

std::string generator_names() {
  std::string names;
  for (const Kind& kind : kKinds) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

Result<Trace> generate(std::string_view kind, const GeneratorOptions& options) {
  const auto found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const Kind& known) { return known.name == kind; });
  if (found == std::end(kKinds)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is no kind of trace; known: {}", kind, generator_names())};
  }
  if (options.requests < 1 || options.requests > kGeneratedRequestsMax) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} requests are not in 1 to {}",
                                                          options.requests, kGeneratedRequestsMax)};
  }
  if (!(options.rate >= 1e-6 && options.rate <= 1e6)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("a rate of {} requests a second is not in 1e-6 to 1e6", options.rate)};
  }
  Draft draft(options.seed);
  World world(draft);
  double at_s = 0;
  // Sessions go on to the end of the time that so many requests take: long ones that began early do
  // not stand there alone.
  const double end_s = static_cast<double>(options.requests) / options.rate;
  while (draft.requests() < options.requests || at_s < end_s) {
    found->session(world, draft, at_s);
    at_s += draft.exponential(found->requests_mean / options.rate);
  }
  return draft.finish(options.requests);
}

}  // namespace pagewise::workload
