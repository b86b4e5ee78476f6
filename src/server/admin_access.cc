// SPDX-License-Identifier: Apache-2.0
#include "server/admin_access.h"

#include <fmt/format.h>

#include <string_view>

namespace pagewise::server {
namespace {

/// Proxies add one of these; on loopback the peer's address alone would then let everybody in.
constexpr std::string_view kForwarded[] = {"forwarded",
                                           "x-forwarded-for",
                                           "x-forwarded-host",
                                           "x-forwarded-proto",
                                           "x-forwarded-server",
                                           "x-real-ip",
                                           "x-client-ip",
                                           "x-cluster-client-ip",
                                           "true-client-ip",
                                           "cf-connecting-ip",
                                           "via"};

/// "localhost:8080" -> "localhost", "[::1]:8080" -> "[::1]".
std::string_view without_port(std::string_view host) {
  const std::size_t bracket = host.find(']');
  return host.substr(0, host.find(':', bracket == std::string_view::npos ? 0 : bracket));
}

bool is_this_machine(std::string_view host) {
  const std::string_view name = without_port(host);
  return name == "localhost" || name == "[::1]" ||
         (name.starts_with("127.") &&
          name.find_first_not_of("0123456789.") == std::string_view::npos);
}

}  // namespace

std::string why_not_local(const HttpRequest& request) {
  if (!request.peer_is_loopback) return "it comes over the network";
  for (const std::string_view name : kForwarded) {
    if (request.header(name) != nullptr) return fmt::format("a proxy forwarded it ({})", name);
  }
  // A page in a browser on this machine can reach loopback, too: by its own origin, or by a name of
  // its own that it lets resolve to 127.0.0.1.
  const std::string* host = request.header("host");
  if (host != nullptr && !is_this_machine(*host)) return "its host is not this machine's loopback";
  const std::string* origin = request.header("origin");
  if (origin != nullptr && (host == nullptr || *origin != "http://" + *host))
    return "a web page of another origin sent it";
  return "";
}

}  // namespace pagewise::server
