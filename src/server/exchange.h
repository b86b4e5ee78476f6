// SPDX-License-Identifier: Apache-2.0
// One generated answer on its way from the engine to a client: collects what the engine reports,
// writes it in the API's form, keeps waiting clients informed, and tells log and metrics how it
// ended. An answer to several prompts is several requests of the engine, which begin and end as
// one: one refusal refuses all, one failure ends all, and figures are sums.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/request.h"
#include "server/api_error.h"
#include "server/http.h"
#include "server/key_limits.h"
#include "server/respond.h"
#include "telemetry/metrics.h"

namespace pagewise::server {

/// The engine's entry points.
struct EnginePort {
  std::function<Result<RequestId>(engine::Request, std::shared_ptr<engine::RequestSink>)> submit;
  std::function<void(RequestId)> cancel;
  /// Engine::look_up.
  std::function<void(engine::LookUp, std::function<void(Result<engine::LookedUp>)>)> look_up;
};

/// Headers that every answer of the API carries.
std::vector<HttpHeader> base_headers(std::string_view request_id);
HttpResponse json_response(int status, const json::value& body, std::string_view request_id);
HttpResponse error_response(const ApiError& error, Surface surface, std::string_view request_id);

struct ExchangeSetup {
  EnginePort engine;
  std::vector<engine::Request> requests;  // one a prompt, as many as the context says
  ResponseContext context;
  Surface surface = Surface::kOpenAi;
  bool stream = false;
  std::string model_name;    // the real one: header x-model
  std::string route;         // for the log line: "messages"
  std::string key_name;      // for the log line; may be empty
  KeyLimits::Ticket ticket;  // given back when the request has ended
  TimeNs received_at = 0;
  TimeNs tokenize_ns = 0;
  const Clock* clock = nullptr;
  telemetry::Metrics* metrics = nullptr;
  std::function<void(std::string_view)> log;  // one line a request
  // Who else wants to know; on the network thread.
  std::function<void(const engine::Admission&)> admitted;
  std::function<void(const engine::Admission&, const engine::Finished&)>
      finished;  // not when failed
};

std::unique_ptr<Exchange> make_exchange(ExchangeSetup setup);

/// The log line of design section 10; no text of the request is in it.
struct LogFacts {
  std::string_view request_id;
  std::string_view route;
  int status = 200;
  engine::Admission admission;
  engine::Finished finished;
  uint32_t choices = 1;
  std::string_view stop;
  std::string_view key_name;  // empty: not shown
};
std::string log_line(const LogFacts& facts);

}  // namespace pagewise::server
