// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, for people and routers that count before they ask.
#pragma once

#include "base/json.h"
#include "server/api_error.h"
#include "server/served_model.h"

namespace pagewise::server {

/// The bodies of llama.cpp (`content`) and of vLLM (`prompt` or `messages`).
ApiResult<json::object> tokenize(const ServedModel& model, const json::object& body);
ApiResult<json::object> detokenize(const ServedModel& model, const json::object& body);

}  // namespace pagewise::server
