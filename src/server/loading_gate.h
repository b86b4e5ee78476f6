// SPDX-License-Identifier: Apache-2.0
// Stands before the API while the model is loaded: everyone, health probes too, hears 503 and when
// to come back.
#pragma once

#include <atomic>

#include "server/http.h"
#include "server/id_source.h"

namespace pagewise::server {

/// Thread: open() once, from any thread; the rest as Handler says.
class LoadingGate final : public Handler {
 public:
  explicit LoadingGate(uint64_t seed) : ids_(seed) {}

  /// From now on `api` answers; it outlives the gate's use.
  void open(Handler& api) { api_.store(&api); }
  bool is_open() const { return api_.load() != nullptr; }

  std::optional<HttpResponse> begin(HttpRequest& request) override;
  Outcome handle(HttpRequest&& request) override;
  HttpResponse read_failed(const HttpRequest& request, ReadFailure failure) override;

 private:
  HttpResponse refuse(HttpRequest& request);

  std::atomic<Handler*> api_{nullptr};
  IdSource ids_;
};

}  // namespace pagewise::server
