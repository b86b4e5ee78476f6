// SPDX-License-Identifier: Apache-2.0
// What becomes of a step's logits: scored prompts, sampled tokens, and what clients hear of them.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/core.h"

namespace pagewise::engine {
namespace {

constexpr std::string_view kNoneAllowed =
    "the answer cannot go on in the form that was asked for: this model's vocabulary has no token "
    "for what must come next; ask for another schema, or for plain text";

}  // namespace

/// Of a sequence that knows its job: what its client will hear, and where its grammar begins.
void Core::begin_output(Sequence& sequence) const {
  const Request& request = sequence.job->request;
  sequence.output =
      std::make_unique<ChoiceOutput>(tokenizer_, request.stops, request.want_control_text,
                                     request.text_before, request.control_text);
  if (request.grammar != nullptr) sequence.matcher.emplace(request.grammar);
}

void Core::complete_runs(const model::LogitsView& logits) {
  // First everything that was written becomes findable; then sampling, which may end sequences.
  for (const Run& run : runs_) {
    Sequence& sequence = *run.sequence;
    sequence.computed += run.tokens;
    cache_->publish(sequence.kv, std::span(sequence.tokens).first(sequence.computed));
    for (uint32_t g = 0; g < groups_; ++g) note_held(run, g, counters_.groups[g].sequence_rest_max);
  }
  uint32_t row = 0;
  // Ended behind the loop: their other choices have runs here.
  std::vector<RequestId> nonsense, stuck;
  const auto sample_into = [&](Sequence& sequence, std::span<const float> values) {
    const RequestId id = sequence.job->id;
    const NoToken reason = sample(sequence, values);
    if (reason == NoToken::kNoNumbers) nonsense.push_back(id);
    if (reason == NoToken::kNoneAllowed) stuck.push_back(id);
    return reason == NoToken::kNone;
  };
  for (const Run& run : runs_) {
    Sequence& sequence = *run.sequence;
    Job& job = *sequence.job;
    if (!job.prompt_told()) tell_prompt(job, run, logits, row);
    if (run.logits) {
      const std::span<const float> values = logits.row(row++);
      if (job.forked) {
        sample_into(sequence, values);
      } else {
        fork_choices(job);
        // The last choice to end takes the job with it: count beforehand.
        const uint32_t choices = job.request.choices;
        const std::vector<std::unique_ptr<Sequence>>& sequences = job.sequences;
        for (uint32_t c = 0; c < choices; ++c) {
          if (!sample_into(*sequences[c], values)) break;
        }
      }
    } else if (job.tokens_max == 0 && sequence.remaining() == 0) {
      finish_prefill_only(job);
    }
  }
  if (!nonsense.empty()) fail(nonsense, {ErrorCode::kInternal, std::string(sampling::kNoNumbers)});
  if (!stuck.empty()) fail(stuck, {ErrorCode::kUnsupported, std::string(kNoneAllowed)});
}

/// The next stretch of a prompt whose log-probabilities were asked for; `row` moves on by the rows
/// of logits that it took. Called after the run's tokens were counted as computed.
void Core::tell_prompt(Job& job, const Run& run, const model::LogitsView& logits, uint32_t& row) {
  const Sequence& sequence = *run.sequence;
  const uint32_t end = std::min(sequence.computed + 1, job.prompt_tokens);
  if (end <= job.told_tokens) return;  // a preempted prefill has not caught up yet
  PromptLogprobs piece;
  piece.position = job.told_tokens;
  piece.tokens.resize(end - job.told_tokens);
  for (sampling::Sampled& told : piece.tokens) {
    const TokenId token = sequence.tokens[job.told_tokens];
    if (job.told_tokens == 0) {
      told.token = token;
    } else {
      sampler_.score(logits.row(row++), token, static_cast<uint32_t>(job.request.prompt_logprobs),
                     told);
    }
    ++job.told_tokens;
  }
  job.sink->on_prompt(std::move(piece));
}

/// The prompt is computed: every choice gets its sequence, all sharing the prompt's blocks.
void Core::fork_choices(Job& job) {
  PW_CHECK(!job.forked);
  job.first_ns = clock_.now();
  for (uint32_t c = 1; c < job.request.choices; ++c) {
    const Sequence& first = *job.sequences.front();
    auto sequence = std::make_unique<Sequence>();
    sequence->job = &job;
    sequence->choice = c;
    sequence->tokens = first.tokens;
    sequence->computed = first.computed;
    sequence->kv = cache_->fork(first.kv);
    begin_output(*sequence);
    insert_running(*sequence);
    job.sequences.push_back(std::move(sequence));
  }
  job.forked = true;
}

void Core::finish_prefill_only(Job& job) {
  job.first_ns = clock_.now();
  for (uint32_t c = 0; c < job.request.choices; ++c) {
    Delta delta;
    delta.choice = c;
    delta.finish = FinishReason::kLength;
    job.sink->on_delta(std::move(delta));
  }
  release(*job.sequences.front());
  end_visit(*job.sequences.front(), false);
  finish_job(job, Status::ok(), FinishReason::kLength);
}

const grammar::Vocabulary& Core::vocabulary() const {
  std::call_once(vocabulary_once_, [this] {
    // The model may have more logits than the tokenizer has tokens: those are never allowed.
    std::vector<grammar::TokenText> tokens(executor_.vocab_size());
    const std::size_t known = std::min<std::size_t>(tokens.size(), tokenizer_.vocab_size());
    for (std::size_t i = 0; i < known; ++i) {
      const TokenId token(static_cast<int32_t>(i));
      // What ends the answer is allowed by where the answer may end.
      if (tokenizer_.is_eog(token)) continue;
      tokens[i] = {tokenizer_.token_bytes(token), tokenizer_.is_control(token)};
    }
    vocabulary_ = std::make_unique<const grammar::Vocabulary>(tokens);
  });
  return *vocabulary_;
}

/// What a choice with a grammar may go on with, valid until the next call; empty: nothing may.
std::span<const uint64_t> Core::allowed_tokens(const Sequence& sequence) {
  allowed_.resize(vocabulary().mask_words());
  grammar::allowed(*sequence.matcher, vocabulary(), allowed_);
  if (sequence.matcher->may_end() && !sequence.job->request.ignore_eos) {
    for (const TokenId token : tokenizer_.eog_tokens()) {
      const auto i = static_cast<std::size_t>(token.value);
      if (i / 64 < allowed_.size()) allowed_[i / 64] |= uint64_t{1} << (i % 64);
    }
  }
  const bool any = std::any_of(allowed_.begin(), allowed_.end(), [](uint64_t w) { return w != 0; });
  return any ? std::span<const uint64_t>(allowed_) : std::span<const uint64_t>();
}

/// Unless kNone: nothing happened.
Core::NoToken Core::sample(Sequence& sequence, std::span<const float> logits) {
  Job& job = *sequence.job;
  const std::span<const TokenId> tokens = sequence.tokens;
  const sampling::History history{tokens.first(job.prompt_tokens),
                                  tokens.subspan(job.prompt_tokens)};
  const uint64_t position = tokens.size();
  std::span<const uint64_t> allowed;
  if (sequence.matcher) {
    allowed = allowed_tokens(sequence);
    if (allowed.empty()) {
      if (!sequence.matcher->may_end()) return NoToken::kNoneAllowed;
      deliver(sequence, FinishReason::kStop, std::nullopt);  // no token that ends it may come
      return NoToken::kNone;
    }
  }
  if (!sampler_.sample(logits, job.request.sampling, history, sequence.choice, position, allowed,
                       sampled_)) {
    return NoToken::kNoNumbers;
  }
  const TokenId token = sampled_.token;
  sequence.logprob_sum += sampled_.logprob;
  ++sequence.generated;
  ++job.completion_tokens;
  ++counters_.generation_tokens;
  FinishReason finish = FinishReason::kNone;
  std::optional<std::size_t> stop;
  if (tokenizer_.is_eog(token) && !job.request.ignore_eos) {
    finish = FinishReason::kStop;
  } else {
    sequence.tokens.push_back(token);
    stop = sequence.output->push(std::move(sampled_));
    const bool complete = sequence.matcher && advance_matcher(sequence, token);
    if (stop) {
      finish = FinishReason::kStopString;
    } else if (complete) {
      finish = FinishReason::kStop;
    } else if (sequence.generated >= job.tokens_max) {
      finish = job.clamped ? FinishReason::kContext : FinishReason::kLength;
    }
  }
  deliver(sequence, finish, stop);
  return NoToken::kNone;
}

/// True when the answer must end behind this token.
bool Core::advance_matcher(Sequence& sequence, TokenId token) {
  PW_CHECK(sequence.matcher->accept(vocabulary().spelling(token)));
  return sequence.matcher->must_end();
}

void Core::deliver(Sequence& sequence, FinishReason finish, std::optional<std::size_t> stop) {
  if (finish != FinishReason::kNone && !stop) sequence.output->finish();
  Delta delta;
  const bool any = sequence.output->take(delta);
  if (!any && finish == FinishReason::kNone) return;
  delta.choice = sequence.choice;
  delta.finish = finish;
  delta.stop_index = static_cast<uint32_t>(stop.value_or(0));
  delta.completion_tokens = sequence.generated;
  delta.logprob_sum = sequence.logprob_sum;
  sequence.job->sink->on_delta(std::move(delta));
  if (finish != FinishReason::kNone) finish_choice(sequence, finish);
}

}  // namespace pagewise::engine
