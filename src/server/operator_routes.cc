// SPDX-License-Identifier: Apache-2.0
#include "server/operator_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "server/fields.h"
#include "server/json_text.h"
#include "server/ledger_report.h"

namespace pagewise::server {
namespace {

/// A body has few leases; a cache may have thousands.
constexpr std::size_t kLeasesListed = 100;

/// The first field beside `known`, which is then refused: a misspelt one must not count as absent.
std::optional<ApiError> unknown_field(const json::object& body, std::string_view known) {
  for (const auto& field : body) {
    if (field.key() == known) continue;
    return ApiError{ErrorKind::kInvalidRequest,
                    fmt::format("{}: not a field of this route, which takes '{}'",
                                valid_utf8(field.key()), known),
                    std::string(valid_utf8(field.key())), "unknown_parameter", ""};
  }
  return std::nullopt;
}

double share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

json::object tokens_json(const engine::TokenUse& tokens) {
  return {{"computed", tokens.computed},
          {"reused", tokens.reused},
          {"created", tokens.created()},
          {"read", tokens.read}};
}

json::object report_json(const engine::AccountReport& report, TimeNs now,
                         const PriceTable& prices) {
  const engine::TokenUse tokens = report.ledger.total();
  json::array leases;
  for (const kv::LeaseUse& lease : report.leases) {
    if (leases.size() == kLeasesListed) break;
    leases.push_back(
        json::object{{"tokens", lease.tokens},
                     {"ttl", lease.lease == kv::LeaseClass::k1h ? "1h" : "5m"},
                     {"seconds_left", static_cast<double>(lease.left_ns / 1'000'000) / 1e3}});
  }
  return {{"namespace", report.account},
          {"blocks", json::object{{"live", report.blocks_live},
                                  {"cached", report.blocks_cached},
                                  {"leased", report.blocks_leased}}},
          {"tokens", tokens_json(tokens)},
          {"hit_share", share(tokens.reused, tokens.prompt())},
          {"ledger", ledger_json(report, now, prices)},
          {"leases", std::move(leases)},
          {"leases_total", report.leases.size()}};
}

json::object blocks_json(const kv::BlockCounts& blocks) {
  return {{"pool", blocks.pool},
          {"live", blocks.live},
          {"cached", blocks.cached},
          {"free", blocks.free},
          {"leased", blocks.leased}};
}

/// Names of an account's keys.
json::array key_names(std::string_view account, const ApiKeys& keys) {
  json::array names;
  for (const ApiKey& key : keys.all()) {
    if (key.account() == account && !key.name.empty()) names.push_back(json::string(key.name));
  }
  return names;
}

}  // namespace

ApiResult<uint64_t> parse_resize(const json::object& body) {
  if (auto unknown = unknown_field(body, "memory")) return *std::move(unknown);
  Fields fields(Surface::kOpenAi);
  const json::value* memory = Fields::find(body, "memory");
  if (memory == nullptr) {
    fields.missing("memory");
  } else if (memory->is_string()) {
    const Result<uint64_t> bytes = parse_size(memory->get_string());
    if (bytes) return *bytes;
    fields.invalid("memory", bytes.error().message);
  } else if (const auto bytes = fields.integer(body, "", "memory", 1, kIntegerMax)) {
    return static_cast<uint64_t>(*bytes);
  }
  return fields.error();
}

ApiResult<std::optional<std::string>> parse_clear(const json::object& body) {
  if (auto unknown = unknown_field(body, "namespace")) return *std::move(unknown);
  Fields fields(Surface::kOpenAi);
  const auto name = fields.string(body, "", "namespace");
  if (name && name->empty()) fields.invalid("namespace", "must not be empty; leave it out for all");
  if (fields.failed()) return fields.error();
  if (!name) return std::optional<std::string>();
  return std::optional<std::string>(*name);
}

json::object pool_json(const engine::PoolReport& report) {
  json::array groups;
  for (const engine::PoolGroup& group : report.groups) {
    json::object one = blocks_json(group.blocks);
    one["window"] = group.window;
    one["block_bytes"] = group.block_bytes;
    groups.push_back(std::move(one));
  }
  return {{"object", "kv_pool"},
          {"memory", report.bytes()},
          {"memory_text", format_size(report.bytes())},
          {"memory_committed", report.committed_bytes},
          {"context_max", report.context_max},
          {"block_tokens", report.block_tokens},
          {"blocks", blocks_json(report.blocks())},
          {"groups", std::move(groups)},
          {"requests", report.requests}};
}

json::object cleared_json(const engine::Cleared& cleared) {
  return {{"object", "cache.clear"},
          {"blocks_cleared", cleared.blocks},
          {"leases_dropped", cleared.leases},
          {"blocks_live", cleared.blocks_live}};
}

json::object stats_json(const engine::CacheReport& report, const ApiKeys& keys,
                        const PriceTable& prices) {
  engine::TokenUse sum;
  std::size_t leases = 0;
  json::array accounts;
  for (const engine::AccountReport& account : report.accounts) {
    sum += account.ledger.total();
    leases += account.leases.size();
    json::object one = report_json(account, report.now, prices);
    one["keys"] = key_names(account.account, keys);
    accounts.push_back(std::move(one));
  }
  return {{"object", "cache.stats"},
          {"blocks", blocks_json(report.pool.blocks())},
          {"tokens", tokens_json(sum)},
          {"hit_share", share(sum.reused, sum.prompt())},
          {"ledger", ledger_sum_json(report, prices)},
          {"leases_total", leases},
          {"namespaces", std::move(accounts)}};
}

json::object account_json(const engine::CacheReport& report, std::string_view account,
                          const PriceTable& prices) {
  engine::AccountReport own;
  own.account = account;
  for (const engine::AccountReport& candidate : report.accounts) {
    if (candidate.account == account) own = candidate;
  }
  json::object out{{"object", "cache.stats"}};
  for (auto& field : report_json(own, report.now, prices))
    out.emplace(field.key(), std::move(field.value()));
  return out;
}

ApiError operator_error(const Error& error) {
  ApiError out = to_api_error(error);
  if (error.code == ErrorCode::kPoolExhausted) out.kind = ErrorKind::kConflict;
  return out;
}

}  // namespace pagewise::server
