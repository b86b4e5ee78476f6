// SPDX-License-Identifier: Apache-2.0
// An answer in one piece that somebody else's thread finds: what the API asks the engine between
// two steps.
#pragma once

#include <functional>
#include <memory>

#include "server/http.h"

namespace pagewise::server {

/// Says that the answer is found, and how to write it; once, from any thread, possibly before
/// `begin` has returned. Writing happens where the exchange is polled, or never when the client has
/// left.
using Answered = std::function<void(std::function<HttpResponse()> write)>;

/// `begin` is called when the exchange starts. `stopping` is the answer when the server stops
/// first.
std::unique_ptr<Exchange> make_late_answer(std::function<void(Answered)> begin,
                                           HttpResponse stopping);

}  // namespace pagewise::server
