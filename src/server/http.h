// SPDX-License-Identifier: Apache-2.0
// HTTP as the API sees it: plain values. How bytes reach a socket is http_server.cc's affair.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"

namespace pagewise::server {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;  // as sent: "GET"
  std::string path;    // without the query string
  std::vector<HttpHeader> headers;
  std::string body;
  TimeNs received_at = 0;         // when the last byte was there
  bool peer_is_loopback = false;  // the connection comes from this machine
  std::string request_id;         // given by the API before the body is read

  /// The first header of this name, any case; nullptr when absent.
  const std::string* header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers;
  std::string body;
};

/// What a running request has for its client since the last look.
struct Progress {
  std::optional<HttpResponse> whole;  // the answer in one piece; nothing follows
  std::optional<HttpResponse> head;   // a stream begins: status and headers, no body
  std::string bytes;                  // of the stream
  bool done = false;
  TimeNs look_again_at = 0;  // even if nothing wakes us; 0: only when woken
};

/// A request that the engine works on. Thread: the network thread; `wake` is called from any.
class Exchange {
 public:
  virtual ~Exchange() = default;  // cancels what still runs
  /// Submits. `wake` may be called until the exchange is gone and shortly after.
  virtual void start(std::function<void()> wake) = 0;
  virtual Progress poll(TimeNs now) = 0;
  /// The client is gone.
  virtual void cancel() = 0;
  /// The server stops: end with an error instead of going on.
  virtual void shut_down() = 0;
};

using Outcome = std::variant<HttpResponse, std::unique_ptr<Exchange>>;

/// What the HTTP server calls.
class Handler {
 public:
  virtual ~Handler() = default;
  /// Once a request's header is read: gives it an id, and refuses what needs no body (route,
  /// method, key). Thread: network.
  virtual std::optional<HttpResponse> begin(HttpRequest& request) = 0;
  /// Thread: any; large bodies come on a worker.
  virtual Outcome handle(HttpRequest&& request) = 0;

  /// Answers to requests that could not be read, or whose handling threw.
  enum class ReadFailure : uint8_t { kMalformed, kBodyTooLarge, kHeaderTooLarge, kInternal };
  virtual HttpResponse read_failed(const HttpRequest& request, ReadFailure failure) = 0;
};

}  // namespace pagewise::server
