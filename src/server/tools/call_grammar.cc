// SPDX-License-Identifier: Apache-2.0
#include "server/tools/call_grammar.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace pagewise::server::tools {
namespace {

using grammar::Builder;
using grammar::NodeId;

/// Calls of one answer, where their number is the model's to choose.
constexpr uint32_t kCallsMax = 128;

std::string quoted(std::string_view text) { return json::serialize(json::value(text)); }

class Composer {
 public:
  Composer(const GenerationRequest& request, const ToolFormat& format,
           const text::Tokenizer& tokenizer, bool marked_words)
      : request_(request),
        form_(format.form),
        format_(format),
        tokenizer_(tokenizer),
        free_words_(format.family != Family::kChannels &&
                    (marked_words || format.foreign_calls || format.syntax().bare)) {}

  ApiResult<CallGrammar> compose() {
    std::vector<NodeId> calls;
    bool strict = false;
    for (const Tool& tool : request_.tools) {
      const std::vector<std::string>& only = request_.tool_choice.only;
      if (!only.empty() && std::find(only.begin(), only.end(), tool.name) == only.end()) continue;
      auto arguments = arguments_of(tool);
      if (!arguments) return arguments.error();
      strict = strict || tool.strict;
      calls.push_back(call(tool.name, *arguments));
    }
    const bool forced = request_.tool_choice.use == ToolUse::kRequired;
    // Only a promise is worth taking words away: those that begin as a bare call does, or marks.
    if (free_words_ && !forced && !strict) return CallGrammar{};
    const bool several = request_.tool_choice.parallel && !format_.one_call;
    auto built = builder_.build(root(builder_.choice(std::move(calls)), forced, several));
    if (!built) return to_api_error(built.error());
    return CallGrammar{*std::move(built), true};
  }

 private:
  ApiResult<NodeId> arguments_of(const Tool& tool) {
    if (tool.parameters.empty()) return builder_.json_object();
    auto schema = builder_.json_schema(tool.parameters, tool.path);
    if (schema) return *schema;
    if (!tool.strict) return builder_.json_object();
    ApiError error = to_api_error(schema.error());
    error.param = tool.path;
    return error;
  }

  /// A word of the syntax: a control token where the model has one for it.
  std::string spelled(std::string_view text) const {
    const auto token = tokenizer_.find(text);
    return token && tokenizer_.is_control(*token) ? grammar::control_spelling(*token)
                                                  : std::string(text);
  }
  /// White space around a word.
  std::string spelled_close() const {
    const std::size_t word = form_.close.find_first_not_of(" \n\r\t");
    if (word == std::string::npos) return "";
    return form_.close.substr(0, word) + spelled(form_.close.substr(word));
  }

  NodeId text(const std::string& bytes) { return builder_.literal(bytes); }
  NodeId together(std::vector<NodeId> parts) { return builder_.sequence(std::move(parts)); }

  /// One call, without what opens it; of channels, with it: as the template writes it, and as the
  /// model would.
  NodeId call(const std::string& name, NodeId arguments) {
    if (format_.family == Family::kChannels) {
      const std::string channel = spelled("<|channel|>"), body = spelled("<|message|>");
      const NodeId head = builder_.choice(
          {text(std::string(kRoleRecipient) + name + channel + "commentary json" + body),
           text(channel + "commentary to=functions." + name + " " + spelled("<|constrain|>") +
                "json" + body)});
      return together({head, arguments});
    }
    if (format_.family == Family::kDeepSeek) {
      const std::string separator = spelled("<｜tool▁sep｜>");
      const std::string end = spelled("<｜tool▁call▁end｜>");
      return form_.fenced ? together({text("function" + separator + name + "\n```json\n"),
                                      arguments, text("\n```" + end)})
                          : together({text(name + separator), arguments, text(end)});
    }
    if (form_.tagged) return together({text(name + spelled("[ARGS]")), arguments});
    return together({text("{" + quoted(form_.name_key) + ": " + quoted(name) + ", " +
                          quoted(form_.arguments_key) + ": "),
                     arguments, text("}")});
  }

  /// What stands behind the first opening: `call`, and where the calls share an opening all of
  /// them.
  NodeId opened(NodeId call, bool several) {
    const uint32_t most = several ? kCallsMax : 1;
    if (format_.family == Family::kDeepSeek) {
      const NodeId begun = together({text(spelled("<｜tool▁call▁begin｜>")), call});
      return together(
          {builder_.repeat(begun, text("\n"), 1, most), text(spelled("<｜tool▁calls▁end｜>"))});
    }
    const NodeId gap = text(form_.gap), close = text(spelled_close());
    if (!form_.list) return together({gap, call, close});
    return together({gap, text("["), builder_.repeat(call, text(", "), 1, most), text("]"), close});
  }

  /// Thoughts and words to the client, each a message; then a call, or the answer's last message.
  NodeId messages(NodeId call) {
    const std::string channel = spelled("<|channel|>"), body = spelled("<|message|>");
    const NodeId next = text(spelled("<|start|>") + "assistant");
    const NodeId message =
        together({text(channel), builder_.choice({text("analysis"), text("commentary")}),
                  text(body), builder_.text_until({{spelled("<|end|>"), next}}, false)});
    const NodeId last = together({text(channel + "final" + body), builder_.text_until({}, true)});
    return together({builder_.repeat(message, std::nullopt, 0, grammar::kUnbounded),
                     builder_.choice({call, last})});
  }

  NodeId root(NodeId call, bool forced, bool several) {
    if (format_.family == Family::kChannels) return forced ? call : messages(call);
    const NodeId body = opened(call, several);
    const bool shared = form_.list || format_.family == Family::kDeepSeek;
    if (format_.syntax().bare && form_.open.empty()) {
      if (forced) return call;
      grammar::ByteSet others;
      others.set();
      for (const char c : std::string_view("{ \n\r\t")) others.reset(static_cast<unsigned char>(c));
      return builder_.choice(
          {call, together({builder_.byte_of(others), builder_.text_until({}, true)})});
    }
    const std::string open = spelled(form_.open);
    if (!forced) {
      const NodeId words = builder_.text_until({{open, body}}, true);
      return several && !shared ? builder_.repeat(words, std::nullopt, 0, grammar::kUnbounded)
                                : words;
    }
    const NodeId first = together({text(open), body});
    if (!several || shared) return first;
    const std::string between = form_.tagged ? "" : "\n";
    const NodeId next = together({text(between + open), body});
    return together({first, builder_.repeat(next, std::nullopt, 0, kCallsMax - 1)});
  }

  const GenerationRequest& request_;
  const CallForm& form_;
  const ToolFormat& format_;
  const text::Tokenizer& tokenizer_;
  const bool free_words_;
  Builder builder_;
};

}  // namespace

ApiResult<CallGrammar> call_grammar(const GenerationRequest& request, const ToolFormat& format,
                                    const text::Tokenizer& tokenizer, bool marked_words) {
  if (request.tools.empty() || request.tool_choice.use == ToolUse::kNone) return CallGrammar{};
  if (request.grammar != nullptr && request.tool_choice.use == ToolUse::kAuto) {
    return ApiError{ErrorKind::kInvalidRequest,
                    "tool_choice: an answer of a form (response_format, output_config.format) is "
                    "not supported beside tools that the model may choose to call; force a call, "
                    "or set tool_choice to none",
                    "tool_choice", "unsupported_parameter", ""};
  }
  return Composer(request, format, tokenizer, marked_words).compose();
}

}  // namespace pagewise::server::tools
