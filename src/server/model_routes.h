// SPDX-License-Identifier: Apache-2.0
// What /v1/models says.
#pragma once

#include <string_view>

#include "base/json.h"
#include "server/api_error.h"
#include "server/served_model.h"

namespace pagewise::server {

/// One model under one of its names; satisfies both SDKs (D1).
json::object model_object(const ServedModel& model, std::string_view id);
/// All its plain names.
json::object model_list(const ServedModel& model);
ApiError unknown_model(std::string_view asked);

}  // namespace pagewise::server
