// SPDX-License-Identifier: Apache-2.0
#include "server/loading_gate.h"

#include <utility>

#include "server/exchange.h"
#include "server/routes.h"

namespace pagewise::server {

HttpResponse LoadingGate::refuse(HttpRequest& request) {
  request.request_id = ids_.id("req_");
  return error_response({ErrorKind::kNotReady, "the model is being loaded", "", "", ""},
                        surface_of(request), request.request_id);
}

std::optional<HttpResponse> LoadingGate::begin(HttpRequest& request) {
  if (Handler* api = api_) return api->begin(request);
  return refuse(request);
}

Outcome LoadingGate::handle(HttpRequest&& request) {
  // Only what begin() let through comes here, so the API is there.
  if (Handler* api = api_) return api->handle(std::move(request));
  return refuse(request);
}

HttpResponse LoadingGate::read_failed(const HttpRequest& request, ReadFailure failure) {
  if (Handler* api = api_) return api->read_failed(request, failure);
  HttpRequest named = request;
  return refuse(named);
}

}  // namespace pagewise::server
