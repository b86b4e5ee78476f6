// SPDX-License-Identifier: Apache-2.0
// From two prompts to the likely cause of the miss. A pure function of what the two say; nothing of
// a cache, a clock or a tokenizer is in it.
//
// The first difference decides: what stands behind it could not have been read anyway. In order:
//
//   the same texts in other turns or roles               template
//   a spelled beginning-of-sequence token                bos
//   nothing but white space                              white_space
//   a JSON value, a list or lines, permuted              tool_order, key_order (else moved)
//   a piece that changes by itself                       time_stamp, date, id, counter
//   markup around the same words                         template
//   anything else with shared text behind it             moved
//   nothing of this, but another model                   model
//   anything else                                        no cause: an honest, different request
//
// Where people ask their questions, in the last message, a difference is the normal case. There a
// changing piece must be announced as such or have much shared text behind it, and everything else
// must have much shared text behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "server/explain/cause.h"

namespace pagewise::server::explain {

struct Evidence {
  const Document& before;
  const Document& after;
  /// Tokens of `after` behind the first diverging one that stand in `before`, too.
  uint32_t shared_behind = 0;
  /// The two prompts' tokens part: not only does one go on where the other ends.
  bool tokens_part = true;
  std::string_view bos;  // the model's own spelling; may be empty
};

struct Finding {
  std::optional<Cause> cause;
  std::size_t block = 0;   // of `after`: the first that differs; its size when none does
  std::size_t offset = 0;  // bytes of that block that agree
  /// Share of the text behind the first difference that fixing the cause would make readable, as
  /// far as `shared_behind` cannot tell: 0 to 1.
  double readable_share = 0;
};

Finding classify(const Evidence& evidence);

}  // namespace pagewise::server::explain
