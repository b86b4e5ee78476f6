// SPDX-License-Identifier: Apache-2.0
// What operators see and change: /v1/cache/stats, /v1/cache/clear and /v1/admin/kv. Bodies in, the
// engine's reports as JSON out; who may ask is api.cc's affair. /v1/cache/curve: curve_report.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "engine/operations.h"
#include "server/api_error.h"
#include "server/api_keys.h"
#include "server/price_table.h"

namespace pagewise::server {

/// What the routes need of the engine; `done` as Engine has it.
struct OperatorPort {
  template <typename T>
  using Done = std::function<void(Result<T>)>;
  std::function<void(Done<engine::PoolReport>)> report_pool;
  /// Sizes the pool anew for so many bytes, as at the start. Errors: kInvalidArgument for what
  /// cannot be, kPoolExhausted for what cannot be now; both with numbers.
  std::function<void(uint64_t bytes, Done<engine::PoolReport>)> resize_pool;
  std::function<void(Done<engine::CacheReport>)> report_cache;
  std::function<void(Done<engine::CurveReport>)> report_curve;
  std::function<void(std::optional<std::string>, Done<engine::Cleared>)> clear_cache;
};

/// `{"memory": "1GiB" | bytes}`; nothing else.
ApiResult<uint64_t> parse_resize(const json::object& body);
/// `{}` or `{"namespace": NAME}`; none: all of them.
ApiResult<std::optional<std::string>> parse_clear(const json::object& body);

json::object pool_json(const engine::PoolReport& report);
json::object cleared_json(const engine::Cleared& cleared);
/// Everything, and each account under the name that the key file gives it.
json::object stats_json(const engine::CacheReport& report, const ApiKeys& keys,
                        const PriceTable& prices);
/// One account's own.
json::object account_json(const engine::CacheReport& report, std::string_view account,
                          const PriceTable& prices);

/// An operator's call that failed: kPoolExhausted is a conflict here, not a full queue.
ApiError operator_error(const Error& error);

}  // namespace pagewise::server
