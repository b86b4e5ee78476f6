// SPDX-License-Identifier: Apache-2.0
// What tokens would cost: a file of prices per model name, read once at start. Prices and cache
// multipliers are data and not constants, because they differ by model and change (reference B8).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/ledger.h"

namespace pagewise::server {

/// Prices of the models that a pattern names, for as many tokens as the table says. The multipliers
/// are of the input price.
struct Price {
  std::string model;  // glob over the asked name
  double input = 0, output = 0;
  double write_5m = 0, write_1h = 0, read = 0;
};

/// What a ledger's tokens come to. All in the table's currency.
struct Cost {
  double uncached = 0;     // every prompt token at the input price, no cache
  double contractual = 0;  // as hosted caching bills the usage that was reported
  double physical = 0;  // what was computed at the input price, what was reused at the read price
};

class PriceTable {
 public:
  /// Errors: one line with file, line, what is wrong.
  static Result<PriceTable> from_file(const std::string& path);
  static Result<PriceTable> from_text(std::string_view text, const std::string& path);

  bool configured() const { return !prices_.empty(); }
  const std::string& currency() const { return currency_; }
  const std::vector<Price>& prices() const { return prices_; }

  /// The engine's number of the first price whose pattern takes the name; 0: none does.
  uint32_t tariff_of(std::string_view model) const;
  /// Tariffs that the engine must tell apart: no price, and each of the table.
  uint32_t tariffs() const { return static_cast<uint32_t>(prices_.size()) + 1; }
  /// nullptr for tariff 0.
  const Price* price(uint32_t tariff) const {
    return tariff == 0 || tariff > prices_.size() ? nullptr : &prices_[tariff - 1];
  }
  /// Of one token at `price` = 1 in the table's unit.
  double per_token() const { return 1.0 / per_tokens_; }

  Cost cost(const engine::LedgerPage& page) const;
  /// Requests of models that no pattern takes: they are in no cost.
  static uint64_t unpriced(const engine::LedgerPage& page) {
    return page.by_tariff.empty() ? 0 : page.by_tariff.front().requests;
  }

 private:
  std::string currency_;
  double per_tokens_ = 1'000'000;
  std::vector<Price> prices_;
};

}  // namespace pagewise::server
