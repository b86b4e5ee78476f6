// SPDX-License-Identifier: Apache-2.0
#include "server/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/channels.h"
#include "server/system_turns.h"
#include "server/tools/conversation.h"
#include "text/detokenizer.h"

namespace pagewise::server {
namespace {

ApiError no_template(const ServedModel& model) {
  return {ErrorKind::kInvalidRequest,
          fmt::format("messages: {}; use /v1/completions with a prompt", model.no_template_reason),
          "messages", "", ""};
}

/// The 400 of C18, or nothing. `count` is how many tokens there are, or at least are.
std::optional<ApiError> check_count(std::size_t count, std::string_view at_least,
                                    const GenerationRequest& request, const ServedModel& model) {
  const uint32_t context = model.context_max, maximum = context - 1;
  // A pre-warm generates nothing and may use the last position too, but one rule is easier to rely
  // on.
  if (count <= maximum) return std::nullopt;
  ApiError error;
  error.code = "context_length_exceeded";
  error.param = request.format == Format::kCompletion ? "prompt" : "messages";
  error.message =
      request.format == Format::kMessages
          ? fmt::format(
                "prompt is too long: {}{} tokens > {} maximum (context {}, one token is "
                "left for the answer)",
                at_least, count, maximum, context)
          : fmt::format(
                "This model's maximum context length is {} tokens; the prompt has {}{} "
                "(prompt is too long: "
                "{}{} tokens > {} maximum, one token is left for the answer).",
                context, at_least, count, at_least, count, maximum);
  return error;
}

/// A text whose tokens could not all be in the context, however long each, is not tokenized at all.
/// Who only counts is told the number for much longer ones.
std::optional<ApiError> check_bytes(std::size_t bytes, const GenerationRequest& request,
                                    const ServedModel& model, bool bounded) {
  if (!bounded) {
    return check_countable(bytes, model, request.format == Format::kCompletion ? "" : "messages");
  }
  if (model.token_bytes_max == 0) return std::nullopt;
  const std::size_t count = (bytes + model.token_bytes_max - 1) / model.token_bytes_max;
  return check_count(count, "at least ", request, model);
}

/// What the template writes behind the last word of the conversation.
std::string_view written_last(const text::ProvenancedText& rendered) {
  uint32_t last = 0;
  for (const text::OriginSpan& span : rendered.spans) {
    if (span.origin != text::kTemplateOrigin) last = std::max(last, span.end);
  }
  return std::string_view(rendered.text).substr(last);
}

/// Of the answer's own beginning: what the template writes last, or what is to be continued. Marks
/// in anybody else's text are text.
bool ends_in_thought(const GenerationRequest& request, const text::ProvenancedText& rendered,
                     const ReasoningSyntax& syntax) {
  if (!syntax) return false;
  if (request.continue_last) {
    std::string answer;
    for (const ContentBlock& block : request.turns.back().blocks) answer += block.text;
    return leaves_thought_open(answer, syntax);
  }
  return leaves_thought_open(written_last(rendered), syntax);
}

/// The head of an answer in channels. One that is held to a form is a message to the client from
/// its first byte: then what the template leaves to the model is written here.
std::string begin_message(const GenerationRequest& request, text::ProvenancedText& rendered) {
  constexpr std::string_view kStart = "<|start|>";
  if (request.continue_last) return std::string(kFinalHead);
  const std::string_view last = written_last(rendered);
  const std::size_t start = last.rfind(kStart);
  if (start == std::string_view::npos) return {};
  std::string head(last.substr(start + kStart.size()));
  const bool held = request.grammar != nullptr && request.tool_choice.use != ToolUse::kRequired;
  if (held && kFinalHead.starts_with(head)) {
    const auto begin = static_cast<uint32_t>(rendered.text.size());
    rendered.text += kFinalHead.substr(head.size());
    rendered.spans.push_back(
        {begin, static_cast<uint32_t>(rendered.text.size()), text::kTemplateOrigin});
    head = kFinalHead;
  }
  return head;
}

ApiResult<Prompt> chat_prompt(const GenerationRequest& request, const ServedModel& model,
                              bool bounded) {
  if (model.chat_template == nullptr) return no_template(model);
  text::ChatInput input;
  input.bos_token = model.bos_token;
  input.eos_token = model.eos_token;
  input.continue_last = request.continue_last;
  input.add_generation_prompt = request.chat.open_answer && !request.continue_last;
  if (model.chat_template->needs_time()) input.now = model.local_time_s();
  Prompt prompt;
  tools::Conversation conversation = tools::make_conversation(request, model.tool_format);
  const int32_t origin = conversation.origins;
  input.messages = std::move(conversation.messages);
  input.tools = std::move(conversation.tools);
  prompt.markers = std::move(conversation.markers);
  if (!request.chat.variables.empty()) input.variables = {request.chat.variables, origin};
  if (!request.chat.documents.empty()) {
    if (!model.chat_template->reads("documents")) {
      return ApiError{ErrorKind::kInvalidRequest,
                      "documents: this model's chat template does not read documents; put their "
                      "text into a message",
                      "documents", "unsupported_parameter", ""};
    }
    input.documents = {request.chat.documents, origin};
  }
  auto rendered = model.chat_template->render(input);
  if (!rendered) {
    ApiError error = to_api_error(rendered.error());
    error.param = "messages";
    return error;
  }
  if (auto error = check_bytes(rendered->text.size(), request, model, bounded)) {
    return *std::move(error);
  }
  if (model.reasoning.channels) {
    prompt.answer_head = begin_message(request, *rendered);
  } else {
    prompt.thought_open = ends_in_thought(request, *rendered, model.reasoning);
  }
  prompt.system_lost =
      loses_inner_system_turn(request, *rendered, static_cast<int32_t>(request.tools.size()));
  text::EncodedText encoded = model.tokenizer->encode(*rendered);
  // The template usually writes BOS itself; exactly one, whoever writes it (C15).
  const auto bos = model.tokenizer->bos();
  if (model.tokenizer->add_bos() && bos &&
      (encoded.tokens.empty() || encoded.tokens.front() != *bos)) {
    encoded.tokens.insert(encoded.tokens.begin(), *bos);
    encoded.ends.insert(encoded.ends.begin(), 0);
  }
  prompt.positions = block_positions(*rendered, encoded.ends, static_cast<std::size_t>(origin));
  for (std::size_t i = 0; i < prompt.positions.size(); ++i) {
    prompt.positions[i].joined = conversation.joined[i];
  }
  prompt.tokens = std::move(encoded.tokens);
  return prompt;
}

/// A text as if the template had written it: it may spell control tokens.
text::ProvenancedText all_trusted(const std::string& text) {
  return {text, {{0, static_cast<uint32_t>(text.size()), text::kTemplateOrigin}}, {}};
}

Prompt ids_prompt(const std::vector<TokenId>& tokens, bool echo, const text::Tokenizer& tokenizer) {
  Prompt prompt;
  prompt.tokens = tokens;
  for (std::size_t i = 0; echo && i < tokens.size(); ++i) {
    prompt.echo.bytes += tokenizer.token_bytes(tokens[i]);
    prompt.echo.token_ends.push_back(static_cast<uint32_t>(prompt.echo.bytes.size()));
  }
  return prompt;
}

ApiResult<Prompt> completion_prompt(const GenerationRequest& request, const PromptInput& input,
                                    const ServedModel& model, bool bounded) {
  const text::Tokenizer& tokenizer = *model.tokenizer;
  if (const auto* tokens = std::get_if<std::vector<TokenId>>(&input)) {
    return ids_prompt(*tokens, request.echo, tokenizer);
  }
  const auto& text = std::get<std::string>(input);
  if (auto error = check_bytes(text.size(), request, model, bounded)) return *std::move(error);
  Prompt prompt;
  // A raw prompt may spell control tokens: that is how people write templates by hand.
  if (request.echo) {
    text::EncodedText encoded = tokenizer.encode(all_trusted(text));
    prompt.tokens = std::move(encoded.tokens);
    prompt.echo = {text, std::move(encoded.ends)};
  } else {
    prompt.tokens = tokenizer.encode(text, true);
  }
  const auto put_in_front = [&](TokenId token) {
    prompt.tokens.insert(prompt.tokens.begin(), token);
    if (request.echo) prompt.echo.token_ends.insert(prompt.echo.token_ends.begin(), 0);
  };
  const auto bos = tokenizer.bos();
  if (tokenizer.add_bos() && bos && (prompt.tokens.empty() || prompt.tokens.front() != *bos)) {
    put_in_front(*bos);
  }
  // An empty prompt is the beginning of a document.
  if (prompt.tokens.empty()) {
    if (const auto start = bos ? bos : tokenizer.eos()) put_in_front(*start);
  }
  // Bytes at the end that have no token are text all the same.
  if (request.echo && !prompt.tokens.empty()) {
    prompt.echo.token_ends.back() = static_cast<uint32_t>(text.size());
  }
  return prompt;
}

/// A system turn that the template refuses or leaves out goes into the user's turn before it. That
/// is the Messages API's promise; the other API leaves it to the template.
ApiResult<Prompt> messages_prompt(const GenerationRequest& request, const ServedModel& model,
                                  bool bounded) {
  auto prompt = chat_prompt(request, model, bounded);
  if (request.format != Format::kMessages || !has_inner_system_turn(request)) return prompt;
  // Only a prompt that fits says what the template did with it.
  if (prompt ? !prompt->system_lost : !prompt.error().code.empty()) return prompt;
  auto folded = chat_prompt(with_system_in_user_turns(request), model, bounded);
  return folded ? folded : prompt;
}

/// `bounded`: a text that cannot fit the context is refused before it is tokenized.
ApiResult<Prompt> make_prompt(const GenerationRequest& request, const ServedModel& model,
                              std::size_t index, bool bounded) {
  return request.format == Format::kCompletion
             ? completion_prompt(request, request.prompts[index], model, bounded)
             : messages_prompt(request, model, bounded);
}

ApiResult<Prompt> build_bounded(const GenerationRequest& request, const ServedModel& model,
                                std::size_t index) {
  auto prompt = make_prompt(request, model, index, true);
  if (!prompt) return prompt;
  if (prompt->tokens.empty()) {
    return ApiError{ErrorKind::kInvalidRequest, "the prompt has no tokens", "prompt", "", ""};
  }
  if (auto error = check_prompt_fits(prompt->tokens.size(), request, model))
    return *std::move(error);
  return prompt;
}

}  // namespace

std::string whole_characters(const EchoText& echo) {
  std::string out;
  text::Utf8Assembler assembler;
  assembler.push(echo.bytes, out);
  return out;
}

std::string cut_character(const EchoText& echo) {
  std::string shown;
  text::Utf8Assembler assembler;
  assembler.push(echo.bytes, shown);
  return std::string(assembler.pending());
}

std::vector<engine::CachePosition> block_positions(const text::ProvenancedText& text,
                                                   const std::vector<uint32_t>& token_ends,
                                                   std::size_t blocks) {
  std::vector<uint32_t> ends(blocks, 0);
  for (const text::OriginSpan& span : text.spans) {
    if (span.origin < 0 || static_cast<std::size_t>(span.origin) >= blocks) continue;
    uint32_t& end = ends[static_cast<std::size_t>(span.origin)];
    end = std::max(end, span.end);
  }
  std::vector<engine::CachePosition> positions;
  positions.reserve(blocks);
  uint32_t reached = 0;
  for (const uint32_t end : ends) {
    reached = std::max(reached, end);
    const auto behind = std::upper_bound(token_ends.begin(), token_ends.end(), reached);
    positions.push_back({static_cast<uint32_t>(behind - token_ends.begin())});
  }
  return positions;
}

std::optional<ApiError> check_countable(std::size_t bytes, const ServedModel& model,
                                        std::string_view param) {
  // What the context might just hold can be counted, whatever its size.
  const uint64_t maximum =
      std::max<uint64_t>(kCountedBytesMax, uint64_t{model.context_max} * model.token_bytes_max);
  if (bytes <= maximum) return std::nullopt;
  return ApiError{ErrorKind::kInvalidRequest,
                  fmt::format("{}{}the text has {} bytes, and at most {} are tokenized only to be "
                              "counted; this model's context is {} tokens",
                              param, param.empty() ? "" : ": ", bytes, maximum, model.context_max),
                  std::string(param), "context_length_exceeded", ""};
}

std::optional<ApiError> check_prompt_fits(std::size_t tokens, const GenerationRequest& request,
                                          const ServedModel& model) {
  return check_count(tokens, "", request, model);
}

ApiResult<Prompt> build_prompt_unchecked(const GenerationRequest& request,
                                         const ServedModel& model) {
  return make_prompt(request, model, 0, false);
}

ApiResult<Prompt> build_prompt(const GenerationRequest& request, const ServedModel& model,
                               std::size_t index) {
  auto prompt = build_bounded(request, model, index);
  if (prompt || request.prompts.size() == 1) return prompt;
  ApiError error = prompt.error();
  error.param = fmt::format("prompt[{}]", index);
  error.message = fmt::format("{}: {}", error.param, error.message);
  return error;
}

}  // namespace pagewise::server
