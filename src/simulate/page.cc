// SPDX-License-Identifier: Apache-2.0
#include "simulate/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/xml.h"

namespace pagewise::simulate {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Pagewise: a simulated trace</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 0 0 1.5em; }
td, th { padding: .15em 1em .15em 0; text-align: left; vertical-align: top; font-weight: normal; }
td { text-align: right; font-variant-numeric: tabular-nums; }
h2 { font-size: 1.1em; margin: 1.5em 0 .3em; }
svg text { font: 12px system-ui, sans-serif; fill: #444; }
</style></head><body>
<h1>A simulated trace</h1>
)";

/// The same number as in JSON, written as people do.
std::string plain(const json::value& value) {
  if (value.is_double()) return fmt::format("{}", value.get_double());
  if (value.is_string()) return xml_escaped(std::string_view(value.get_string()));
  return json::serialize(value);
}

/// Names of nested fields side by side: "first_token_ms p50".
void add_rows(std::string_view name, const json::value& value, std::string& out) {
  if (const json::object* object = value.if_object()) {
    for (const auto& member : *object) {
      const std::string_view key(member.key().data(), member.key().size());
      add_rows(name.empty() ? std::string(key) : fmt::format("{} {}", name, key), member.value(),
               out);
    }
    return;
  }
  out += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", xml_escaped(name), plain(value));
}

std::string table(std::string_view title, const json::value& value) {
  std::string rows;
  add_rows("", value, rows);
  return fmt::format("<h2>{}</h2>\n<table>\n{}</table>\n", xml_escaped(title), rows);
}

double number(const json::value& value) {
  return value.is_number() ? value.to_number<double>() : 0;
}

// ---- Charts ----

constexpr double kWidth = 640, kHeight = 300, kLeft = 50, kBottom = 40, kTop = 10, kRight = 20;

std::string svg(double height, const std::string& inside) {
  return fmt::format(
      "<svg viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" role=\"img\" "
      "xmlns=\"http://www.w3.org/2000/svg\">\n{}</svg>\n",
      kWidth, height, kWidth, height, inside);
}

/// Memory to the right, every doubling as far as the one before; hit rate upwards.
std::string curve_chart(const json::array& points) {
  if (points.empty()) return "<p>Nothing is asked for twice.</p>\n";
  const auto position = [&](const json::value& point) {
    return std::log2(number(point.at("tokens")));
  };
  const double begin = position(points.front());
  const double width = std::max(1.0, position(points.back()) - begin);
  const auto x = [&](double log_tokens) {
    return kLeft + (kWidth - kLeft - kRight) * (log_tokens - begin) / width;
  };
  const auto y = [&](double rate) { return kHeight - kBottom - (kHeight - kBottom - kTop) * rate; };
  std::string inside;
  for (int quarter = 0; quarter <= 4; ++quarter) {
    const double at = y(quarter / 4.0);
    inside += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5} %</text>\n",
        kLeft, kWidth - kRight, at, kLeft - 6, at + 4, 25 * quarter);
  }
  // A label for every sixth point or so; both ends among them.
  const std::size_t every = std::max<std::size_t>(1, (points.size() + 5) / 6);
  for (std::size_t i = 0; i < points.size(); i += every) {
    inside += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                          x(position(points[i])), kHeight - kBottom + 18,
                          format_size(static_cast<uint64_t>(number(points[i].at("bytes")))));
  }
  std::string line;
  for (const json::value& point : points) {
    line += fmt::format("{:.1f},{:.1f} ", x(position(point)), y(number(point.at("hit_rate"))));
  }
  // To the edge: more memory finds nothing more.
  line += fmt::format("{:.1f},{:.1f}", kWidth - kRight, y(number(points.back().at("hit_rate"))));
  inside += fmt::format(
      "<polyline points=\"{}\" fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"2\"/>\n", line);
  return svg(kHeight, inside);
}

std::string curve_table(const json::array& points) {
  std::string rows = "<tr><th>tokens</th><th>bytes</th><th>hit rate</th></tr>\n";
  for (const json::value& point : points) {
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", plain(point.at("tokens")),
                        plain(point.at("bytes")), plain(point.at("hit_rate")));
  }
  return fmt::format("<table>\n{}</table>\n", rows);
}

/// How long half, 90 % and 99 % wait for their first token.
std::string waiting_chart(const json::object& times) {
  constexpr double kBar = 26;
  const std::pair<std::string_view, std::string_view> bars[] = {
      {"p50", "half"}, {"p90", "90 %"}, {"p99", "99 %"}};
  const double longest = std::max(number(times.at("p99")), 1e-9);
  std::string inside;
  double top = 4;
  for (const auto& [field, label] : bars) {
    const double width = (kWidth - kLeft - 120) * number(times.at(field)) / longest;
    inside += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>"
        "<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"18\" fill=\"#1f5fa8\"/>"
        "<text x=\"{:.1f}\" y=\"{}\">{} ms</text>\n",
        kLeft - 6, top + 14, label, kLeft, top, width, kLeft + width + 6, top + 14,
        plain(times.at(field)));
    top += kBar;
  }
  return svg(top, inside);
}

}  // namespace

std::string make_page(const json::object& report) {
  std::string out(kHead);
  out += table("Trace", report.at("trace"));
  if (const json::value* machine = report.if_contains("machine")) out += table("Machine", *machine);
  if (const json::value* result = report.if_contains("result")) {
    out += "<h2>Time to the first token</h2>\n";
    out += waiting_chart(result->at("first_token_ms").as_object());
    out += table("Result", *result);
  }
  if (const json::value* replicas = report.if_contains("replicas")) {
    for (std::size_t i = 0; i < replicas->as_array().size(); ++i) {
      out += table(fmt::format("Replica {}", i + 1), replicas->as_array()[i]);
    }
  }
  if (const json::value* curve = report.if_contains("curve")) {
    const json::array& points = curve->at("points").as_array();
    out += "<h2>Hit rate against memory</h2>\n";
    out += curve_chart(points);
    if (!points.empty()) out += curve_table(points);
    out += fmt::format("<p>Followed share of the blocks: {}</p>\n",
                       plain(curve->at("followed_share")));
  }
  out += "</body></html>\n";
  return out;
}

}  // namespace pagewise::simulate
