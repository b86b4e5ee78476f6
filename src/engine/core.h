// SPDX-License-Identifier: Apache-2.0
// The scheduler and the step loop: which sequences compute which tokens next, and what becomes of
// the logits. Single-threaded and without a clock or randomness of its own, so that the whole of it
// runs in simulation; engine.h puts it on a thread.
//
//            submit             admit                     sampled the last token
//   client ─────────▶ waiting ─────────▶ running ─────────────────────────────▶ finished
//                                          │  ▲
//                           pool ran out:  │  │ room again: looked up in the cache with what it has
//                           the youngest   ▼  │ generated, the rest is computed again, same bits
//                                        preempted
//
// One step: admit from the front of the queue while blocks and slots last; one row for every
// sequence that decodes; the rest of the budget for prompts, in order of arrival; execute; publish
// the blocks that were written; sample; deliver. The budget is one of tokens and, while others
// decode, of time.
//
// Blocks are counted per layer group. A full group's are taken for the whole prompt at admission; a
// sliding group's step by step, for the tokens of the step, and given back behind the window. When
// they run short, a prompt's chunk is cut to what there is, and when there is none for one token
// more, the youngest sequence gives up its own.
//
// What holds after every step (check_invariants):
//   E1  running and preempted sequences are in order of age (request, then choice), and every
//       preempted one is younger than every running one
//   E2  a running sequence holds blocks for all its computed positions, and none else holds any:
//       without running sequences no block is live
//   E3  a request is waiting, or has at least one unfinished choice
//
// Why nothing waits for ever: a request is accepted only if it fits the empty pool alone; the
// oldest running sequence is never preempted, so it ends; and the head of the queue is admitted
// when nothing else runs.
//
// Thread: one at a time; Engine uses it from the engine thread. Sinks are called from
// step, cancel and cancel_all; they must not call back into this class.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "engine/cache_curve.h"
#include "engine/choice_output.h"
#include "engine/engine.h"
#include "engine/ledger.h"
#include "engine/operations.h"
#include "engine/request.h"
#include "grammar/matcher.h"
#include "grammar/vocabulary.h"
#include "kv/kv_cache.h"
#include "model/executor.h"
#include "sampling/sampler.h"
#include "text/tokenizer.h"

namespace pagewise::engine {

class Core {
 public:
  /// All must outlive the core.
  /// Errors: those of kv::KvCache::create; kInvalidArgument for options that leave no room (a
  /// context below 2 tokens, no step tokens, no sequences).
  static Result<std::unique_ptr<Core>> create(model::Executor& executor,
                                              const text::Tokenizer& tokenizer, const Clock& clock,
                                              const Options& options);
  ~Core();

  /// As given, with context_max lowered to what is served (now: it follows the pool).
  const Options& options() const { return options_; }

  /// Whether this request can be served at all. Pure; any thread.
  /// Errors: kContextTooLong with the prompt's length and the context; kInvalidArgument naming the
  /// field.
  Status check(const Request& request) const;

  /// Requires: check(request) was ok; ids ascend. A prompt that a smaller pool has meanwhile made
  /// too long ends at once, with what check says now.
  void submit(RequestId id, Request request, std::shared_ptr<RequestSink> sink,
              TimeNs submitted_ns);
  /// Ends the request now, wherever it is: its blocks are free (or cached) on return. Unknown ids
  /// are ignored.
  void cancel(RequestId id);
  void cancel_all();

  /// What is known of a prompt; changes nothing. Requires: at least one token.
  LookedUp look_up(const LookUp& asked) const;

  // Between steps, for operators.

  /// Layer group g has `blocks[g]` from now on, in use or not. Cached blocks go as always, those
  /// under a lease last; their memory goes back to the system. The served context follows the pool;
  /// accepted requests whose max_tokens was clamped to the context are clamped to the new one.
  /// Errors, with numbers; nothing has changed (but blocks that the executor could have):
  /// kPoolExhausted while sequences hold more, or while something that was accepted would not fit;
  /// kInvalidArgument for a pool that serves nothing or that the executor cannot have; kIo.
  Status resize(std::span<const uint32_t> blocks);
  /// Forgets what is cached under a namespace and those below it ("name" and "name/..."), or all.
  /// Running requests keep their blocks, which do not enter the cache any more.
  Cleared clear_cache(std::optional<std::string_view> name);
  PoolReport pool_report() const;
  CacheReport cache_report() const;
  CurveReport curve_report() const;

  /// Runs one step. False when nothing is left to do.
  bool step();
  /// What time alone asks for: leases end, and memory that has long been free goes back to the
  /// system. step does it, too.
  void tend();
  /// When tend next has something to do; none: never, unless something else happens.
  std::optional<TimeNs> next_tend() const;
  bool idle() const { return jobs_.empty(); }

  // For simulated machines, whose steps are arithmetic: steps in which nothing but decoding can
  // happen, taken in one move (core_leap.cc).

  /// Steps that lie ahead in which every running sequence gets one token and nobody is admitted,
  /// preempted or finished, whatever the time.
  struct QuietSteps {
    uint32_t steps = 0;      // 0: the next step may be another one
    uint32_t rows = 0;       // of each of them
    uint64_t positions = 0;  // that stand before all rows of the first; `rows` more in each next
  };
  QuietSteps quiet_steps() const;
  /// Takes `steps` of them, each of which gave every sequence `token`. All is as after as many
  /// calls of step, but that the executor is not asked and that sinks hear of all tokens at once,
  /// by Delta::completion_tokens alone. Requires: steps <= quiet_steps().steps; a token that does
  /// not end an answer; an executor whose commit succeeds. Cost: O(rows + blocks taken).
  void leap(uint32_t steps, TokenId token);

  /// Requests not yet admitted.
  uint32_t waiting() const { return static_cast<uint32_t>(waiting_.size()); }
  /// Into what the caller keeps: no memory is taken for the same groups again. Cost: O(running
  /// sequences).
  void stats(Stats& stats) const;
  Stats stats() const {
    Stats out;
    stats(out);
    return out;
  }
  void check_invariants() const;

 private:
  struct Job;
  /// One choice of a request.
  struct Sequence {
    Job* job = nullptr;
    uint32_t choice = 0;
    std::vector<TokenId> tokens;  // prompt, then what was generated
    uint32_t computed = 0;        // positions whose K and V are in the blocks
    uint32_t computed_most = 0;   // before a preemption: those that it has had
    uint32_t generated = 0;
    double logprob_sum = 0;  // of what was generated
    SeqId kv;                // null while preempted
    std::unique_ptr<ChoiceOutput> output;
    std::optional<grammar::Matcher> matcher;  // of a request with a grammar: where it stands
    FinishReason finish = FinishReason::kNone;

    uint32_t remaining() const { return static_cast<uint32_t>(tokens.size()) - computed; }
    bool decoding() const { return generated > 0 && remaining() == 1; }
  };
  struct Job {
    RequestId id;
    Request request;
    std::shared_ptr<RequestSink> sink;
    TimeNs submitted_ns = 0, admitted_ns = 0, first_ns = 0;
    uint32_t prompt_tokens = 0;
    uint32_t tokens_max = 0;  // new tokens of a choice, clamped to the room
    bool clamped = false;     // the room is what limits it
    bool use_cache = true;
    bool admitted = false;
    bool forked = false;  // the other choices exist
    uint32_t completion_tokens = 0;
    uint32_t choices_left = 0;
    uint32_t told_tokens = 0;  // of the prompt, to who asked for its log-probabilities
    std::vector<std::unique_ptr<Sequence>> sequences;  // by choice; only the first until forked
    // In-flight sharing: wait until the running sequence `prefix_of` has computed so many tokens.
    SeqId prefix_of;
    uint32_t prefix_tokens = 0;
    bool joined = false;      // has waited for one
    CacheCurve::Visit visit;  // as of its admission

    bool prompt_told() const { return request.prompt_logprobs < 0 || told_tokens == prompt_tokens; }
    /// What is not computed has no logits: a prompt is told before the cache may be read, which
    /// then is after a preemption.
    bool reads_cache() const { return prompt_told(); }
    uint32_t slots_reserved() const { return forked ? 0 : request.choices - 1; }
  };

  Core(model::Executor& executor, const text::Tokenizer& tokenizer, const Clock& clock,
       const Options& options, std::unique_ptr<kv::KvCache> cache);

  static uint32_t pool_tokens_of(const kv::Geometry& geometry, std::span<const uint32_t> blocks);
  uint32_t context_of(uint32_t pool_tokens) const;
  void serve_context(uint32_t pool_tokens);
  Status check_accepted(uint32_t context) const;
  uint64_t cached_tokens_max() const;

  static bool older(const Sequence& a, const Sequence& b) {
    return a.job->id != b.job->id ? a.job->id < b.job->id : a.choice < b.choice;
  }

  // Admission: core_admission.cc.
  void admit_waiting();
  bool resume_preempted();
  kv::AdmitRequest admit_request(const Sequence& sequence) const;
  enum class Admit { kAdmitted, kNoRoom, kDeferred, kFailed };
  Admit try_admit(Sequence& sequence);
  void report_admission(Job& job, const kv::Admitted& admitted, TimeNs lookup_ns);
  bool prefix_is_coming(const Job& job) const;
  bool find_coming_prefix(Job& job, uint32_t cached_tokens) const;
  uint32_t slots_used() const;
  uint32_t headroom_tokens() const;
  double slack_tokens(const Sequence& sequence) const;

  // Building a step: core_step.cc.
  struct Positions {
    uint32_t begin = 0, end = 0;
    uint32_t size() const { return end - begin; }
  };
  struct Run;
  void note_held(const Run& run, uint32_t group, uint32_t& most) const;
  static Positions positions_to_score(const Sequence& sequence, uint32_t tokens);
  std::span<const uint32_t> logits_rows(const Run& run) const;
  Status prepare(const kv::Orders& orders);
  void cover_next_tokens();
  void plan_runs();
  void cover_runs();
  void add_run(Sequence& sequence, uint32_t tokens);
  uint32_t prompt_budget(uint32_t budget, std::size_t decodes) const;
  void learn_step_time(TimeNs step_ns);

  // After a step: core_output.cc.
  void begin_output(Sequence& sequence) const;
  void complete_runs(const model::LogitsView& logits);
  void tell_prompt(Job& job, const Run& run, const model::LogitsView& logits, uint32_t& row);
  void finish_prefill_only(Job& job);
  void fork_choices(Job& job);
  /// Why a step's logits gave a choice no token.
  enum class NoToken : uint8_t { kNone, kNoNumbers, kNoneAllowed };
  NoToken sample(Sequence& sequence, std::span<const float> logits);
  std::span<const uint64_t> allowed_tokens(const Sequence& sequence);
  bool advance_matcher(Sequence& sequence, TokenId token);
  const grammar::Vocabulary& vocabulary() const;
  void deliver(Sequence& sequence, FinishReason finish, std::optional<std::size_t> stop);

  // Leaving.
  void preempt(Sequence& sequence);
  void release(Sequence& sequence);
  void end_visit(const Sequence& sequence, bool others_go_on);
  void insert_running(Sequence& sequence);
  void finish_choice(Sequence& sequence, FinishReason reason);
  void finish_job(Job& job, const Status& status, FinishReason reason);
  void end_early(Job& job, const Status& status, FinishReason reason);
  void fail_runs(const Status& status);
  void fail(std::span<const RequestId> requests, const Status& status);

  model::Executor& executor_;
  const text::Tokenizer& tokenizer_;
  const Clock& clock_;
  Options options_;
  const uint32_t groups_;
  uint32_t step_tokens_ = 0, step_runs_ = 0;
  uint32_t context_asked_ = 0;  // 0: as much as the pool holds
  // Also read by check(), on any thread: the served context, and the positions that the pool holds
  // for one sequence.
  std::atomic<uint32_t> context_served_{0}, pool_tokens_{0};
  std::unique_ptr<kv::KvCache> cache_;
  sampling::Sampler sampler_;
  // Made for the first request with a grammar, by check() on its thread: it takes a while.
  mutable std::once_flag vocabulary_once_;
  mutable std::unique_ptr<const grammar::Vocabulary> vocabulary_;

  std::map<RequestId, std::unique_ptr<Job>> jobs_;
  std::deque<Job*> waiting_;         // not yet admitted, in order of arrival
  std::deque<Sequence*> preempted_;  // in order of age
  std::vector<Sequence*> running_;   // in order of age
  TimeNs prefill_token_ns_ = 0;      // what a row took in the last step with a prompt in it
  std::size_t decode_turn_ = 0;      // who is first when not all decodes fit one step

  // One step's plan; the memory is kept.
  struct Run {
    Sequence* sequence = nullptr;
    uint32_t tokens = 0;
    bool logits = false;  // of its last row, to sample from
  };
  std::vector<Run> runs_;
  std::vector<uint32_t> row_numbers_;  // 0, 1, 2, ...: lists of rows are parts of it
  std::vector<model::StepRun> step_runs_scratch_;
  std::vector<std::span<const BlockId>> tables_;
  kv::Orders orders_;
  std::vector<BlockId> fresh_, idle_;
  sampling::Sampled sampled_;
  std::vector<uint64_t> allowed_;  // of the choice that is sampled, by token

  std::optional<CacheCurve> curve_;  // with Options::cache_curve and the prefix cache
  Ledger ledger_;
  // All steps of at least kChunkMin rows with a prompt in them: what a prompt's token takes.
  TimeNs prefill_ns_ = 0;
  uint64_t prefill_rows_ = 0;
  Stats counters_;  // only its counters are used
};

}  // namespace pagewise::engine
