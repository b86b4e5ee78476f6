// SPDX-License-Identifier: Apache-2.0
// How a generated answer is written: one writer a request, fed with what the engine reports, in
// either API's shapes, streamed or whole. No sockets here: bytes come out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "server/api_error.h"
#include "server/generation.h"
#include "server/id_source.h"
#include "server/prompt.h"
#include "server/reasoning.h"
#include "server/tools/call_parser.h"
#include "text/tokenizer.h"

namespace pagewise::server {

/// How calls are found in an answer.
struct CallRules {
  tools::Family family = tools::Family::kHermes;
  std::vector<std::string> names;  // of the tools that may be called
  bool certain = false;            // see tools::CallParser
};

/// What a writer needs to know about its request.
struct ResponseContext {
  Format format = Format::kChat;
  std::string model;       // as asked
  std::string request_id;  // "req_..."
  std::string id;          // "chatcmpl-...", "cmpl-...", "msg_..."
  int64_t created_unix_s = 0;
  uint32_t prompts = 1;  // answered in one call
  uint32_t choices = 1;  // of each prompt: choice `i` of prompt `p` has the index p * choices + i
  /// Of each prompt that are generated; the best `choices` of them are shown. 0: as many.
  uint32_t candidates = 0;
  std::vector<EchoText> echo;  // of each prompt, when answers begin with it; else empty
  std::vector<std::string> stops;
  std::optional<CallRules> calls;  // none: an answer is text
  bool include_usage = false;
  bool logprobs = false;
  uint32_t top_logprobs = 0;
  bool context_management = false;  // the answer says which edits were applied: none
  bool diagnostics_asked = false;
  json::value diagnostics;
  const text::Tokenizer* tokenizer = nullptr;  // spellings for logprobs
  ReasoningSyntax reasoning;                   // to split off; empty: nothing is
  bool thought_open = false;                   // the answer begins inside a thought
  std::string answer_head;                     // of an answer in channels: see Prompt
  bool thoughts_omitted = false;               // split off, and not said

  uint32_t generated() const { return candidates > choices ? candidates : choices; }
};

/// One choice's text as what its client sees of it.
class AnswerText {
 public:
  using Events = std::vector<tools::CallEvent>;

  explicit AnswerText(const ResponseContext& context);
  /// Adds what `delta` brings to `events`.
  void push(const engine::Delta& delta, Events& events);
  uint32_t calls() const { return calls_; }

 private:
  std::optional<tools::CallParser> parser_;
  uint32_t calls_ = 0;
};

/// Ids of an answer's calls: drawn from the answer's own id.
IdSource call_ids(const ResponseContext& context);

/// Server-sent events. Calls come in the engine's order for each prompt; each appends whole events
/// to `out`. Choices are numbered through all prompts: prompt * generated() + choice.
class StreamWriter {
 public:
  virtual ~StreamWriter() = default;
  /// One more prompt is admitted. `total`: its figures and those of all that were admitted before.
  virtual void admitted(uint32_t prompt, const engine::Admission& total, std::string& out) = 0;
  virtual void scored(uint32_t /*prompt*/, const engine::PromptLogprobs&, std::string& /*out*/) {}
  /// A piece of a choice's thought, which may be empty, before the delta that it came with;
  /// `tokens`: of the whole thought so far.
  virtual void thought(uint32_t /*choice*/, std::string_view /*text*/, uint32_t /*tokens*/,
                       std::string& /*out*/) {}
  virtual void delta(const engine::Delta& delta, std::string& out) = 0;
  virtual void finished(const engine::Finished& finished, std::string& out) = 0;
  /// A failure after the 200: the last thing in the stream.
  virtual void failed(const ApiError& error, std::string& out) = 0;
  /// Something to send when nothing has been for a while.
  virtual void keep_alive(std::string& out) = 0;
};

/// One JSON document at the end. Choices are numbered as above.
class WholeWriter {
 public:
  virtual ~WholeWriter() = default;
  virtual void admitted(uint32_t prompt, const engine::Admission& total) = 0;
  virtual void scored(uint32_t /*prompt*/, engine::PromptLogprobs&&) {}
  virtual void thought(uint32_t /*choice*/, std::string_view /*text*/, uint32_t /*tokens*/) {}
  virtual void delta(engine::Delta&& delta) = 0;
  virtual json::object finished(const engine::Finished& finished) = 0;
};

std::unique_ptr<StreamWriter> make_stream_writer(ResponseContext context);
std::unique_ptr<WholeWriter> make_whole_writer(ResponseContext context);

/// "event: NAME\n" (unless empty), "data: JSON\n\n".
void append_event(std::string& out, std::string_view name, const json::value& data);
/// The same of data that is JSON text already.
void append_event_text(std::string& out, std::string_view name, std::string_view text);

}  // namespace pagewise::server
