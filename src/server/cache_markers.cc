// SPDX-License-Identifier: Apache-2.0
#include "server/cache_markers.h"

#include <fmt/format.h>

#include <algorithm>

namespace pagewise::server {

using engine::LeaseClass;

std::optional<LeaseClass> parse_cache_control(Fields& fields, const json::object& holder,
                                              std::string_view path) {
  const json::object* marker = fields.object(holder, path, "cache_control");
  if (marker == nullptr) return std::nullopt;
  const std::string here = fields.key(path, "cache_control");
  const auto type = fields.string(*marker, here, "type");
  if (!type) {
    fields.missing(fields.key(here, "type"));
    return std::nullopt;
  }
  if (*type != "ephemeral") {
    fields.invalid(fields.key(here, "type"), "must be 'ephemeral'");
    return std::nullopt;
  }
  const auto ttl = fields.string(*marker, here, "ttl");
  if (!ttl || *ttl == "5m") return LeaseClass::k5m;
  if (*ttl == "1h") return LeaseClass::k1h;
  fields.invalid(fields.key(here, "ttl"), "must be '5m' or '1h'");
  return std::nullopt;
}

void check_markers(Fields& fields, const std::vector<MarkerSite>& sites,
                   std::optional<LeaseClass> automatic) {
  auto found = static_cast<std::size_t>(std::count_if(
      sites.begin(), sites.end(), [](const MarkerSite& site) { return site.marker->has_value(); }));
  std::string automatic_path;
  if (automatic && !sites.empty()) {
    ++found;
    std::optional<LeaseClass>& last = *sites.back().marker;
    if (last && *last != *automatic) {
      fields.refuse("cache_control.ttl",
                    fmt::format("cache_control.ttl: {} already has a marker with another ttl",
                                sites.back().path));
    }
    if (!last) automatic_path = "cache_control";
    last = automatic;
  }
  if (found > kMarkersMax) {
    fields.refuse(
        "cache_control",
        fmt::format("A maximum of {} blocks with cache_control may be provided. Found {}.",
                    kMarkersMax, found));
  }
  bool short_seen = false;
  for (const MarkerSite& site : sites) {
    if (!*site.marker) continue;
    if (**site.marker == LeaseClass::k5m) {
      short_seen = true;
    } else if (short_seen) {
      const bool is_automatic = &site == &sites.back() && !automatic_path.empty();
      const std::string path =
          is_automatic ? "cache_control.ttl" : fields.key(site.path, "cache_control.ttl");
      fields.refuse(path,
                    fmt::format("{}: a ttl='1h' cache_control block must not come after a ttl='5m' "
                                "cache_control block",
                                path));
      return;
    }
  }
}

}  // namespace pagewise::server
