// SPDX-License-Identifier: Apache-2.0
// Answers of /v1/chat/completions and /v1/completions. Source: api-reference C3-C6.
#pragma once

#include <memory>

#include "server/respond.h"

namespace pagewise::server::openai {

std::unique_ptr<StreamWriter> make_stream_writer(ResponseContext context);
std::unique_ptr<WholeWriter> make_whole_writer(ResponseContext context);

}  // namespace pagewise::server::openai
