// SPDX-License-Identifier: Apache-2.0
// Tests of what takes an answer apart: the same answer in pieces that end anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"

namespace pagewise::server {

struct Split {
  std::string thought, text;
  uint32_t tokens = 0;
};

/// `text` through a splitter of thoughts, in pieces that end at the given places; a token each, and
/// `finish` with the last one.
template <typename Splitter>
Split split_in_pieces(Splitter splitter, std::string_view text,
                      const std::vector<std::size_t>& cuts, engine::FinishReason finish) {
  Split out;
  std::size_t at = 0;
  uint32_t tokens = 0;
  const auto push = [&](std::string_view piece, engine::FinishReason reason) {
    engine::Delta delta;
    delta.text = piece;
    delta.completion_tokens = ++tokens;
    delta.finish = reason;
    out.thought += splitter.take(delta);
    out.text += delta.text;
  };
  for (const std::size_t cut : cuts) {
    push(text.substr(at, cut - at), engine::FinishReason::kNone);
    at = cut;
  }
  push(text.substr(at), finish);
  out.tokens = splitter.thought_tokens();
  return out;
}

}  // namespace pagewise::server
