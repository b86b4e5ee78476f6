// SPDX-License-Identifier: Apache-2.0
// Answers of /v1/messages. Source: api-reference A6, A7, A9, B7.
#pragma once

#include <memory>

#include "server/respond.h"

namespace pagewise::server::anthropic {

std::unique_ptr<StreamWriter> make_stream_writer(ResponseContext context);
std::unique_ptr<WholeWriter> make_whole_writer(ResponseContext context);

}  // namespace pagewise::server::anthropic
