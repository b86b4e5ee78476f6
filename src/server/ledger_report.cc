// SPDX-License-Identifier: Apache-2.0
#include "server/ledger_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

namespace pagewise::server {
namespace {

constexpr std::size_t kPrefixesListed = 20;
/// A server of a thousand keys ends with a screen, not with a thousand lines.
constexpr std::size_t kAccountsSaid = 10;

double seconds(TimeNs ns) { return static_cast<double>(ns / 1'000'000) / 1e3; }
/// Costs are sums of many small products: their last digits are noise.
double rounded(double amount) { return std::round(amount * 1e9) / 1e9; }

struct Unpaid {
  const engine::PrefixUse* prefix = nullptr;
  double tokens = 0;  // input tokens that the creation cost more than its reads saved
  double amount = 0;  // the same in the table's currency; 0 without a price
};

/// A prefix's creation premium against what reads of its part saved. Without a price there is no
/// premium to know: then one that was never read has surely not paid, and no other is said to.
std::vector<Unpaid> never_paid_back(const engine::LedgerPage& page, const PriceTable& prices) {
  std::vector<Unpaid> unpaid;
  for (const engine::PrefixUse& prefix : page.prefixes) {
    const Price* price = prices.price(prefix.tariff);
    const auto created = static_cast<double>(prefix.created_5m + prefix.created_1h);
    if (price == nullptr) {
      if (prefix.reads == 0) unpaid.push_back({&prefix, created, 0});
      continue;
    }
    const double premium = (price->write_5m - 1) * static_cast<double>(prefix.created_5m) +
                           (price->write_1h - 1) * static_cast<double>(prefix.created_1h);
    const double loss = premium - (1 - price->read) * static_cast<double>(prefix.read);
    if (loss > 0) unpaid.push_back({&prefix, loss, loss * price->input * prices.per_token()});
  }
  std::sort(unpaid.begin(), unpaid.end(), [](const Unpaid& a, const Unpaid& b) {
    if (a.amount != b.amount) return a.amount > b.amount;
    if (a.tokens != b.tokens) return a.tokens > b.tokens;
    return a.prefix->digest < b.prefix->digest;
  });
  return unpaid;
}

json::object use_json(const engine::TokenUse& use) {
  return {{"requests", use.requests},
          {"physical", json::object{{"computed", use.computed}, {"reused", use.reused}}},
          {"contractual", json::object{{"input", use.input},
                                       {"created_5m", use.created_5m},
                                       {"created_1h", use.created_1h},
                                       {"read", use.read},
                                       {"output", use.generated}}}};
}

json::value cost_json(const engine::LedgerPage& page, const PriceTable& prices) {
  if (!prices.configured()) return nullptr;
  const Cost cost = prices.cost(page);
  return json::object{{"currency", prices.currency()},
                      {"uncached", rounded(cost.uncached)},
                      {"contractual", rounded(cost.contractual)},
                      {"physical", rounded(cost.physical)},
                      {"requests_unpriced", PriceTable::unpriced(page)}};
}

json::object prefix_json(const Unpaid& unpaid, TimeNs now, const PriceTable& prices) {
  const engine::PrefixUse& prefix = *unpaid.prefix;
  json::object out{{"prefix", fmt::format("{:016x}", prefix.digest)},
                   {"tokens", prefix.tokens},
                   {"ttl", prefix.lease == engine::LeaseClass::k1h ? "1h" : "5m"},
                   {"writes", prefix.writes},
                   {"reads", prefix.reads},
                   {"created", prefix.created_5m + prefix.created_1h},
                   {"read", prefix.read},
                   {"seconds_unused", seconds(std::max<TimeNs>(now - prefix.used, 0))}};
  if (prices.price(prefix.tariff) != nullptr) {
    out["loss_tokens"] = rounded(unpaid.tokens);
    out["loss"] = rounded(unpaid.amount);
  }
  return out;
}

engine::LedgerPage sum_of(const engine::CacheReport& report, uint64_t& leases_broken) {
  engine::LedgerPage sum;
  for (const engine::AccountReport& account : report.accounts) {
    const engine::LedgerPage& page = account.ledger;
    if (sum.by_tariff.size() < page.by_tariff.size()) sum.by_tariff.resize(page.by_tariff.size());
    for (std::size_t t = 0; t < page.by_tariff.size(); ++t) sum.by_tariff[t] += page.by_tariff[t];
    sum.prefill_saved_ns += page.prefill_saved_ns;
    leases_broken += account.leases_broken;
  }
  return sum;
}

std::string cost_text(const engine::LedgerPage& page, const PriceTable& prices) {
  if (!prices.configured()) return "";
  const Cost cost = prices.cost(page);
  const uint64_t unpriced = PriceTable::unpriced(page);
  return fmt::format("; cost {:.4f} {} (uncached {:.4f}){}", cost.contractual, prices.currency(),
                     cost.uncached,
                     unpriced == 0 ? "" : fmt::format(", requests without a price: {}", unpriced));
}

}  // namespace

json::object ledger_json(const engine::AccountReport& account, TimeNs now,
                         const PriceTable& prices) {
  const engine::LedgerPage& page = account.ledger;
  json::object out = use_json(page.total());
  out["leases_broken"] = account.leases_broken;
  out["prefill_seconds_saved"] = seconds(page.prefill_saved_ns);
  out["cost"] = cost_json(page, prices);
  const std::vector<Unpaid> unpaid = never_paid_back(page, prices);
  json::array listed;
  for (std::size_t i = 0; i < std::min(unpaid.size(), kPrefixesListed); ++i)
    listed.push_back(prefix_json(unpaid[i], now, prices));
  out["never_paid_back"] = std::move(listed);
  out["never_paid_back_total"] = unpaid.size();
  out["unread_forgotten"] =
      json::object{{"prefixes", page.unread_forgotten}, {"tokens", page.unread_forgotten_tokens}};
  return out;
}

json::object ledger_sum_json(const engine::CacheReport& report, const PriceTable& prices) {
  uint64_t leases_broken = 0;
  const engine::LedgerPage sum = sum_of(report, leases_broken);
  json::object out = use_json(sum.total());
  out["leases_broken"] = leases_broken;
  out["prefill_seconds_saved"] = seconds(sum.prefill_saved_ns);
  out["cost"] = cost_json(sum, prices);
  return out;
}

std::string ledger_summary(const engine::CacheReport& report, const PriceTable& prices) {
  uint64_t all_broken = 0;
  const engine::LedgerPage sum = sum_of(report, all_broken);
  const engine::TokenUse all = sum.total();
  if (all.requests == 0) return "ledger: no requests";
  std::string out = fmt::format(
      "ledger: {} requests, {} prompt tokens: {} computed, {} reused ({:.0f} %), {:.1f} s of "
      "prefill saved{}",
      all.requests, all.prompt(), all.computed, all.reused,
      100.0 * static_cast<double>(all.reused) /
          static_cast<double>(std::max<uint64_t>(all.prompt(), 1)),
      static_cast<double>(sum.prefill_saved_ns) * 1e-9, cost_text(sum, prices));
  std::vector<const engine::AccountReport*> accounts;
  for (const engine::AccountReport& account : report.accounts) {
    if (account.ledger.total().requests > 0) accounts.push_back(&account);
  }
  std::stable_sort(accounts.begin(), accounts.end(), [](const auto* a, const auto* b) {
    return a->ledger.total().prompt() > b->ledger.total().prompt();
  });
  for (std::size_t i = 0; i < accounts.size(); ++i) {
    if (i == kAccountsSaid) {
      fmt::format_to(std::back_inserter(out), "\n  and {} more accounts", accounts.size() - i);
      break;
    }
    const engine::AccountReport& account = *accounts[i];
    const engine::TokenUse use = account.ledger.total();
    fmt::format_to(std::back_inserter(out),
                   "\n  {}: input {}, created {} (5m) + {} (1h), read {}, output {}, broken leases "
                   "{}{}",
                   account.account, use.input, use.created_5m, use.created_1h, use.read,
                   use.generated, account.leases_broken, cost_text(account.ledger, prices));
    const std::vector<Unpaid> unpaid = never_paid_back(account.ledger, prices);
    if (unpaid.empty()) continue;
    const engine::PrefixUse& worst = *unpaid.front().prefix;
    fmt::format_to(std::back_inserter(out),
                   "\n  {}: {} marked prefixes never paid back; the worst has {} tokens, written "
                   "{} times and read {} times",
                   account.account, unpaid.size(), worst.tokens, worst.writes, worst.reads);
  }
  return out;
}

}  // namespace pagewise::server
