// SPDX-License-Identifier: Apache-2.0
// What becomes of a step's logits: scored prompts, sampled tokens, and what clients hear of them.
#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "engine/core.h"

namespace pagewise::engine {

std::unique_ptr<ChoiceOutput> Core::make_output(const Request& request) const {
  return std::make_unique<ChoiceOutput>(tokenizer_, request.stops, request.want_control_text,
                                        request.text_before, request.control_text);
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
  std::vector<RequestId> nonsense;  // ended behind the loop: their other choices have runs here
  for (const Run& run : runs_) {
    Sequence& sequence = *run.sequence;
    Job& job = *sequence.job;
    if (!job.prompt_told()) tell_prompt(job, run, logits, row);
    if (run.logits) {
      const std::span<const float> values = logits.row(row++);
      if (job.forked) {
        if (!sample(sequence, values)) nonsense.push_back(job.id);
      } else {
        fork_choices(job);
        // The last choice to end takes the job with it: count beforehand.
        const uint32_t choices = job.request.choices;
        const std::vector<std::unique_ptr<Sequence>>& sequences = job.sequences;
        for (uint32_t c = 0; c < choices; ++c) {
          if (sample(*sequences[c], values)) continue;
          nonsense.push_back(job.id);
          break;
        }
      }
    } else if (job.tokens_max == 0 && sequence.remaining() == 0) {
      finish_prefill_only(job);
    }
  }
  if (!nonsense.empty()) fail(nonsense, {ErrorCode::kInternal, std::string(sampling::kNoNumbers)});
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
    sequence->output = make_output(job.request);
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
  finish_job(job, Status::ok(), FinishReason::kLength);
}

/// False: the logits are not numbers, and nothing happened.
bool Core::sample(Sequence& sequence, std::span<const float> logits) {
  Job& job = *sequence.job;
  const std::span<const TokenId> tokens = sequence.tokens;
  const sampling::History history{tokens.first(job.prompt_tokens),
                                  tokens.subspan(job.prompt_tokens)};
  const uint64_t position = tokens.size();
  if (!sampler_.sample(logits, job.request.sampling, history, sequence.choice, position,
                       sampled_)) {
    return false;
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
    if (stop) {
      finish = FinishReason::kStopString;
    } else if (sequence.generated >= job.tokens_max) {
      finish = job.clamped ? FinishReason::kContext : FinishReason::kLength;
    }
  }
  deliver(sequence, finish, stop);
  return true;
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
