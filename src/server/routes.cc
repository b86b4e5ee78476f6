// SPDX-License-Identifier: Apache-2.0
#include "server/routes.h"

#include "base/percent.h"

namespace pagewise::server {
namespace {

constexpr RouteRow kRoutes[] = {
    {"/chat/completions", Route::kChat, Methods::kPost, Access::kKey, true, "chat"},
    {"/completions", Route::kCompletion, Methods::kPost, Access::kKey, true, "completions"},
    {"/v1/messages", Route::kMessages, Methods::kPost, Access::kKey, false, "messages"},
    {"/v1/messages/count_tokens", Route::kCountTokens, Methods::kPost, Access::kKey, false,
     "count_tokens"},
    {"/models", Route::kModels, Methods::kGet, Access::kKey, true, "models"},
    {"/tokenize", Route::kTokenize, Methods::kPost, Access::kKey, true, "tokenize"},
    {"/detokenize", Route::kDetokenize, Methods::kPost, Access::kKey, true, "detokenize"},
    {"/v1/cache/explain", Route::kCacheExplain, Methods::kPost, Access::kKey, false, "explain"},
    {"/health", Route::kHealth, Methods::kGet, Access::kOpen, false, "health"},
    {"/healthz", Route::kHealth, Methods::kGet, Access::kOpen, false, "health"},
    {"/ready", Route::kReady, Methods::kGet, Access::kOpen, false, "ready"},
    {"/metrics", Route::kMetrics, Methods::kGet, Access::kKey, false, "metrics"},
    {"/v1/cache/stats", Route::kCacheStats, Methods::kGet, Access::kKey, false, "cache_stats"},
    {"/v1/cache/curve", Route::kCacheCurve, Methods::kGet, Access::kAdmin, false, "cache_curve"},
    {"/v1/cache/clear", Route::kCacheClear, Methods::kPost, Access::kAdmin, false, "cache_clear"},
    {"/v1/admin/kv", Route::kAdminKv, Methods::kGetOrPost, Access::kAdmin, false, "admin_kv"},
    {"/version", Route::kVersion, Methods::kGet, Access::kOpen, false, "version"},
    {"/", Route::kRoot, Methods::kGet, Access::kOpen, false, "root"},
    {"/api/hello", Route::kHealth, Methods::kGet, Access::kOpen, false, "hello"},
};
constexpr RouteRow kModelRow = {"/models/",   Route::kModel, Methods::kGet,
                                Access::kKey, true,          "models"};

}  // namespace

std::string_view spelled(Methods methods) {
  switch (methods) {
    case Methods::kGet:
      return "GET, HEAD";
    case Methods::kPost:
      return "POST";
    case Methods::kGetOrPost:
      return "GET, HEAD, POST";
  }
  return "";
}

bool takes(Methods methods, std::string_view method) {
  if (method == "POST") return methods != Methods::kGet;
  return methods != Methods::kPost && (method == "GET" || method == "HEAD");
}

const RouteRow* find_route(std::string_view path) {
  const std::string_view bare = path.starts_with("/v1/") ? path.substr(3) : path;
  for (const RouteRow& row : kRoutes) {
    if (path == row.path || (row.with_v1 && bare == row.path)) return &row;
  }
  if (bare.starts_with(kModelRow.path) && bare.size() > kModelRow.path.size()) return &kModelRow;
  return nullptr;
}

std::string model_in_path(std::string_view path) {
  return percent_decoded(path.substr(path.find(kModelRow.path) + kModelRow.path.size()));
}

Surface surface_of(const HttpRequest& request) {
  const bool anthropic =
      request.path.starts_with("/v1/messages") || request.header("anthropic-version") != nullptr;
  return anthropic ? Surface::kAnthropic : Surface::kOpenAi;
}

}  // namespace pagewise::server
