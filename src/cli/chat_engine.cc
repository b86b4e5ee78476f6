// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_engine.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "cli/model_file.h"
#include "cli/pool_size.h"
#include "cli/process.h"
#include "model/cpu_executor.h"
#include "server/channels.h"
#include "server/prompt.h"

namespace pagewise::cli {
namespace {

constexpr uint32_t kStepTokens = 512;

/// Hands what the engine thread says to the main thread.
class AnswerSink final : public engine::RequestSink {
 public:
  explicit AnswerSink(const Interrupts& waiting) : waiting_(waiting) {}

  void on_admitted(const engine::Admission& admission) override {
    std::lock_guard lock(mutex_);
    admission_ = admission;
  }
  void on_delta(engine::Delta&& delta) override {
    {
      std::lock_guard lock(mutex_);
      text_ += delta.text;
      if (delta.finish != engine::FinishReason::kNone) finish_ = delta.finish;
    }
    waiting_.wake();
  }
  void on_finished(const engine::Finished& finished) override {
    {
      std::lock_guard lock(mutex_);
      finished_ = finished;
    }
    waiting_.wake();
  }

  /// Text that came since the last call; true when no more will.
  bool take(std::string& text) {
    text.clear();
    std::lock_guard lock(mutex_);
    std::swap(text, text_);
    return finished_.has_value();
  }

  /// Requires: take() has returned true.
  void conclude(Answer& answer) {
    std::lock_guard lock(mutex_);
    answer.admission = admission_;
    answer.finished = *finished_;
    // A cancelled request ends without a last delta.
    const bool cancelled = finished_->status.code() == ErrorCode::kCancelled;
    answer.finish = cancelled ? engine::FinishReason::kCancelled : finish_;
  }

 private:
  const Interrupts& waiting_;
  std::mutex mutex_;  // guards all below
  std::string text_;
  engine::Admission admission_;
  engine::FinishReason finish_ = engine::FinishReason::kNone;
  std::optional<engine::Finished> finished_;
};

/// Of an answer in channels everything is shown, thoughts in front of the words; the words alone
/// are the answer.
class AnswerChannels {
 public:
  explicit AnswerChannels(std::string_view head) : splitter_(head) {}

  /// Leaves the answer's own words in `piece` and returns what is to be shown.
  std::string split(std::string& piece, bool ended) {
    engine::Delta delta;
    delta.text = std::move(piece);
    if (ended) delta.finish = engine::FinishReason::kStop;
    std::string shown = splitter_.take(delta);
    thinks_ = thinks_ || !shown.empty();
    if (thinks_ && !delta.text.empty()) {
      shown += "\n\n";
      thinks_ = false;
    }
    piece = std::move(delta.text);
    return shown + piece;
  }

 private:
  server::ChannelSplitter splitter_;
  bool thinks_ = false;  // a thought was shown, and no word behind it
};

}  // namespace

double Answer::tokens_per_second() const {
  const TimeNs decode_ns = finished.total_ns - finished.first_ns;
  if (finished.completion_tokens < 2 || decode_ns <= 0) return 0;
  return (finished.completion_tokens - 1) * 1e9 / static_cast<double>(decode_ns);
}

struct ChatEngine::Impl {
  ChatEngineOptions options;
  SystemClock clock;
  ModelFile model;
  LoadedTemplate chat_template;
  server::ServedModel served;
  std::unique_ptr<model::CpuExecutor> executor;
  std::unique_ptr<engine::Engine> engine;

  Status load();
  /// `answer_head`: see server::Prompt.
  Result<engine::Request> make_request(const std::vector<server::Turn>& turns,
                                       std::string& answer_head) const;
};

Status ChatEngine::Impl::load() {
  PW_ASSIGN_OR_RETURN(model, open_model(options.model.path, options.max_context));
  PW_ASSIGN_OR_RETURN(chat_template, load_template(*model.file, options.chat_template));
  if (chat_template.compiled == nullptr) {
    return {ErrorCode::kUnsupported, options.model.path + ": " + chat_template.problem +
                                         "; `pagewise run` continues text without"};
  }
  served = describe_model(*model.tokenizer, chat_template);
  served.name = options.model.name;
  PW_ASSIGN_OR_RETURN(const kv::Geometry geometry, geometry_of(model.spec, options.compute));
  const PoolWish wish{options.kv_memory, options.max_context, kStepTokens, options.compute.threads};
  PW_ASSIGN_OR_RETURN(Pool pool, size_pool(wish, model.spec, geometry));
  // One conversation: twice its context, so that what was taken back or edited may stay for a
  // while.
  for (uint32_t& blocks : pool.blocks) {
    const uint64_t useful = 2 * geometry.blocks_for(pool.context) + 2;
    blocks = static_cast<uint32_t>(std::min<uint64_t>(blocks, useful));
  }
  model::CpuExecutorOptions executor_options;
  executor_options.threads = options.compute.threads;
  executor_options.blocks = pool.blocks;
  executor_options.step_tokens_max = kStepTokens;
  executor_options.step_runs_max = 1;
  executor_options.context_max = pool.context;
  executor_options.progress = load_progress();
  PW_ASSIGN_OR_RETURN(executor, model::CpuExecutor::create(*model.file, model.spec, geometry,
                                                           std::move(executor_options)));
  model.file.reset();
  engine::Options engine_options;
  engine_options.context_max = pool.context;
  engine_options.step_tokens = kStepTokens;
  engine_options.seqs_max = 1;
  engine_options.prefix_cache = options.prefix_cache;
  engine = std::make_unique<engine::Engine>(*executor, *model.tokenizer, clock, engine_options);
  PW_RETURN_IF_ERROR(engine->start_status());
  served.context_max = engine->options().context_max;
  return Status::ok();
}

Result<engine::Request> ChatEngine::Impl::make_request(const std::vector<server::Turn>& turns,
                                                       std::string& answer_head) const {
  server::GenerationRequest wanted;
  wanted.format = server::Format::kMessages;
  wanted.turns = turns;
  server::ApiResult<server::Prompt> prompt = server::build_prompt(wanted, served);
  if (!prompt) {
    return Error{prompt.error().code == "context_length_exceeded" ? ErrorCode::kContextTooLong
                                                                  : ErrorCode::kInvalidArgument,
                 prompt.error().message};
  }
  engine::Request request;
  answer_head = std::move(prompt->answer_head);
  if (served.reasoning.channels) request.control_text = server::channel_tokens(*model.tokenizer);
  request.prompt = std::move(prompt->tokens);
  request.cache.positions = std::move(prompt->positions);
  request.max_tokens =
      options.max_tokens == 0 ? std::numeric_limits<uint64_t>::max() : options.max_tokens;
  request.sampling = options.sampling;
  return request;
}

ChatEngine::ChatEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatEngine::~ChatEngine() = default;

Result<std::unique_ptr<ChatEngine>> ChatEngine::create(const ChatEngineOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  PW_RETURN_IF_ERROR(impl->load());
  return std::unique_ptr<ChatEngine>(new ChatEngine(std::move(impl)));
}

Result<Answer> ChatEngine::answer(const std::vector<server::Turn>& turns, Interrupts& interrupts,
                                  const std::function<void(std::string_view)>& show) {
  std::string head;
  PW_ASSIGN_OR_RETURN(engine::Request request, impl_->make_request(turns, head));
  std::optional<AnswerChannels> channels;
  if (impl_->served.reasoning.channels) channels.emplace(head);
  const auto sink = std::make_shared<AnswerSink>(interrupts);
  interrupts.take_interrupt();  // one that was meant for something else
  PW_ASSIGN_OR_RETURN(const RequestId id, impl_->engine->submit(std::move(request), sink));
  Answer answer;
  std::string piece;
  for (bool ended = false; !ended;) {
    interrupts.wait();
    if (interrupts.take_suspend()) interrupts.suspend();
    if (interrupts.take_interrupt() || interrupts.leaving() != 0) impl_->engine->cancel(id);
    ended = sink->take(piece);
    const std::string shown = channels ? channels->split(piece, ended) : piece;
    answer.text += piece;
    if (!shown.empty()) show(shown);
  }
  sink->conclude(answer);
  if (!answer.finished.status && answer.finished.status.code() != ErrorCode::kCancelled) {
    return answer.finished.status.error();
  }
  return answer;
}

const std::string& ChatEngine::name() const { return impl_->served.name; }
uint32_t ChatEngine::context_max() const { return impl_->served.context_max; }
engine::Stats ChatEngine::stats() const { return impl_->engine->stats(); }

}  // namespace pagewise::cli
