// SPDX-License-Identifier: Apache-2.0
#include "server/openai/parse_common.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "server/json_text.h"

namespace pagewise::server::openai {
namespace {

constexpr int64_t kChoicesMax = 128;  // the vendor's own bound
constexpr std::size_t kBiasesMax = 4096;
constexpr double kBiasMax = 100;
constexpr double kRepetitionPenaltyMax = 1000;

/// For a message: what somebody sent may be long.
std::string shortened(std::string_view text) {
  constexpr std::size_t kMost = 40;
  return text.size() <= kMost ? std::string(text) : valid_utf8(text.substr(0, kMost)) + "...";
}

void parse_penalties(Fields& fields, const json::object& body, sampling::Params& params) {
  if (const auto v = fields.number(body, "", "frequency_penalty", -2, 2))
    params.frequency_penalty = static_cast<float>(*v);
  if (const auto v = fields.number(body, "", "presence_penalty", -2, 2))
    params.presence_penalty = static_cast<float>(*v);
  if (const auto v = fields.number(body, "", "repetition_penalty", 0, kRepetitionPenaltyMax)) {
    params.repetition_penalty = static_cast<float>(*v);
    if (!(params.repetition_penalty > 0)) {
      fields.invalid("repetition_penalty", "must be greater than 0", "decimal_below_min_value");
    }
  }
}

/// {"TOKEN ID": BIAS, ...}. What it says of a key or value names both.
void parse_logit_bias(Fields& fields, const json::object& body, uint32_t vocab_size,
                      sampling::Params& params) {
  const json::object* biases = fields.object(body, "", "logit_bias");
  if (biases == nullptr) return;
  const auto refuse = [&](std::string message) {
    fields.refuse("logit_bias", "logit_bias: " + std::move(message));
  };
  if (biases->size() > kBiasesMax) {
    return refuse(fmt::format("has {} entries, at most {} are taken", biases->size(), kBiasesMax));
  }
  for (const auto& [key, value] : *biases) {
    const std::string_view text(key);
    uint32_t id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    // One spelling for each id, so that no two keys can mean the same token.
    const bool is_id = error == std::errc() && end == text.data() + text.size() &&
                       (text == "0" || text.front() != '0');
    if (!is_id || id >= vocab_size) {
      return refuse(fmt::format("'{}' is no token id of this model, which are 0 to {}",
                                shortened(text), vocab_size - 1));
    }
    const double bias = value.is_number() ? value.to_number<double>() : kBiasMax + 1;
    if (!(std::abs(bias) <= kBiasMax)) {
      return refuse(fmt::format("the bias of token {} must be a number from {} to {}", id,
                                -kBiasMax, kBiasMax));
    }
    if (bias != 0) {
      params.logit_bias.push_back({TokenId(static_cast<int32_t>(id)), static_cast<float>(bias)});
    }
  }
}

void parse_sampling(Fields& fields, const json::object& body, const ParseLimits& limits,
                    GenerationRequest& request) {
  sampling::Params& params = request.sampling;
  if (const auto v = fields.number(body, "", "temperature", 0, 2))
    params.temperature = static_cast<float>(*v);
  if (const auto v = fields.number(body, "", "top_p", 0, 1)) params.top_p = static_cast<float>(*v);
  if (const auto v = fields.number(body, "", "min_p", 0, 1)) params.min_p = static_cast<float>(*v);
  // -1 is other servers' way to say "off".
  if (const auto v = fields.integer(body, "", "top_k", -1, std::numeric_limits<int32_t>::max())) {
    params.top_k = static_cast<uint32_t>(std::max<int64_t>(*v, 0));
  }
  if (const json::value* seed = Fields::find(body, "seed")) {
    if (seed->is_int64()) {
      params.seed = static_cast<uint64_t>(seed->get_int64());
    } else if (seed->is_uint64()) {
      params.seed = seed->get_uint64();
    } else {
      fields.wrong_type("seed", "an integer");
    }
    request.seed_given = true;
  }
  request.stops = fields.strings(body, "stop", true);
  request.ignore_eos = fields.boolean(body, "", "ignore_eos").value_or(false);
  parse_penalties(fields, body, params);
  parse_logit_bias(fields, body, limits.vocab_size, params);
}

}  // namespace

std::optional<uint32_t> parse_choices(Fields& fields, const json::object& body,
                                      std::string_view name, const ParseLimits& limits) {
  const bool bounded_here = limits.choices_max < kChoicesMax;
  const int64_t vendor_max = bounded_here ? std::numeric_limits<int64_t>::max() : kChoicesMax;
  const auto n = fields.integer(body, "", name, 1, vendor_max);
  if (!n) return std::nullopt;
  if (bounded_here && *n > limits.choices_max) {
    fields.invalid(name,
                   fmt::format("must be at most {}, the sequences that this server runs at once "
                               "(its flag --max-seqs)",
                               limits.choices_max),
                   "integer_above_max_value");
    return std::nullopt;
  }
  return static_cast<uint32_t>(*n);
}

void parse_common(Fields& fields, const json::object& body, const ParseLimits& limits,
                  GenerationRequest& request) {
  if (const auto model = fields.string(body, "", "model")) {
    request.model = *model;
  } else {
    fields.missing("model");
  }
  parse_sampling(fields, body, limits, request);
  if (const auto n = parse_choices(fields, body, "n", limits)) request.choices = *n;
  request.stream = fields.boolean(body, "", "stream").value_or(false);
  if (const json::object* options = fields.object(body, "", "stream_options")) {
    if (!request.stream) {
      fields.refuse("stream_options", "stream_options: only allowed when 'stream' is true");
    }
    request.include_usage =
        fields.boolean(*options, "stream_options", "include_usage").value_or(false);
  }
  request.use_cache = fields.boolean(body, "", "cache_prompt").value_or(true);
  request.cache_salt = fields.string(body, "", "cache_salt").value_or("");
}

}  // namespace pagewise::server::openai
