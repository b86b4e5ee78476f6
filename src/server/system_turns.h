// SPDX-License-Identifier: Apache-2.0
// System messages in the middle of a conversation (Messages API, reference A3) for chat templates
// that refuse them there or leave them out: what they say then stands at the end of the user's turn
// that they follow, rather than nowhere.
#pragma once

#include "server/generation.h"
#include "text/provenance.h"

namespace pagewise::server {

/// Whether there is a system turn that follows a user's.
bool has_inner_system_turn(const GenerationRequest& request);

/// Whether some of those turns' text is nowhere in `rendered`. Blocks are numbered from
/// `first_origin` through all turns.
bool loses_inner_system_turn(const GenerationRequest& request,
                             const text::ProvenancedText& rendered, int32_t first_origin);

/// The same request with the blocks of those turns behind those of the user's turn.
GenerationRequest with_system_in_user_turns(GenerationRequest request);

}  // namespace pagewise::server
