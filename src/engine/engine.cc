// SPDX-License-Identifier: Apache-2.0
// The core on a thread of its own. Callers leave submissions and cancellations in a mailbox; the
// engine thread empties it between steps and sleeps on it when there is nothing to do.
#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/thread_name.h"
#include "engine/core.h"

namespace pagewise::engine {
namespace {

// Bounds of a sleep that ends because time has passed.
constexpr TimeNs kTendNsMin = 1'000'000;
constexpr TimeNs kTendNsMax = 60'000'000'000;

// Calls of one kind that may wait for the end of a step; a look-up costs a walk through the index.
constexpr std::size_t kCallsMax = 64;

}  // namespace

/// Holds a step's output back until the statistics know of it: who has a token, or the whole
/// answer, and asks for the metrics next sees blocks and counters as they are with it. Thread:
/// engine thread only. No allocation once there is room for the output of a step.
class OutputAfterStats {
 public:
  std::shared_ptr<RequestSink> wrap(std::shared_ptr<RequestSink> sink) {
    return std::make_shared<Sink>(*this, std::move(sink));
  }
  void deliver() {
    for (auto& [sink, output] : held_) {
      RequestSink& to = *sink;
      std::visit([&to](auto& what) { pass(to, what); }, output);
    }
    held_.clear();
  }

 private:
  using Output = std::variant<PromptLogprobs, Delta, Finished>;
  static void pass(RequestSink& to, PromptLogprobs& piece) { to.on_prompt(std::move(piece)); }
  static void pass(RequestSink& to, Delta& delta) { to.on_delta(std::move(delta)); }
  static void pass(RequestSink& to, const Finished& finished) { to.on_finished(finished); }

  class Sink final : public RequestSink {
   public:
    Sink(OutputAfterStats& owner, std::shared_ptr<RequestSink> sink)
        : owner_(owner), sink_(std::move(sink)) {}
    /// At once: what was found is known, and the prompt is yet to be computed.
    void on_admitted(const Admission& admission) override { sink_->on_admitted(admission); }
    void on_prompt(PromptLogprobs&& piece) override { hold(std::move(piece)); }
    void on_delta(Delta&& delta) override { hold(std::move(delta)); }
    void on_finished(const Finished& finished) override { hold(finished); }

   private:
    void hold(Output&& output) { owner_.held_.emplace_back(sink_, std::move(output)); }

    OutputAfterStats& owner_;
    std::shared_ptr<RequestSink> sink_;
  };

  std::vector<std::pair<std::shared_ptr<RequestSink>, Output>> held_;  // in order
};

struct Engine::Impl {
  struct Submission {
    RequestId id;
    Request request;
    std::shared_ptr<RequestSink> sink;
    TimeNs submitted_ns = 0;
  };

  /// Operators' calls and clients' questions wait apart: neither can crowd out the other.
  enum class Kind : uint8_t { kOperator, kLookUp };

  /// Something to do with the core between two steps, and whom to tell afterwards.
  struct Call {
    Kind kind;
    std::function<void(Core&)> run;
    std::function<void()> tell;
  };

  Impl(model::Executor& executor, const text::Tokenizer& tokenizer, const Clock& clock,
       const Options& options)
      : clock(clock), options(options) {
    Result<std::unique_ptr<Core>> created = Core::create(executor, tokenizer, clock, options);
    if (!created) {
      start_status = created.status();
      return;
    }
    core = std::move(*created);
    this->options = core->options();
    snapshot = core->stats();
    thread = std::thread([this] { run(); });
  }

  ~Impl() {
    if (!thread.joinable()) return;
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_one();
    thread.join();
  }

  Result<RequestId> submit(Request&& request, std::shared_ptr<RequestSink>&& sink) {
    if (!start_status) return start_status.error();
    PW_RETURN_IF_ERROR(core->check(request));
    RequestId id;
    {
      std::lock_guard lock(mutex);
      if (stopping) return {ErrorCode::kCancelled, "the server is shutting down"};
      // Requests that free slots may take at once do not count as waiting.
      const uint64_t waiting = snapshot.requests_waiting + submissions.size();
      const uint32_t slots =
          options.seqs_max - std::min(options.seqs_max, snapshot.requests_running);
      if (waiting >= uint64_t{options.queue_max} + slots) {
        return {ErrorCode::kOverloaded,
                "the queue is full: " + std::to_string(waiting) +
                    (waiting == 1 ? " request is waiting" : " requests are waiting")};
      }
      id = RequestId(next_id++);
      submissions.push_back({id, std::move(request), std::move(sink), clock.now()});
    }
    wake.notify_one();
    return id;
  }

  void cancel(RequestId id) {
    {
      std::lock_guard lock(mutex);
      if (stopping) return;
      cancellations.push_back(id);
    }
    wake.notify_one();
  }

  template <typename T, typename Run>
  void call(Kind kind, Run run, Done<T> done) {
    auto result =
        std::make_shared<Result<T>>(Error{ErrorCode::kCancelled, "the server is shutting down"});
    if (!start_status) return done(Result<T>(start_status.error()));
    {
      std::unique_lock lock(mutex);
      const auto waiting = std::count_if(calls.begin(), calls.end(),
                                         [kind](const Call& call) { return call.kind == kind; });
      if (stopping || static_cast<std::size_t>(waiting) >= kCallsMax) {
        if (!stopping)
          *result =
              Error{ErrorCode::kOverloaded, kind == Kind::kOperator
                                                ? "too many administrative calls wait"
                                                : "too many questions about the cache are waiting"};
        lock.unlock();
        return done(std::move(*result));
      }
      calls.push_back({kind, [result, run = std::move(run)](Core& core) { *result = run(core); },
                       [result, done = std::move(done)] { done(std::move(*result)); }});
    }
    wake.notify_one();
  }

  Stats stats() const {
    std::lock_guard lock(mutex);
    Stats result = snapshot;
    result.requests_waiting += static_cast<uint32_t>(submissions.size());
    return result;
  }

  /// The engine thread.
  void run() {
    name_this_thread("engine");
    std::vector<Submission> submitted;
    std::vector<RequestId> cancelled;
    std::vector<Call> called_for;
    while (true) {
      {
        std::unique_lock lock(mutex);
        const auto called = [&] {
          return stopping || !core->idle() || !submissions.empty() || !cancellations.empty() ||
                 !calls.empty();
        };
        if (const std::optional<TimeNs> next = core->next_tend()) {
          // Time alone may ask for something; on a clock of the caller's own, look now and then.
          const TimeNs left = std::clamp<TimeNs>(*next - clock.now(), kTendNsMin, kTendNsMax);
          wake.wait_for(lock, std::chrono::nanoseconds(left), called);
        } else {
          wake.wait(lock, called);
        }
        if (stopping) break;
        submitted.swap(submissions);
        cancelled.swap(cancellations);
        called_for.swap(calls);
        snapshot.requests_waiting += static_cast<uint32_t>(submitted.size());
      }
      for (Submission& s : submitted) {
        core->submit(s.id, std::move(s.request), output.wrap(std::move(s.sink)), s.submitted_ns);
      }
      submitted.clear();
      for (const RequestId id : cancelled) core->cancel(id);
      cancelled.clear();
      for (const Call& call : called_for) call.run(*core);
      if (!called_for.empty()) {
        publish_stats();  // who hears of a call and looks next sees what it did
        for (const Call& call : called_for) call.tell();
        called_for.clear();
      }
      if (core->idle()) {
        core->tend();
      } else {
        core->step();
      }
      publish_stats();
      output.deliver();
    }
    // Shutting down: everyone hears of it, also who had only reached the mailbox.
    {
      std::lock_guard lock(mutex);
      submitted.swap(submissions);
      called_for.swap(calls);
    }
    for (const Call& call : called_for) call.tell();
    for (Submission& s : submitted) {
      core->submit(s.id, std::move(s.request), output.wrap(std::move(s.sink)), s.submitted_ns);
    }
    core->cancel_all();
    publish_stats();
    output.deliver();
  }

  /// Engine thread. The memory of both copies is kept: this runs after every step.
  void publish_stats() {
    core->stats(latest);
    std::lock_guard lock(mutex);
    snapshot = latest;
  }

  const Clock& clock;
  Options options;
  Status start_status;
  OutputAfterStats output;     // engine thread only
  std::unique_ptr<Core> core;  // engine thread only, except check()
  Stats latest;                // engine thread only

  mutable std::mutex mutex;
  std::condition_variable wake;
  // Guarded by mutex.
  std::vector<Submission> submissions;   // at most options.queue_max and the free slots
  std::vector<RequestId> cancellations;  // emptied between steps
  std::vector<Call> calls;               // at most kCallsMax of a kind
  Stats snapshot;
  uint64_t next_id = 1;
  bool stopping = false;

  std::thread thread;
};

Engine::Engine(model::Executor& executor, const text::Tokenizer& tokenizer, const Clock& clock,
               Options options)
    : impl_(std::make_unique<Impl>(executor, tokenizer, clock, options)) {}

Engine::~Engine() = default;

Result<RequestId> Engine::submit(Request request, std::shared_ptr<RequestSink> sink) {
  return impl_->submit(std::move(request), std::move(sink));
}

const Status& Engine::start_status() const { return impl_->start_status; }

void Engine::cancel(RequestId request) { impl_->cancel(request); }

void Engine::look_up(LookUp asked, Done<LookedUp> done) {
  if (asked.tokens.empty()) {
    return done(Error{ErrorCode::kInvalidArgument, "prompt: must have at least one token"});
  }
  const auto run = [asked = std::move(asked)](Core& core) {
    return Result<LookedUp>(core.look_up(asked));
  };
  impl_->call<LookedUp>(Impl::Kind::kLookUp, run, std::move(done));
}

Stats Engine::stats() const { return impl_->stats(); }

void Engine::resize(std::vector<uint32_t> blocks, Done<PoolReport> done) {
  const auto run = [blocks = std::move(blocks)](Core& core) -> Result<PoolReport> {
    PW_RETURN_IF_ERROR(core.resize(blocks));
    return core.pool_report();
  };
  impl_->call<PoolReport>(Impl::Kind::kOperator, run, std::move(done));
}

void Engine::report_pool(Done<PoolReport> done) {
  const auto run = [](Core& core) { return Result<PoolReport>(core.pool_report()); };
  impl_->call<PoolReport>(Impl::Kind::kOperator, run, std::move(done));
}

void Engine::report_cache(Done<CacheReport> done) {
  const auto run = [](Core& core) { return Result<CacheReport>(core.cache_report()); };
  impl_->call<CacheReport>(Impl::Kind::kOperator, run, std::move(done));
}

void Engine::report_curve(Done<CurveReport> done) {
  const auto run = [](Core& core) { return Result<CurveReport>(core.curve_report()); };
  impl_->call<CurveReport>(Impl::Kind::kOperator, run, std::move(done));
}

void Engine::clear_cache(std::optional<std::string> name, Done<Cleared> done) {
  const auto run = [name = std::move(name)](Core& core) {
    return Result<Cleared>(core.clear_cache(name));
  };
  impl_->call<Cleared>(Impl::Kind::kOperator, run, std::move(done));
}

const Options& Engine::options() const { return impl_->options; }

}  // namespace pagewise::engine
