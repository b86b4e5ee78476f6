// SPDX-License-Identifier: Apache-2.0
#include "planner/plan_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/json.h"
#include "base/xml.h"
#include "planner/numbers.h"
#include "planner/plan_output.h"
#include "planner/svg_chart.h"

namespace pagewise::planner {
namespace {

constexpr std::string_view kStyle =
    "body{font:15px/1.5 sans-serif;max-width:820px;margin:2em auto;padding:0 1em;color:#1f2328;"
    "background:#fff}"
    "table{border-collapse:collapse;margin:.5em 0 1.5em}"
    "th,td{padding:.2em .8em;text-align:right;border-bottom:1px solid #d1d9e0}"
    "th{font-weight:600}td.word,th.word{text-align:left}"
    "small{color:#59636e}svg{max-width:100%;height:auto}"
    "pre{background:#f6f8fa;padding:1em;overflow-x:auto}"
    "@media (prefers-color-scheme:dark){body{color:#f0f6fc;background:#0d1117}"
    "th,td{border-color:#3d444d}small{color:#9198a1}pre{background:#151b23}}";

std::string words(std::string_view key) {
  std::string out(key);
  std::replace(out.begin(), out.end(), '_', ' ');
  return out;
}

bool is_bytes(std::string_view key) { return key.find("bytes") != std::string_view::npos; }

/// A leaf for people.
std::string shown(std::string_view key, const json::value& value) {
  if (value.is_bool()) return value.get_bool() ? "yes" : "no";
  if (value.is_string()) return xml_escaped(value.get_string());
  if (value.is_double()) return fmt::format("{:.6g}", value.get_double());
  const uint64_t number =
      value.is_uint64() ? value.get_uint64() : static_cast<uint64_t>(value.get_int64());
  if (key.ends_with("_ns")) {
    return fmt::format("{} <small>{}</small>", duration(static_cast<TimeNs>(number)),
                       grouped(number));
  }
  if (!is_bytes(key)) return grouped(number);
  return fmt::format("{} <small>{}</small>", format_size(number), grouped(number));
}

std::string cell(const std::string& path, std::string_view key, const json::value& value) {
  const bool word = value.is_string() || value.is_bool();
  return fmt::format(
      "<td{} data-key=\"{}\" data-value=\"{}\">{}</td>", word ? " class=\"word\"" : "",
      xml_escaped(path),
      xml_escaped(value.is_string() ? std::string(value.get_string()) : json::serialize(value)),
      shown(key, value));
}

/// An array of objects: a column a key, in the order in which they first appear.
std::string array_table(const std::string& path, const json::array& array) {
  std::vector<std::string> keys;
  for (const json::value& entry : array) {
    for (const auto& field : entry.get_object()) {
      const std::string key(field.key());
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  std::string out = "<table>\n<tr>";
  for (const std::string& key : keys) out += fmt::format("<th>{}</th>", xml_escaped(words(key)));
  out += "</tr>\n";
  for (std::size_t i = 0; i < array.size(); ++i) {
    out += "<tr>";
    for (const std::string& key : keys) {
      const json::value* value = array[i].get_object().if_contains(key);
      out +=
          value == nullptr ? "<td></td>" : cell(fmt::format("{}.{}.{}", path, i, key), key, *value);
    }
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

/// An object: a line a leaf; arrays within it follow as tables.
std::string object_table(const std::string& path, const json::object& object) {
  std::string out, arrays;
  for (const auto& field : object) {
    const std::string key(field.key());
    const std::string inner = path.empty() ? key : fmt::format("{}.{}", path, key);
    if (field.value().is_array()) {
      arrays += array_table(inner, field.value().get_array());
    } else if (!field.value().is_object()) {
      out += fmt::format("<tr><th class=\"word\">{}</th>{}</tr>\n", xml_escaped(words(key)),
                         cell(inner, key, field.value()));
    }
  }
  if (out.empty()) return arrays;
  return fmt::format("<table>\n{}</table>\n{}", out, arrays);
}

/// Sections in the order in which the JSON has them; leaves at the top come first, but for those
/// that repeat a single row.
std::string tables(const json::object& object) {
  json::object leaves;
  std::string out;
  const std::map<std::string_view, std::string_view> titles = {
      {"rows", "Lengths and numbers of sequences"},
      {"groups", "What a token leaves"},
      {"states", "Recurrent layers"},
      {"device", "The device"},
      {"times", "How long it takes"},
      {"lengths", "Requests of these lengths"},
      {"waste", "Waste by block size"},
      {"users", "What reaches that many users"},
      {"timed", "Calls in time"},
      {"crossovers", "Where KV outgrows the weights"},
      {"fixes", "What helps, cheapest first"}};
  for (const auto& field : object) {
    const std::string key(field.key());
    if (!field.value().is_structured()) {
      leaves[key] = field.value();
      continue;
    }
    if (field.value().is_array() && field.value().get_array().empty()) continue;
    const auto title = titles.find(key);
    out += fmt::format("<h2>{}</h2>\n",
                       title == titles.end() ? words(key) : std::string(title->second));
    out += field.value().is_array() ? array_table(key, field.value().get_array())
                                    : object_table(key, field.value().get_object());
  }
  return object_table("", leaves) + out;
}

/// Lengths against KV, one line a batch; nothing for fewer than two lengths.
std::optional<LineChart> kv_chart(const PlanInput& input, const Plan& plan) {
  LineChart chart{.title = "KV memory by length",
                  .unit = ChartUnit::kBytes,
                  .x_name = "tokens of a sequence",
                  .lines = {},
                  .levels = {}};
  for (const uint64_t batch : input.batches) {
    ChartLine line{.name = fmt::format("{} at once", grouped(batch)), .points = {}};
    for (std::size_t i = 0; i < plan.rows.size(); ++i) {
      const PlanRow& row = plan.rows[i];
      if (row.batch != batch) continue;
      line.points.push_back({row.tokens, row.kv_bytes, fmt::format("rows.{}.kv_bytes", i)});
    }
    std::sort(line.points.begin(), line.points.end(),
              [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
    if (line.points.empty() || line.points.front().x == line.points.back().x) return std::nullopt;
    chart.lines.push_back(std::move(line));
  }
  if (chart.lines.empty()) return std::nullopt;
  if (plan.weight_bytes && *plan.weight_bytes > 0) {
    chart.levels.push_back({"weights", *plan.weight_bytes, "weight_bytes"});
  }
  if (input.device && input.device->kv_bytes_distinct > 0) {
    chart.levels.push_back(
        {"free for KV", input.device->kv_bytes_distinct, "device.kv_bytes_distinct"});
  }
  return chart;
}

/// Lengths against the time to the first token; nothing for fewer than two lengths.
std::optional<LineChart> first_token_chart(const PlanInput& input, const Plan& plan) {
  ChartLine cold{.name = "nothing cached", .points = {}};
  ChartLine cached{.name = "", .points = {}};
  for (std::size_t i = 0; i < plan.times.size(); i += input.batches.size()) {
    const TimesRow& row = plan.times[i];
    const std::string at = fmt::format("times.rows.{}.first_token", i);
    cold.points.push_back({row.tokens, static_cast<uint64_t>(row.first_token_ns), at + "_ns"});
    if (!row.first_token_cached_ns) continue;
    cached.points.push_back(
        {row.tokens, static_cast<uint64_t>(*row.first_token_cached_ns), at + "_cached_ns"});
  }
  if (cold.points.empty()) return std::nullopt;
  LineChart chart{.title = "Time to the first token by length of the prompt",
                  .unit = ChartUnit::kTime,
                  .x_name = "tokens of the prompt",
                  .lines = {std::move(cold)},
                  .levels = {}};
  if (!cached.points.empty()) {
    cached.name = fmt::format("{} cached", grouped(*input.prefix_tokens));
    chart.lines.push_back(std::move(cached));
  }
  for (ChartLine& line : chart.lines) {
    std::sort(line.points.begin(), line.points.end(),
              [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
    if (line.points.front().x == line.points.back().x) return std::nullopt;
  }
  return chart;
}

std::string waste_chart(const Plan& plan) {
  if (plan.waste.empty()) return {};
  const PopulationPlan& of = plan.lengths ? *plan.lengths : *plan.mix;
  BarChart chart{.title = "Memory taken", .bars = {}, .part_name = "holds no token"};
  chart.bars.push_back({"reserved", of.naive_bytes, format_size(of.naive_bytes),
                        plan.lengths ? "lengths.naive_bytes" : "naive_bytes", of.wasted_bytes});
  for (std::size_t i = 0; i < plan.waste.size(); ++i) {
    const WasteRow& row = plan.waste[i];
    chart.bars.push_back({fmt::format("blocks of {}", row.block_tokens), row.paged_bytes,
                          format_size(row.paged_bytes), fmt::format("waste.{}.paged_bytes", i),
                          row.slack_bytes});
  }
  return bar_chart_svg(chart);
}

std::string reach_chart(const Plan& plan) {
  if (!plan.reach) return {};
  BarChart chart{
      .title = fmt::format("At once, {} wanted (grey: not reached)", grouped(plan.reach->wanted)),
      .bars = {},
      .part_name = ""};
  for (std::size_t i = 0; i < plan.reach->options.size(); ++i) {
    const ReachOption& option = plan.reach->options[i];
    chart.bars.push_back({option.by + " " + option.value, option.sequences,
                          grouped(option.sequences), fmt::format("users.options.{}.sequences", i),
                          0, !option.reached});
  }
  return bar_chart_svg(chart);
}

std::string device_chart(const PlanInput& input) {
  if (!input.device) return {};
  const DevicePlan& device = *input.device;
  BarChart chart{.title = "Where the memory goes", .bars = {}, .part_name = ""};
  for (const auto& [name, value, key] :
       {std::tuple("usable", device.usable_bytes, "device.usable_bytes"),
        std::tuple("weights", device.weight_bytes, "device.weight_bytes"),
        std::tuple("working memory", device.working_bytes, "device.working_bytes"),
        std::tuple("KV", device.kv_bytes, "device.kv_bytes")}) {
    chart.bars.push_back({name, value, format_size(value), key});
  }
  return bar_chart_svg(chart);
}

std::string charts(const PlanInput& input, const Plan& plan) {
  std::string out;
  if (const auto chart = kv_chart(input, plan)) out += line_chart_svg(*chart);
  if (const auto chart = first_token_chart(input, plan)) out += line_chart_svg(*chart);
  return out + device_chart(input) + waste_chart(plan) + reach_chart(plan);
}

/// JSON inside a script element must not end it.
std::string script_safe(std::string text) {
  for (std::size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3) {
    text.insert(at + 1, "\\");
  }
  return text;
}

}  // namespace

std::string plan_html(const PlanInput& input, const Plan& plan) {
  const std::string name =
      input.layout && !input.layout->name.empty() ? input.layout->name : "KV memory";
  const json::object object = plan_object(input, plan);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<title>Plan: {0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n{2}{3}"
      "<h2>The same as text</h2>\n<pre>{4}</pre>\n"
      "<script id=\"plan\" type=\"application/json\">{5}</script>\n</body>\n</html>\n",
      xml_escaped(name), kStyle, charts(input, plan), tables(object),
      xml_escaped(plan_text(input, plan)), script_safe(json::serialize(object)));
}

Result<std::string> plan_svg(const PlanInput& input, const Plan& plan) {
  const auto chart = kv_chart(input, plan);
  if (chart) return line_chart_svg(*chart);
  return Error{ErrorCode::kInvalidArgument,
               "--svg needs two lengths or more in --tokens: one makes no line"};
}

}  // namespace pagewise::planner
