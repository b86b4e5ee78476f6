// SPDX-License-Identifier: Apache-2.0
// The table of routes of both APIs: which path is served, by which method, and who may ask.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/http.h"

namespace pagewise::server {

enum class Route : uint8_t {
  kChat,
  kCompletion,
  kMessages,
  kCountTokens,
  kModels,
  kModel,
  kTokenize,
  kDetokenize,
  kCacheExplain,
  kHealth,
  kReady,
  kMetrics,
  kCacheStats,
  kCacheCurve,
  kCacheClear,
  kAdminKv,
  kVersion,
  kRoot,
};

enum class Methods : uint8_t { kGet, kPost, kGetOrPost };

enum class Access : uint8_t {
  kOpen,   // asks for no key: probes carry none
  kKey,    // any key of the key file
  kAdmin,  // a key marked so; without a key file, programs on this machine
};

struct RouteRow {
  std::string_view path;
  Route route;
  Methods methods;
  Access access;
  bool with_v1;  // also under /v1
  std::string_view label;
};

/// "GET, HEAD", for the allow header. HEAD goes wherever GET does.
std::string_view spelled(Methods methods);
bool takes(Methods methods, std::string_view method);

/// nullptr: no such route.
const RouteRow* find_route(std::string_view path);

/// Of a path that find_route gave kModel for: the model's name in it.
std::string model_in_path(std::string_view path);

/// Whose error shapes a request wants: Anthropic's on its routes and with its version header (D1).
Surface surface_of(const HttpRequest& request);

}  // namespace pagewise::server
