// SPDX-License-Identifier: Apache-2.0
// Turns, tools and calls as a chat template gets them. What the template does not write itself is
// put into the text of turns, in one form (docs/tools.md), the same bytes for the same request.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/generation.h"
#include "server/tools/tool_format.h"
#include "text/chat_template.h"

namespace pagewise::server::tools {

/// Origins are numbered in the contract's order: each tool, then each block of each turn.
struct Conversation {
  std::vector<text::ChatMessage> messages;
  std::vector<text::ChatValue> tools;
  std::vector<engine::CacheMarker> markers;
  std::vector<bool> joined;  // by origin: engine::CachePosition::joined
  int32_t origins = 0;       // how many
};

Conversation make_conversation(const GenerationRequest& request, const ToolFormat& format);

/// Nine letters and digits for a call's id, the same for the same id; an id of nine stays.
std::string short_id(std::string_view id);

}  // namespace pagewise::server::tools
