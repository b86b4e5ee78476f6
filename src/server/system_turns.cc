// SPDX-License-Identifier: Apache-2.0
#include "server/system_turns.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace pagewise::server {
namespace {

bool is_inner_system(const std::vector<Turn>& turns, std::size_t turn) {
  return turn > 0 && turns[turn].role == "system" && turns[turn - 1].role == "user";
}

}  // namespace

bool has_inner_system_turn(const GenerationRequest& request) {
  for (std::size_t i = 0; i < request.turns.size(); ++i) {
    if (is_inner_system(request.turns, i)) return true;
  }
  return false;
}

bool loses_inner_system_turn(const GenerationRequest& request,
                             const text::ProvenancedText& rendered, int32_t first_origin) {
  std::set<int32_t> wanted;
  int32_t origin = first_origin;
  for (std::size_t i = 0; i < request.turns.size(); ++i) {
    for (std::size_t b = 0; b < request.turns[i].blocks.size(); ++b, ++origin) {
      if (is_inner_system(request.turns, i)) wanted.insert(origin);
    }
  }
  if (wanted.empty()) return false;
  for (const text::OriginSpan& span : rendered.spans) {
    if (span.end > span.begin) wanted.erase(span.origin);
  }
  return !wanted.empty();
}

GenerationRequest with_system_in_user_turns(GenerationRequest request) {
  std::vector<Turn> turns;
  turns.reserve(request.turns.size());
  for (Turn& turn : request.turns) {
    // Two in a row cannot be: the parser joins turns of one role.
    if (turn.role == "system" && !turns.empty() && turns.back().role == "user") {
      std::move(turn.blocks.begin(), turn.blocks.end(), std::back_inserter(turns.back().blocks));
    } else {
      turns.push_back(std::move(turn));
    }
  }
  request.turns = std::move(turns);
  return request;
}

}  // namespace pagewise::server
