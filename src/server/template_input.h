// SPDX-License-Identifier: Apache-2.0
// What a request says to the chat template beside the words of its messages: switches of the
// template's own, documents, and fields of messages that some templates read.
#pragma once

#include <string_view>

#include "base/json.h"
#include "server/fields.h"
#include "server/generation.h"

namespace pagewise::server {

/// `chat_template_kwargs`, `documents` and the refusal of `chat_template`: the names that other
/// servers have for them, on every route that renders messages. Complains into `fields`.
TemplateInput parse_template_input(Fields& fields, const json::object& body);

/// The names that templates have for one switch, whether to think: most families; Granite and
/// DeepSeek; Command A.
inline constexpr std::string_view kThinkingSwitches[] = {"enable_thinking", "thinking",
                                                         "reasoning"};

/// That switch under all its names, unless the request itself gives it under one of them.
void set_thinking(TemplateInput& chat, bool think);
/// `reasoning_effort` of one API, `output_config.effort` of the other. "none" also switches
/// thinking off.
void set_reasoning_effort(TemplateInput& chat, std::string_view effort);

/// The fields of a message that are not its role, its content or the API's own. null is absent.
/// `reasoning` is the newer name of `reasoning_content`: a template finds either under both.
json::object message_fields(Fields& fields, const json::object& message, std::string_view path);

}  // namespace pagewise::server
