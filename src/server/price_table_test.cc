// SPDX-License-Identifier: Apache-2.0
#include "server/price_table.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/ledger_report.h"

namespace pagewise::server {
namespace {

using engine::TokenUse;

PriceTable table(const std::string& models) {
  auto made =
      PriceTable::from_text(R"({"currency": "EUR", "models": [)" + models + "]}", "prices.json");
  EXPECT_TRUE(made.has_value()) << made.status().error().message;
  return std::move(made).value();
}

std::string price(const std::string& model, double read = 0.1) {
  return R"({"model": ")" + model +
         R"(", "input": 4, "output": 20, "write_5m": 1.25, "write_1h": 2, "read": )" +
         std::to_string(read) + "}";
}

std::string refusal(std::string_view text) {
  const auto made = PriceTable::from_text(text, "prices.json");
  EXPECT_FALSE(made.has_value());
  return made.has_value() ? "" : made.error().message;
}

TEST(PriceTable, TakesTheFirstPatternThatMatchesTheAskedName) {
  const PriceTable prices =
      table(price("claude-opus-*") + "," + price("claude-*") + "," + price("gpt-5.?"));
  EXPECT_EQ(prices.currency(), "EUR");
  EXPECT_EQ(prices.tariffs(), 4U);
  EXPECT_EQ(prices.tariff_of("claude-opus-4-5"), 1U);
  EXPECT_EQ(prices.tariff_of("claude-haiku-4-5"), 2U);
  EXPECT_EQ(prices.tariff_of("gpt-5.6"), 3U);
  EXPECT_EQ(prices.tariff_of("gpt-5"), 0U);
  EXPECT_EQ(prices.price(0), nullptr);
  EXPECT_EQ(prices.price(3)->model, "gpt-5.?");
  EXPECT_EQ(prices.price(4), nullptr);
  EXPECT_EQ(PriceTable().tariffs(), 1U);
}

TEST(PriceTable, SaysFileLineAndWhatIsWrong) {
  const std::string good = price("a");
  EXPECT_EQ(refusal("{\n\"currency\": \"EUR\",\n\"models\": [1,]\n}").substr(0, 31),
            "prices.json:3: not valid JSON a");
  EXPECT_EQ(refusal("[]"),
            "prices.json:1: a price table is one JSON object with 'currency' and 'models'");
  EXPECT_EQ(refusal(R"({"models": [)" + good + "]}"), "prices.json:1: 'currency' is missing");
  EXPECT_EQ(refusal(R"({"currency": "", "models": [)" + good + "]}"),
            "prices.json:1: 'currency' must be a text that is not empty");
  EXPECT_EQ(refusal(R"({"currency": "EUR", "models": []})"),
            "prices.json:1: 'models' must be a list with at least one model's prices");
  EXPECT_EQ(refusal(R"({"currency": "EUR", "model": []})"),
            "prices.json:1: 'model' is not a field here; there are currency, per_tokens, sources, "
            "models");
  EXPECT_EQ(refusal(R"({"currency": "EUR", "per_tokens": 0, "models": [)" + good + "]}"),
            "prices.json:1: 'per_tokens' must be a number from 0 to 1000000000 and not 0, not 0");
  EXPECT_EQ(refusal(R"({"currency": "EUR", "sources": [{}], "models": [)" + good + "]}"),
            "prices.json:1: 'sources' must be a list of texts");
  // The line is the entry's, also behind texts with brackets and quotes in them.
  const std::string head = "{\"currency\": \"{[\\\"\",\n\"models\": [\n" + good + ",\n";
  EXPECT_EQ(refusal(head + R"({"model": "b", "input": 4}]})"),
            "prices.json:4: 'output' is missing");
  EXPECT_EQ(refusal(head + price("b", -1) + "]}").substr(0, 69),
            "prices.json:4: 'read' must be a number from 0 to 1000000000, not -1E0");
  EXPECT_EQ(refusal(head + "7]}"), "prices.json:1: every entry of 'models' must be an object");
  EXPECT_EQ(refusal(head + good + "]}"),
            "prices.json:4: 'a' stands there twice; the first would always be taken");
  EXPECT_EQ(refusal(head + R"({"model": "b", "price": 4}]})").substr(0, 46),
            "prices.json:4: 'price' is not a field here; th");
}

TEST(PriceTable, NamesAFileThatIsNotThereAndADirectory) {
  EXPECT_EQ(PriceTable::from_file("no/such.json").error().message,
            "no/such.json: No such file or directory");
  EXPECT_EQ(PriceTable::from_file(".").error().message,
            ".: a directory; give a JSON file of prices");
}

engine::LedgerPage page_of(std::vector<TokenUse> by_tariff) {
  engine::LedgerPage page;
  page.by_tariff = std::move(by_tariff);
  return page;
}

TEST(PriceTable, CostsWhatTheArithmeticOfTheContractSays) {  // B8
  const PriceTable prices = table(price("*"));
  // 3 requests, computed and reused; input, 5m, 1h, read; output.
  const Cost cost =
      prices.cost(page_of({{}, {3, 600'000, 400'000, 100'000, 200'000, 300'000, 400'000, 50'000}}));
  EXPECT_DOUBLE_EQ(cost.contractual, 4 * (0.1 + 1.25 * 0.2 + 2 * 0.3 + 0.1 * 0.4) + 20 * 0.05);
  EXPECT_DOUBLE_EQ(cost.uncached, 4 * 1.0 + 20 * 0.05);
  EXPECT_DOUBLE_EQ(cost.physical, 4 * (0.6 + 0.1 * 0.4) + 20 * 0.05);
}

TEST(PriceTable, BreaksEvenOnTheSecondUseOfMinutesAndTheThirdOfAnHour) {  // B8
  const PriceTable prices = table(price("*"));
  const auto cheaper = [&](bool hour, uint64_t uses) {
    const uint64_t tokens = 1'000'000;
    const uint64_t read = (uses - 1) * tokens;
    const TokenUse use{uses, tokens, read, 0, hour ? 0 : tokens, hour ? tokens : 0, read, 0};
    const Cost cost = prices.cost(page_of({{}, use}));
    return cost.contractual < cost.uncached;
  };
  EXPECT_FALSE(cheaper(false, 1));
  EXPECT_TRUE(cheaper(false, 2));
  EXPECT_FALSE(cheaper(true, 2));
  EXPECT_TRUE(cheaper(true, 3));
}

TEST(PriceTable, LeavesModelsWithoutAPriceOutAndCountsThem) {
  const PriceTable prices = table(price("a"));
  const engine::LedgerPage page = page_of({{2, 10, 0, 10, 0, 0, 0, 5}, {}});
  EXPECT_EQ(prices.cost(page).contractual, 0);
  EXPECT_EQ(PriceTable::unpriced(page), 2U);
}

// ---- The report

engine::PrefixUse prefix(uint32_t tokens, uint64_t created_5m, uint64_t created_1h, uint32_t reads,
                         uint32_t tariff = 1) {
  engine::PrefixUse out;
  out.digest = tokens;
  out.tokens = out.own = tokens;
  out.tariff = tariff;
  out.writes = 1;
  out.reads = reads;
  out.created_5m = created_5m;
  out.created_1h = created_1h;
  out.read = uint64_t{reads} * tokens;
  return out;
}

std::vector<int64_t> listed(const json::object& ledger) {
  std::vector<int64_t> tokens;
  for (const json::value& entry : ledger.at("never_paid_back").as_array())
    tokens.push_back(entry.at("tokens").to_number<int64_t>());
  return tokens;
}

TEST(LedgerReport, ListsPrefixesThatNeverPaidBackTheWorstFirst) {
  engine::AccountReport account;
  account.account = "a";
  account.ledger = page_of({{}, {}});
  account.ledger.prefixes = {
      prefix(100, 100, 0, 0),    // 25 lost
      prefix(300, 300, 0, 1),    // 75 - 270: paid
      prefix(200, 0, 200, 1),    // 200 - 180: 20 lost
      prefix(400, 0, 400, 2),    // 400 - 720: paid
      prefix(500, 500, 0, 0),    // 125 lost
      prefix(600, 600, 0, 0, 0)  // no price: unread
  };
  const json::object priced = ledger_json(account, 5'000'000'000, table(price("*")));
  EXPECT_EQ(listed(priced), (std::vector<int64_t>{500, 100, 200, 600}));
  EXPECT_EQ(priced.at("never_paid_back_total").to_number<int>(), 4);
  const json::value& worst = priced.at("never_paid_back").at(0);
  EXPECT_EQ(worst.at("loss_tokens").to_number<double>(), 125);
  EXPECT_EQ(worst.at("loss").to_number<double>(), 0.0005);
  EXPECT_EQ(worst.at("seconds_unused").to_number<double>(), 5);
  // Without a price table only what was never read is sure to be lost.
  const json::object plain = ledger_json(account, 0, PriceTable());
  EXPECT_EQ(listed(plain), (std::vector<int64_t>{600, 500, 100}));
  EXPECT_TRUE(plain.at("cost").is_null());
}

TEST(LedgerReport, ListsABoundedNumberAndTellsHowManyThereAre) {
  engine::AccountReport account;
  account.ledger = page_of({{}});
  for (uint32_t i = 1; i <= 100; ++i) account.ledger.prefixes.push_back(prefix(i, i, 0, 0, 0));
  const json::object ledger = ledger_json(account, 0, PriceTable());
  EXPECT_EQ(listed(ledger).size(), 20U);
  EXPECT_EQ(listed(ledger).front(), 100);
  EXPECT_EQ(ledger.at("never_paid_back_total").to_number<int>(), 100);
}

TEST(LedgerReport, SaysAtTheEndWhatItCameTo) {
  engine::CacheReport report;
  EXPECT_EQ(ledger_summary(report, PriceTable()), "ledger: no requests");
  engine::AccountReport small, large;
  small.account = "key:1";
  small.ledger = page_of({{1, 10, 0, 10, 0, 0, 0, 1}, {}});
  large.account = "tenant:acme";
  large.ledger = page_of({{}, {3, 60, 40, 10, 20, 30, 40, 5}});
  large.ledger.prefill_saved_ns = 2'500'000'000;
  large.ledger.prefixes = {prefix(20, 20, 0, 0)};
  large.leases_broken = 2;
  report.accounts = {small, large};
  EXPECT_EQ(
      ledger_summary(report, table(price("*"))),
      "ledger: 4 requests, 110 prompt tokens: 70 computed, 40 reused (36 %), 2.5 s of prefill "
      "saved; cost 0.0005 EUR (uncached 0.0005), requests without a price: 1\n"
      "  tenant:acme: input 10, created 20 (5m) + 30 (1h), read 40, output 5, broken leases 2; "
      "cost 0.0005 EUR (uncached 0.0005)\n"
      "  tenant:acme: 1 marked prefixes never paid back; the worst has 20 tokens, written 1 "
      "times and read 0 times\n"
      "  key:1: input 10, created 0 (5m) + 0 (1h), read 0, output 1, broken leases 0; cost "
      "0.0000 EUR (uncached 0.0000), requests without a price: 1");
}

}  // namespace
}  // namespace pagewise::server
