// SPDX-License-Identifier: Apache-2.0
// One request to a running server, for commands that ask it something. Plain HTTP only.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http.h"

namespace pagewise::server {

/// "http://HOST[:PORT][/PREFIX]", taken apart.
struct ServerUrl {
  std::string host;  // without the brackets of an IPv6 address
  std::string port = "80";
  std::string prefix;  // "" or "/PREFIX", without a slash at its end
};
/// Errors: kInvalidArgument naming the URL and what is wrong with it.
Result<ServerUrl> parse_server_url(std::string_view url);

struct HttpAnswer {
  int status = 0;
  std::string body;
};

/// Sends a JSON body and waits for the whole answer, on the calling thread. Errors: kIo naming the
/// address (nobody listens, no answer in time, what came is no HTTP).
Result<HttpAnswer> http_post(const ServerUrl& server, std::string_view path,
                             const std::vector<HttpHeader>& headers, std::string_view body,
                             std::chrono::seconds time_limit);

/// The same for what a GET answers.
Result<HttpAnswer> http_get(const ServerUrl& server, std::string_view path,
                            const std::vector<HttpHeader>& headers,
                            std::chrono::seconds time_limit);

}  // namespace pagewise::server
