// SPDX-License-Identifier: Apache-2.0
// Who may change how the server works where no keys are configured: programs on this machine, and
// nobody whom one of them only passes on.
#pragma once

#include <string>

#include "server/http.h"

namespace pagewise::server {

/// Empty when the request comes from a program on this machine itself; else why it does not count
/// as such: it came over the network, a proxy forwarded it (x-forwarded-for and its like), or a web
/// page sent it (an origin other than the server, or a host name that is not this machine's).
std::string why_not_local(const HttpRequest& request);

}  // namespace pagewise::server
