// SPDX-License-Identifier: Apache-2.0
#include "simulate/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/svg.h"
#include "base/xml.h"

namespace pagewise::simulate {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Pagewise: a simulated trace</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #1f2328;
  background: #fff; }
table { border-collapse: collapse; margin: 0 0 1.5em; }
td, th { padding: .15em 1em .15em 0; text-align: left; vertical-align: top; font-weight: normal; }
td { text-align: right; font-variant-numeric: tabular-nums; }
h2 { font-size: 1.1em; margin: 1.5em 0 .3em; }
svg { max-width: 100%; height: auto; }
@media (prefers-color-scheme: dark) { body { color: #f0f6fc; background: #0d1117; } }
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

constexpr double kWidth = 760, kHeight = 400, kLeft = 70, kBottom = 50, kTop = 40, kRight = 40;

/// Powers of two between the sizes, at most eight of them.
std::vector<double> size_ticks(double low, double high) {
  int step = 1;
  while ((high - low) / step > 8) ++step;
  std::vector<double> out;
  for (int power = static_cast<int>(std::ceil(low)); power <= high; ++power) {
    if (power % step == 0 && power < 64) out.push_back(power);
  }
  return out;
}

/// Where sizes and rates lie: memory to the right, every doubling as far as the one before.
struct CurveFrame {
  double low = 0, high = 1;  // log2 of bytes

  explicit CurveFrame(const json::array& points)
      : low(log2_bytes(points.front())), high(std::max(low + 1, log2_bytes(points.back()))) {}

  static double log2_bytes(const json::value& point) {
    return std::log2(number(point.at("bytes")));
  }
  double x(double log2) const {
    return kLeft + (kWidth - kLeft - kRight) * (log2 - low) / (high - low);
  }
  static double y(double rate) { return kHeight - kBottom - (kHeight - kBottom - kTop) * rate; }
};

std::string curve_axes(const CurveFrame& frame) {
  std::string out;
  for (int quarter = 0; quarter <= 4; ++quarter) {
    const double y = CurveFrame::y(quarter / 4.0);
    out += svg_line(kLeft, y, kWidth - kRight, y, "class=\"grid\"");
    out += svg_text(kLeft - 8, y + 4, "end", fmt::format("{} %", 25 * quarter), "soft");
  }
  for (const double log2 : size_ticks(frame.low, frame.high)) {
    const double x = frame.x(log2);
    out += svg_line(x, kTop, x, kHeight - kBottom, "class=\"grid\"");
    out += svg_text(x, kHeight - kBottom + 18, "middle",
                    format_size(static_cast<uint64_t>(std::exp2(log2))), "soft");
  }
  return out + svg_text((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", "KV memory", "soft");
}

std::string curve_chart(const json::array& points) {
  const CurveFrame frame(points);
  std::string line, marks;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double x = frame.x(CurveFrame::log2_bytes(points[i]));
    const double rate = number(points[i].at("hit_rate"));
    line += fmt::format("{:.1f},{:.1f} ", x, CurveFrame::y(rate));
    marks += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" class=\"f0\" "
        "data-key=\"curve.points.{}.hit_rate\" data-value=\"{}\"><title>{}: {:.1f} %</title>"
        "</circle>\n",
        x, CurveFrame::y(rate), i, plain(points[i].at("hit_rate")),
        format_size(static_cast<uint64_t>(number(points[i].at("bytes")))), 100 * rate);
  }
  return svg_open(kWidth, kHeight, "Hit rate against memory") +
         svg_text(kLeft, 22, "start", "Prompt tokens found in the cache, by its size") +
         curve_axes(frame) +
         fmt::format("<polyline points=\"{}\" fill=\"none\" stroke-width=\"2\" class=\"s0\"/>\n",
                     line) +
         marks + "</svg>\n";
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
  constexpr double kBar = 26, kBegin = 44;
  const std::pair<std::string_view, std::string_view> bars[] = {
      {"p50", "half"}, {"p90", "90 %"}, {"p99", "99 %"}};
  const double longest = std::max(number(times.at("p99")), 1e-9);
  std::string inside = svg_text(kLeft, 22, "start", "Time to the first token");
  double top = kBegin;
  for (const auto& [field, label] : bars) {
    const double width = (kWidth - kLeft - 120) * number(times.at(field)) / longest;
    inside += svg_text(kLeft - 8, top + 14, "end", label, "soft");
    inside += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"18\" class=\"f0\"/>\n",
                          kLeft, top, width);
    inside += svg_text(kLeft + width + 8, top + 14, "start",
                       fmt::format("{} ms", plain(times.at(field))));
    top += kBar;
  }
  return svg_open(kWidth, top + 4, "Time to the first token") + inside + "</svg>\n";
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
    out += points.empty() ? "<p>Nothing is asked for twice.</p>\n"
                          : curve_chart(points) + curve_table(points);
    out += fmt::format("<p>Followed share of the blocks: {}</p>\n",
                       plain(curve->at("followed_share")));
  }
  out += "</body></html>\n";
  return out;
}

Result<std::string> make_svg(const json::object& report) {
  const json::value* curve = report.if_contains("curve");
  if (curve == nullptr) return Error{ErrorCode::kInvalidArgument, "--svg needs --curve"};
  const json::array& points = curve->at("points").as_array();
  if (!points.empty()) return curve_chart(points);
  return Error{ErrorCode::kInvalidArgument, "--svg: nothing is asked for twice, so no curve"};
}

}  // namespace pagewise::simulate
