// SPDX-License-Identifier: Apache-2.0
#include "server/price_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/contains.h"
#include "base/json.h"
#include "base/text_file.h"
#include "server/json_text.h"
#include "server/served_model.h"

namespace pagewise::server {
namespace {

/// The ledger keeps one line of counts for each, in every account.
constexpr std::size_t kPricesMax = 256;
constexpr double kNumberMax = 1e9;

std::size_t line_of(std::string_view text, std::size_t byte) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size()));
  return 1 + static_cast<std::size_t>(std::count(text.begin(), end, '\n'));
}

/// Where a text stops being JSON.
std::size_t json_ends_at(std::string_view text) {
  try {
    json::stream_parser parser;
    json::error_code error;
    return parser.write_some(text.data(), text.size(), error);
  } catch (const std::exception&) {
    return 0;
  }
}

/// The line on which each object inside the root's arrays begins: a parsed value has forgotten it.
/// Requires: valid JSON, whose only such objects are the models'.
std::vector<std::size_t> lines_of_models(std::string_view text) {
  std::vector<std::size_t> lines;
  std::size_t line = 1;
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (c == '{' && depth == 2) lines.push_back(line);
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return lines;
}

/// Reads one field after the other and keeps the first complaint.
class Reader {
 public:
  Reader(const std::string& path, std::size_t line) : path_(path), line_(line) {}

  void complain(std::string_view what) {
    if (!error_) {
      error_ = Error{ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", path_, line_, what)};
    }
  }
  std::string text(const json::object& object, std::string_view key) {
    const json::value* value = object.if_contains(key);
    if (value == nullptr) {
      complain(fmt::format("'{}' is missing", key));
    } else if (!value->is_string() || value->get_string().empty()) {
      complain(fmt::format("'{}' must be a text that is not empty", key));
    } else {
      return std::string(value->get_string());
    }
    return "";
  }
  double number(const json::object& object, std::string_view key, bool positive = false) {
    const json::value* value = object.if_contains(key);
    if (value == nullptr) {
      complain(fmt::format("'{}' is missing", key));
      return 0;
    }
    const double number = value->is_number() ? value->to_number<double>() : -1;
    if (!(number >= 0 && number <= kNumberMax) || (positive && number == 0)) {
      complain(fmt::format("'{}' must be a number from 0 to {:.0f}{}, not {}", key, kNumberMax,
                           positive ? " and not 0" : "", json::serialize(*value)));
      return 0;
    }
    return number;
  }
  void only(const json::object& object, std::initializer_list<std::string_view> known) {
    for (const auto& field : object) {
      if (contains(known, std::string_view(field.key()))) continue;
      complain(fmt::format("'{}' is not a field here; there are {}", valid_utf8(field.key()),
                           fmt::join(known, ", ")));
    }
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const std::string& path_;
  const std::size_t line_;
  std::optional<Error> error_;
};

}  // namespace

Result<PriceTable> PriceTable::from_file(const std::string& path) {
  PW_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "a JSON file of prices"));
  return from_text(text, path);
}

Result<PriceTable> PriceTable::from_text(std::string_view text, const std::string& path) {
  const Result<json::value> parsed = parse_json(text);
  Reader root(path, parsed ? 1 : line_of(text, json_ends_at(text)));
  if (!parsed) root.complain(parsed.error().message);
  if (parsed && !parsed->is_object())
    root.complain("a price table is one JSON object with 'currency' and 'models'");
  if (root.error()) return *root.error();

  const json::object& object = parsed->get_object();
  PriceTable table;
  root.only(object, {"currency", "per_tokens", "sources", "models"});
  table.currency_ = root.text(object, "currency");
  if (object.contains("per_tokens")) table.per_tokens_ = root.number(object, "per_tokens", true);
  if (const json::value* sources = object.if_contains("sources")) {
    const bool texts = sources->is_array() &&
                       std::all_of(sources->get_array().begin(), sources->get_array().end(),
                                   [](const json::value& source) { return source.is_string(); });
    if (!texts) root.complain("'sources' must be a list of texts");
  }
  const json::value* models = object.if_contains("models");
  if (models == nullptr || !models->is_array() || models->get_array().empty()) {
    root.complain("'models' must be a list with at least one model's prices");
  } else if (models->get_array().size() > kPricesMax) {
    root.complain(fmt::format("'models' has {} entries, at most {} can be told apart",
                              models->get_array().size(), kPricesMax));
  }
  if (root.error()) return *root.error();

  const std::vector<std::size_t> lines = lines_of_models(text);
  std::size_t objects = 0;
  for (const json::value& entry : models->get_array()) {
    const std::size_t line = entry.is_object() && objects < lines.size() ? lines[objects] : 1;
    Reader reader(path, line);
    if (!entry.is_object()) {
      reader.complain("every entry of 'models' must be an object");
      return *reader.error();
    }
    ++objects;
    const json::object& fields = entry.get_object();
    Price price;
    reader.only(fields, {"model", "input", "output", "write_5m", "write_1h", "read", "source"});
    price.model = reader.text(fields, "model");
    price.input = reader.number(fields, "input");
    price.output = reader.number(fields, "output");
    price.write_5m = reader.number(fields, "write_5m");
    price.write_1h = reader.number(fields, "write_1h");
    price.read = reader.number(fields, "read");
    if (fields.contains("source")) reader.text(fields, "source");
    for (const Price& before : table.prices_) {
      if (before.model == price.model)
        reader.complain(fmt::format("'{}' stands there twice; the first would always be taken",
                                    valid_utf8(price.model)));
    }
    if (reader.error()) return *reader.error();
    table.prices_.push_back(std::move(price));
  }
  return table;
}

uint32_t PriceTable::tariff_of(std::string_view model) const {
  for (std::size_t i = 0; i < prices_.size(); ++i) {
    if (glob_match(prices_[i].model, model)) return static_cast<uint32_t>(i) + 1;
  }
  return 0;
}

Cost PriceTable::cost(const engine::LedgerPage& page) const {
  const auto tokens = [](uint64_t count) { return static_cast<double>(count); };
  Cost sum;
  for (uint32_t tariff = 0; tariff < page.by_tariff.size(); ++tariff) {
    const Price* price = this->price(tariff);
    if (price == nullptr) continue;
    const engine::TokenUse& use = page.by_tariff[tariff];
    const double output = price->output * tokens(use.generated);
    sum.uncached += price->input * tokens(use.prompt()) + output;
    sum.contractual +=
        price->input * (tokens(use.input) + price->write_5m * tokens(use.created_5m) +
                        price->write_1h * tokens(use.created_1h) + price->read * tokens(use.read)) +
        output;
    sum.physical +=
        price->input * (tokens(use.computed) + price->read * tokens(use.reused)) + output;
  }
  sum.uncached *= per_token();
  sum.contractual *= per_token();
  sum.physical *= per_token();
  return sum;
}

}  // namespace pagewise::server
