// SPDX-License-Identifier: Apache-2.0
// `cache_control` on content blocks: reading one marker, and the rules over all of a request's
// (reference B1-B5).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "server/fields.h"
#include "server/generation.h"

namespace pagewise::server {

inline constexpr std::size_t kMarkersMax = 4;

/// The marker of one block; nullopt when absent or null. Unknown keys inside it are ignored.
std::optional<engine::LeaseClass> parse_cache_control(Fields& fields, const json::object& holder,
                                                      std::string_view path);

/// A place where a marker may stand, in prompt order (tools, system, messages).
struct MarkerSite {
  std::optional<engine::LeaseClass>* marker = nullptr;
  std::string path;
};

/// At most four; no 1h after a 5m. `automatic` is the top-level marker: it goes onto the last site,
/// takes one of the four, and has no effect where the same marker already stands.
void check_markers(Fields& fields, const std::vector<MarkerSite>& sites,
                   std::optional<engine::LeaseClass> automatic);

}  // namespace pagewise::server
