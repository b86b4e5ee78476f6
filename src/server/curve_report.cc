// SPDX-License-Identifier: Apache-2.0
#include "server/curve_report.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <string_view>

namespace pagewise::server {
namespace {

using engine::CacheCurve;
using engine::CurveFigures;
using engine::kCurveFactors;

constexpr std::array<std::string_view, kCurveFactors.size()> kFactorWords = {
    "half the memory", "this", "twice", "four times"};
static_assert(kCurveFactors == std::array{0.5, 1.0, 2.0, 4.0});

/// To a hundredth of a percent: more than any of it means.
double rounded(double rate) { return std::round(rate * 1e4) / 1e4; }

double percent(double rate) { return 100 * rate; }

/// Why there is no prediction; none: there is one.
std::optional<std::string> why_none(const engine::CurveReport& report) {
  if (!report.prefix_cache) {
    return "the prefix cache is off: start without --no-prefix-cache";
  }
  if (!report.figures) return "the curve is off: start without --cache-curve off";
  if (report.figures->enough) return std::nullopt;
  if (report.figures->requests < CacheCurve::kRequestsMin) {
    return fmt::format(
        "too little traffic to tell: {} requests have looked into the cache, {} are needed",
        report.figures->requests, CacheCurve::kRequestsMin);
  }
  return fmt::format(
      "too little traffic to tell: fewer than {} blocks of a pool of this size have been followed",
      CacheCurve::kLookUpsMin);
}

/// Tokens of memory as bytes of all layer groups.
uint64_t bytes_of(double tokens, const engine::CurveReport& report) {
  const auto bytes = static_cast<double>(report.pool.bytes());
  return static_cast<uint64_t>(
      std::llround(bytes * tokens / static_cast<double>(report.figures->pool_tokens)));
}

json::object size_json(double tokens, double hit_rate, const engine::CurveReport& report) {
  return {{"tokens", static_cast<uint64_t>(tokens)},
          {"bytes", bytes_of(tokens, report)},
          {"hit_rate", rounded(hit_rate)}};
}

}  // namespace

std::string curve_summary(const engine::CurveReport& report) {
  if (const auto reason = why_none(report)) return *reason;
  const CurveFigures& figures = *report.figures;
  std::string out = fmt::format("{:.0f} % of prompt tokens were read from the cache; predicted: ",
                                percent(figures.hit_rate));
  for (std::size_t i = 0; i < kCurveFactors.size(); ++i) {
    out += fmt::format("{}{:.0f} % with {}", i == 0 ? "" : ", ", percent(figures.predicted[i]),
                       kFactorWords[i]);
  }
  return out;
}

json::object curve_json(const engine::CurveReport& report) {
  json::object out{{"object", "cache.curve"}, {"pool_bytes", report.pool.bytes()}};
  const std::optional<std::string> reason = why_none(report);
  out["summary"] = curve_summary(report);
  out["enough"] = !reason;
  json::array predictions, points;
  if (report.figures) {
    const CurveFigures& figures = *report.figures;
    out["pool_tokens"] = figures.pool_tokens;
    out["requests"] = figures.requests;
    out["prompt_tokens"] = figures.prompt_tokens;
    out["requests_counted"] = std::round(figures.requests_counted);
    out["hit_rate"] = rounded(figures.hit_rate);
    out["followed_share"] = figures.followed_share;
    out["history_tokens"] = figures.history_tokens;
    for (std::size_t i = 0; i < kCurveFactors.size() && !reason; ++i) {
      json::object one = size_json(kCurveFactors[i] * static_cast<double>(figures.pool_tokens),
                                   figures.predicted[i], report);
      one["memory"] = fmt::format("{:g}x", kCurveFactors[i]);
      predictions.push_back(std::move(one));
    }
    for (const kv::CurvePoint& point : figures.points) {
      points.push_back(size_json(static_cast<double>(point.tokens), point.hit_rate, report));
    }
  }
  out["predictions"] = std::move(predictions);
  out["points"] = std::move(points);
  return out;
}

}  // namespace pagewise::server
