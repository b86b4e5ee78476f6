// SPDX-License-Identifier: Apache-2.0
// The ledger as /v1/cache/stats shows it, and as a server's last words.
#pragma once

#include <string>

#include "base/json.h"
#include "engine/operations.h"
#include "server/price_table.h"

namespace pagewise::server {

/// One account's ledger. Without a price table `cost` is null.
json::object ledger_json(const engine::AccountReport& account, TimeNs now,
                         const PriceTable& prices);
/// Of all accounts together, without their prefixes.
json::object ledger_sum_json(const engine::CacheReport& report, const PriceTable& prices);

/// Several lines for the log when the server ends; no text of any prompt.
std::string ledger_summary(const engine::CacheReport& report, const PriceTable& prices);

}  // namespace pagewise::server
