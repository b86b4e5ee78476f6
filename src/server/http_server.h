// SPDX-License-Identifier: Apache-2.0
// The listener: HTTP/1.1 over TCP on one network thread. Compute happens elsewhere; nothing here
// waits for a slow client on behalf of another.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "server/http.h"

namespace pagewise::server {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any free one
  uint64_t body_bytes_max = 32'000'000;
  uint32_t header_bytes_max = 64 * 1024;
  uint32_t connections_max = 4096;
  uint32_t idle_s_max = 75;     // client pools drop theirs after 5 s; proxies keep theirs for 60
  uint32_t stalled_s_max = 60;  // a body or an answer that does not move
  uint32_t drain_s_max = 5;     // after a signal, for answers that are under way
};

/// Thread: run() is the network thread; stop() from any.
class HttpServer {
 public:
  /// Binds and listens; who connects waits until run(). `clock` outlives the server.
  /// Errors: kIo, naming address and reason (port in use).
  static Result<std::unique_ptr<HttpServer>> listen(const HttpServerOptions& options,
                                                    const Clock& clock);
  ~HttpServer();

  uint16_t port() const;
  /// Serves until SIGINT, SIGTERM or stop(); `handler` outlives the call. Answers under way get
  /// drain_s_max; a second signal ends them at once.
  void run(Handler& handler);
  void stop();

  struct Impl;

 private:
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

/// Whether every address of `host` is this machine's own. Errors: kIo when the name means nothing.
Result<bool> is_loopback(const std::string& host);

}  // namespace pagewise::server
