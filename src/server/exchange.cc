// SPDX-License-Identifier: Apache-2.0
#include "server/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "server/channels.h"

namespace pagewise::server {
namespace {

using engine::Admission;
using engine::Delta;
using engine::Finished;
using engine::FinishReason;
using engine::PromptLogprobs;

/// A client that waits hears something at least this often; proxies close silent connections after
/// 30 to 60 s.
constexpr TimeNs kSilenceMax = 10'000'000'000;
constexpr int kClientGone = 499;  // in the log only: nobody is there to read a status

double seconds(TimeNs ns) { return static_cast<double>(ns) * 1e-9; }
double milliseconds(TimeNs ns) { return static_cast<double>(ns) * 1e-6; }

struct TimedDelta {
  Delta delta;
  TimeNs at = 0;
};
struct Event {
  uint32_t prompt = 0;
  std::variant<Admission, PromptLogprobs, TimedDelta, Finished> what;
};

/// Where the engine thread leaves events for the network thread. The queue is bounded by the
/// request: one delta a token at most. Many events, one wake-up: only the first since the last look
/// wakes.
class EventBox {
 public:
  EventBox(const Clock& clock, std::function<void()> wake)
      : clock_(clock), wake_(std::move(wake)) {}

  void add(Event event) {
    bool first = false;
    {
      std::lock_guard lock(mutex_);
      first = events_.empty();
      events_.push_back(std::move(event));
    }
    if (first) wake_();
  }
  void take(std::vector<Event>& out) {
    std::lock_guard lock(mutex_);
    out.swap(events_);
  }
  TimeNs now() const { return clock_.now(); }

 private:
  const Clock& clock_;
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<Event> events_;  // guarded by mutex_
};

/// One prompt's way into the box.
class PromptSink final : public engine::RequestSink {
 public:
  PromptSink(std::shared_ptr<EventBox> box, uint32_t prompt)
      : box_(std::move(box)), prompt_(prompt) {}

  void on_admitted(const Admission& admission) override { box_->add({prompt_, admission}); }
  void on_prompt(PromptLogprobs&& piece) override { box_->add({prompt_, std::move(piece)}); }
  void on_delta(Delta&& delta) override {
    box_->add({prompt_, TimedDelta{std::move(delta), box_->now()}});
  }
  void on_finished(const Finished& finished) override { box_->add({prompt_, finished}); }

 private:
  const std::shared_ptr<EventBox> box_;
  const uint32_t prompt_;
};

void add_to(Admission& total, const Admission& admission) {
  total.prompt_tokens += admission.prompt_tokens;
  total.cached_tokens += admission.cached_tokens;
  total.cache_read_tokens += admission.cache_read_tokens;
  total.cache_created_5m_tokens += admission.cache_created_5m_tokens;
  total.cache_created_1h_tokens += admission.cache_created_1h_tokens;
  total.input_tokens += admission.input_tokens;
  total.blocks += admission.blocks;
  total.blocks_shared += admission.blocks_shared;
  total.queue_ns = std::max(total.queue_ns, admission.queue_ns);  // they waited side by side
  total.lookup_ns += admission.lookup_ns;
}

void add_to(Finished& total, const Finished& finished) {
  total.completion_tokens += finished.completion_tokens;
  total.prefill_ns = std::max(total.prefill_ns, finished.prefill_ns);
  total.first_ns =
      total.first_ns == 0 ? finished.first_ns : std::min(total.first_ns, finished.first_ns);
  total.total_ns = std::max(total.total_ns, finished.total_ns);
}

std::string_view stop_label(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "end_turn";
    case FinishReason::kStopString:
      return "stop_sequence";
    case FinishReason::kLength:
      return "max_tokens";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
    case FinishReason::kNone:
      break;
  }
  return "none";
}

using Splitter = std::variant<ReasoningSplitter, ChannelSplitter>;

class EngineExchange final : public Exchange {
 public:
  explicit EngineExchange(ExchangeSetup setup) : setup_(std::move(setup)) {
    if (setup_.stream) {
      stream_ = make_stream_writer(setup_.context);
    } else {
      whole_ = make_whole_writer(setup_.context);
    }
  }

  ~EngineExchange() override { cancel(); }

  void start(std::function<void()> wake) override {
    started_at_ = last_byte_at_ = setup_.clock->now();
    box_ = std::make_shared<EventBox>(*setup_.clock, std::move(wake));
    for (engine::Request& request : setup_.requests) {
      max_tokens_ = request.max_tokens;
      const auto prompt = static_cast<uint32_t>(parts_.size());
      auto submitted =
          setup_.engine.submit(std::move(request), std::make_shared<PromptSink>(box_, prompt));
      if (!submitted) {
        // None of them: nothing was sent yet.
        refusal_ = to_api_error(submitted.error());
        if (setup_.metrics != nullptr && refusal_->kind == ErrorKind::kOverloaded)
          setup_.metrics->count_refusal(telemetry::Metrics::Limit::kQueue);
        return cancel_parts();
      }
      parts_.emplace_back().id = *submitted;
    }
  }

  Progress poll(TimeNs now) override {
    Progress progress;
    if (done_) {
      progress.done = true;
      return progress;
    }
    if (refusal_) {
      finish_with(*refusal_, progress);
      return progress;
    }
    std::vector<Event> events;
    box_->take(events);
    progress.bytes = std::exchange(held_, {});
    for (Event& event : events) {
      if (done_) break;
      if (auto* admission = std::get_if<Admission>(&event.what)) {
        on_admitted(event.prompt, *admission, progress);
      } else if (auto* piece = std::get_if<PromptLogprobs>(&event.what)) {
        on_prompt(event.prompt, std::move(*piece), progress);
      } else if (auto* delta = std::get_if<TimedDelta>(&event.what)) {
        on_delta(event.prompt, *delta, progress);
      } else {
        on_finished(event.prompt, std::get<Finished>(event.what), progress);
      }
    }
    if (!done_ && stream_ != nullptr) break_silence(now, progress);
    // What was written for the prompts that were admitted waits for the head of the stream.
    if (stream_ != nullptr && !head_sent_) held_ = std::exchange(progress.bytes, {});
    if (progress.head || !progress.bytes.empty()) last_byte_at_ = now;
    progress.done = done_;
    if (!done_ && stream_ != nullptr) progress.look_again_at = last_byte_at_ + kSilenceMax;
    return progress;
  }

  void cancel() override {
    if (done_) return;
    done_ = true;
    cancel_parts();
    record(kClientGone, "cancelled");
  }

  void shut_down() override {
    if (done_ || refusal_) return;
    cancel_parts();
    refusal_ = ApiError{ErrorKind::kNotReady, "the server is shutting down", "", "", ""};
  }

 private:
  /// One prompt's request of the engine.
  struct Part {
    RequestId id;
    std::optional<Admission> admission;
    std::optional<Finished> finished;
  };

  void cancel_parts() {
    for (const Part& part : parts_) {
      if (!part.finished) setup_.engine.cancel(part.id);
    }
  }

  bool all_admitted() const {
    return std::all_of(parts_.begin(), parts_.end(),
                       [](const Part& part) { return part.admission.has_value(); });
  }

  void on_admitted(uint32_t prompt, const Admission& admission, Progress& progress) {
    parts_[prompt].admission = admission;
    if (!admission_) admission_.emplace();
    add_to(*admission_, admission);
    if (setup_.admitted) setup_.admitted(admission);
    if (whole_ != nullptr) return whole_->admitted(prompt, *admission_);
    // The head tells what all prompts read from the cache, if that is known before it must go.
    if (!head_sent_ && all_admitted()) begin_stream(progress);
    stream_->admitted(prompt, *admission_, progress.bytes);
  }

  void on_prompt(uint32_t prompt, PromptLogprobs&& piece, Progress& progress) {
    if (whole_ != nullptr) return whole_->scored(prompt, std::move(piece));
    if (!head_sent_) begin_stream(progress);
    stream_->scored(prompt, piece, progress.bytes);
  }

  void on_delta(uint32_t prompt, TimedDelta& event, Progress& progress) {
    Delta& delta = event.delta;
    // A choice that this request does not have would be a bug of ours; leave it out rather than
    // crash.
    if (delta.choice >= setup_.context.generated()) return;
    delta.choice += prompt * setup_.context.generated();
    measure_gap(delta, event.at);
    if (delta.finish != FinishReason::kNone) finish_ = delta.finish;
    if (stream_ != nullptr && !head_sent_) begin_stream(progress);
    if (setup_.context.reasoning) split_thought(delta, progress);
    if (whole_ != nullptr) return whole_->delta(std::move(delta));
    stream_->delta(delta, progress.bytes);
  }

  /// The writer hears of the thought; the answer's own text stays in `delta`.
  void split_thought(Delta& delta, Progress& progress) {
    if (splitters_.empty()) {
      splitters_.assign(std::size_t{setup_.context.prompts} * setup_.context.generated(),
                        new_splitter());
    }
    std::visit(
        [&](auto& splitter) {
          const uint32_t before = splitter.thought_tokens();
          const std::string thought = splitter.take(delta);
          if (thought.empty() && splitter.thought_tokens() == before) return;
          if (whole_ != nullptr) {
            whole_->thought(delta.choice, thought, splitter.thought_tokens());
          } else {
            stream_->thought(delta.choice, thought, splitter.thought_tokens(), progress.bytes);
          }
        },
        splitters_[delta.choice]);
  }

  Splitter new_splitter() const {
    const ResponseContext& context = setup_.context;
    if (context.reasoning.channels) return ChannelSplitter(context.answer_head);
    return ReasoningSplitter(context.reasoning, context.thought_open);
  }

  void on_finished(uint32_t prompt, const Finished& finished, Progress& progress) {
    Part& part = parts_[prompt];
    part.finished = finished;
    if (!finished.status) {
      if (parts_.size() == 1) finished_ = finished;  // the engine's own times
      cancel_parts();
      return finish_with(to_api_error(finished.status.error()), progress);
    }
    // Finished without having been admitted: cancelled while it waited.
    if (!part.admission) {
      cancel_parts();
      return finish_with(to_api_error(Error{ErrorCode::kCancelled, ""}), progress);
    }
    if (std::any_of(parts_.begin(), parts_.end(), [](const Part& p) { return !p.finished; }))
      return;
    finished_.emplace();
    for (const Part& p : parts_) add_to(*finished_, *p.finished);
    done_ = true;
    if (setup_.finished) setup_.finished(*admission_, *finished_);
    if (stream_ != nullptr) {
      stream_->finished(*finished_, progress.bytes);
    } else {
      HttpResponse response =
          json_response(200, whole_->finished(*finished_), setup_.context.request_id);
      add_headers(response);
      progress.whole = std::move(response);
    }
    record(200, stop_label(finish_));
  }

  /// Ends with an error: as the answer while nothing is sent, else as the stream's last event. Then
  /// the client has its 200, and so have log and metrics.
  void finish_with(const ApiError& error, Progress& progress) {
    done_ = true;
    const int status = head_sent_ ? 200 : http_status(error, setup_.surface);
    if (head_sent_) {
      stream_->failed(error, progress.bytes);
    } else {
      progress.head.reset();
      progress.bytes.clear();
      progress.whole = error_response(error, setup_.surface, setup_.context.request_id);
    }
    progress.done = true;
    record(status, error_label(error));
  }

  void begin_stream(Progress& progress) {
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = base_headers(setup_.context.request_id);
    head.headers.push_back({"cache-control", "no-cache"});
    head.headers.push_back({"x-accel-buffering", "no"});
    add_headers(head);
    progress.head = std::move(head);
    head_sent_ = true;
  }

  void break_silence(TimeNs now, Progress& progress) {
    const bool speaks = head_sent_ && !progress.bytes.empty();
    if (speaks || now - last_byte_at_ < kSilenceMax) return;
    if (!head_sent_) begin_stream(progress);
    if (admission_) {
      stream_->keep_alive(progress.bytes);
    } else {
      progress.bytes += ": queued\n\n";
    }
  }

  /// What is known by now (design section 10): a stream's headers cannot know prefill and first
  /// token.
  void add_headers(HttpResponse& response) const {
    response.headers.push_back({"x-model", setup_.model_name});
    std::string timing;
    if (all_admitted()) {
      response.headers.push_back({"x-cached-tokens", std::to_string(admission_->cached_tokens)});
      timing = fmt::format("queue;dur={:.1f}, tokenize;dur={:.1f}, lookup;dur={:.1f}",
                           milliseconds(admission_->queue_ns), milliseconds(setup_.tokenize_ns),
                           milliseconds(admission_->lookup_ns));
    } else {
      timing = fmt::format("tokenize;dur={:.1f}", milliseconds(setup_.tokenize_ns));
    }
    if (whole_ != nullptr && finished_) {
      timing += fmt::format(", prefill;dur={:.1f}, first;dur={:.1f}, total;dur={:.1f}",
                            milliseconds(finished_->prefill_ns), milliseconds(finished_->first_ns),
                            milliseconds(finished_->total_ns));
      if (setup_.surface == Surface::kOpenAi) {
        const TimeNs spent = setup_.clock->now() - setup_.received_at;
        response.headers.push_back({"openai-processing-ms", std::to_string(spent / 1'000'000)});
      }
    }
    response.headers.push_back({"server-timing", timing});
  }

  void measure_gap(const Delta& delta, TimeNs at) {
    choice_seen_.resize(std::size_t{setup_.context.prompts} * setup_.context.generated());
    if (first_at_ == 0) first_at_ = at;
    auto& [tokens, last_at] = choice_seen_[delta.choice];
    if (last_at != 0 && delta.completion_tokens > tokens && setup_.metrics != nullptr) {
      setup_.metrics->observe_tokens(seconds(at - last_at), delta.completion_tokens - tokens);
    }
    tokens = std::max(tokens, delta.completion_tokens);
    last_at = at;
  }

  /// What was seen of a request that ended before the engine could say so; times from the arrival
  /// here, which is when the engine starts to count too.
  Finished so_far() const {
    Finished seen;
    for (const Seen& choice : choice_seen_) seen.completion_tokens += choice.tokens;
    if (first_at_ != 0) {
      seen.first_ns = first_at_ - started_at_;
      seen.total_ns = setup_.clock->now() - started_at_;
    }
    return seen;
  }

  /// Log line and metrics; once a request.
  void record(int status, std::string_view stop) {
    setup_.ticket.give_back();  // before the client can know
    LogFacts facts;
    facts.request_id = setup_.context.request_id;
    facts.route = setup_.route;
    facts.status = status;
    facts.choices = setup_.context.prompts * setup_.context.generated();
    facts.stop = stop;
    facts.key_name = setup_.key_name;
    if (admission_) facts.admission = *admission_;
    facts.finished = finished_ ? *finished_ : so_far();
    if (setup_.log) setup_.log(log_line(facts));
    if (setup_.metrics == nullptr) return;
    setup_.metrics->count_http(setup_.route, status);
    for (uint32_t p = 0; p < parts_.size(); ++p) {
      if (parts_[p].admission) observe(p);
    }
  }

  /// The engine's view: each prompt is a request.
  void observe(uint32_t prompt) {
    const Part& part = parts_[prompt];
    telemetry::RequestSample sample;
    sample.queue_s = seconds(part.admission->queue_ns);
    sample.prompt_tokens = part.admission->prompt_tokens;
    sample.computed_tokens = part.admission->prompt_tokens -
                             std::min(part.admission->prompt_tokens, part.admission->cached_tokens);
    sample.choices = setup_.context.generated();
    sample.max_tokens = max_tokens_;
    if (part.finished) {
      sample.completion_tokens = part.finished->completion_tokens;
    } else {
      const std::size_t first = std::size_t{prompt} * sample.choices;
      for (std::size_t c = first; c < first + sample.choices && c < choice_seen_.size(); ++c) {
        sample.completion_tokens += choice_seen_[c].tokens;
      }
    }
    if (part.finished && part.finished->status) {
      sample.prefill_s = seconds(part.finished->prefill_ns);
      sample.first_token_s = seconds(part.finished->first_ns);
      sample.total_s = seconds(part.finished->total_ns);
    }
    setup_.metrics->observe_request(sample);
  }

  ExchangeSetup setup_;
  std::unique_ptr<StreamWriter> stream_;  // one of the two
  std::unique_ptr<WholeWriter> whole_;
  std::shared_ptr<EventBox> box_;
  std::vector<Part> parts_;  // by prompt
  std::optional<ApiError> refusal_;
  std::optional<Admission> admission_;  // of the prompts admitted so far, together
  std::optional<Finished> finished_;    // of all
  FinishReason finish_ = FinishReason::kNone;
  struct Seen {
    uint32_t tokens = 0;
    TimeNs at = 0;
  };
  std::vector<Seen> choice_seen_;
  std::vector<Splitter> splitters_;  // by choice, of all prompts
  uint64_t max_tokens_ = 0;
  TimeNs started_at_ = 0;
  TimeNs first_at_ = 0;  // when the engine gave the first delta
  TimeNs last_byte_at_ = 0;
  std::string held_;  // of the stream, before its head
  bool head_sent_ = false;
  bool done_ = false;
};

}  // namespace

std::vector<HttpHeader> base_headers(std::string_view request_id) {
  return {{"request-id", std::string(request_id)}, {"x-request-id", std::string(request_id)}};
}

HttpResponse json_response(int status, const json::value& body, std::string_view request_id) {
  HttpResponse response;
  response.status = status;
  response.headers = base_headers(request_id);
  response.body = json::serialize(body);
  return response;
}

HttpResponse error_response(const ApiError& error, Surface surface, std::string_view request_id) {
  HttpResponse response = json_response(http_status(error, surface),
                                        error_body(error, surface, request_id), request_id);
  if (const uint16_t retry = error_row(error.kind).retry_after_s; retry != 0) {
    response.headers.push_back({"retry-after", std::to_string(retry)});
  }
  return response;
}

std::string log_line(const LogFacts& facts) {
  const Admission& a = facts.admission;
  const Finished& f = facts.finished;
  const double decode_s = seconds(f.total_ns - f.first_ns);
  const uint32_t behind_first =
      f.completion_tokens > facts.choices ? f.completion_tokens - facts.choices : 0;
  const double rate = decode_s > 0 ? behind_first / decode_s : 0;
  return fmt::format(
      "{} {} {} prompt={} cached={} created={} out={} queue={:.0f}ms ttft={:.0f}ms {:.0f}tok/s "
      "blocks={} ({} "
      "shared) stop={}{}{}",
      facts.request_id, facts.route, facts.status, a.prompt_tokens, a.cached_tokens,
      a.cache_created_5m_tokens + a.cache_created_1h_tokens, f.completion_tokens,
      milliseconds(a.queue_ns), milliseconds(f.first_ns), rate, a.blocks, a.blocks_shared,
      facts.stop, facts.key_name.empty() ? "" : " key=", facts.key_name);
}

std::unique_ptr<Exchange> make_exchange(ExchangeSetup setup) {
  return std::make_unique<EngineExchange>(std::move(setup));
}

}  // namespace pagewise::server
