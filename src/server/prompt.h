// SPDX-License-Identifier: Apache-2.0
// From a parsed request to prompt tokens: template, tokens, and where in them each content block
// ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "server/api_error.h"
#include "server/generation.h"
#include "server/served_model.h"
#include "text/provenance.h"

namespace pagewise::server {

/// The text of a completion's prompt, as an answer repeats it, and where in it each token ends. A
/// text is as it came; of token ids it is what they spell, control tokens included.
struct EchoText {
  std::string bytes;  // whole characters but for the end, where ids may cut one
  std::vector<uint32_t>
      token_ends;  // one a token, ascending; a BOS that was put in front ends at 0
};

/// What the text shows: whole characters.
std::string whole_characters(const EchoText& echo);
/// The bytes behind those: the beginning of a character that the answer may complete.
std::string cut_character(const EchoText& echo);

struct Prompt {
  std::vector<TokenId> tokens;
  EchoText echo;  // only when the request asks for it
  std::vector<engine::CachePosition> positions;
  std::vector<engine::CacheMarker> markers;
  bool thought_open = false;  // it ends inside a thought of the answer
  /// Of a model that answers in channels: what the prompt has of the answer's first message, from
  /// behind <|start|> (channels.h).
  std::string answer_head;
  bool system_lost = false;  // the template has left a system turn out (system_turns.h)
};

/// `index`: which of the request's prompts; an error names it when there are several.
/// Errors: no chat template, the template's own refusal (C15), a prompt that fills the served
/// context (C18); one of more bytes than the context's tokens could hold is not even tokenized.
ApiResult<Prompt> build_prompt(const GenerationRequest& request, const ServedModel& model,
                               std::size_t index = 0);
/// Without the check against the context: for /tokenize and count_tokens, whose texts are bounded
/// by check_countable.
ApiResult<Prompt> build_prompt_unchecked(const GenerationRequest& request,
                                         const ServedModel& model);

/// Texts of more bytes are not tokenized for who only wants to know their tokens, unless the
/// context could hold them: it is a few hundred thousand tokens; what takes longest is a text
/// without white space.
inline constexpr uint64_t kCountedBytesMax = 1 << 20;

/// The 400 for a text that is too long even to be counted, or nothing.
std::optional<ApiError> check_countable(std::size_t bytes, const ServedModel& model,
                                        std::string_view param);

/// The 400 of C18, or nothing. A prompt may have at most context_max - 1 tokens: one is left for
/// the answer.
std::optional<ApiError> check_prompt_fits(std::size_t tokens, const GenerationRequest& request,
                                          const ServedModel& model);

/// For each of `blocks` origins: how many of the tokens lie wholly before or in it. Ascending; an
/// origin that left nothing in the text ends where the one before it ends.
std::vector<engine::CachePosition> block_positions(const text::ProvenancedText& text,
                                                   const std::vector<uint32_t>& token_ends,
                                                   std::size_t blocks);

}  // namespace pagewise::server
