// SPDX-License-Identifier: Apache-2.0
// Both APIs on one table of routes: who may ask, what was asked, and what answers it. No sockets
// here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "server/api_keys.h"
#include "server/exchange.h"
#include "server/http.h"
#include "server/operator_routes.h"
#include "server/price_table.h"
#include "server/served_model.h"
#include "telemetry/metrics.h"

namespace pagewise::server {

struct ApiSetup {
  ServedModel model;
  ApiKeys keys;
  PriceTable prices;
  bool strict_markers = false;  // anthropic::ParseOptions
  EnginePort engine;
  OperatorPort operators;
  std::function<telemetry::EngineSnapshot()> snapshot;
  telemetry::Metrics* metrics = nullptr;
  const Clock* clock = nullptr;
  std::function<int64_t()> unix_time_s;
  std::function<void(std::string_view)> log;
  uint64_t random_seed =
      0;  // ids and default sampling seeds; any value that differs from start to start
};

std::unique_ptr<Handler> make_api(ApiSetup setup);

}  // namespace pagewise::server
