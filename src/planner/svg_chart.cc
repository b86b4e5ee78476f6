// SPDX-License-Identifier: Apache-2.0
#include "planner/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "base/bytes.h"
#include "base/xml.h"
#include "planner/numbers.h"

namespace pagewise::planner {
namespace {

constexpr double kWidth = 760;
constexpr double kFontSize = 13;
// Distinct for eyes that do not tell red from green. Source: Okabe and Ito, "Color Universal
// Design" (2008).
constexpr std::string_view kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                        "#e69f00", "#56b4e9", "#000000"};
constexpr std::string_view kInk = "#222222";
constexpr std::string_view kGrid = "#dddddd";

std::string_view color_of(std::size_t index) { return kColors[index % std::size(kColors)]; }

std::string open_svg(double height, std::string_view title) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" font-family=\"sans-serif\" "
      "font-size=\"{2:.0f}\" fill=\"{3}\">\n<title>{4}</title>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      kWidth, height, kFontSize, kInk, xml_escaped(title));
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     xml_escaped(text));
}

std::string stroke(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, style);
}

std::string data_of(std::string_view key, uint64_t value) {
  return fmt::format("data-key=\"{}\" data-value=\"{}\"", xml_escaped(key), value);
}

double log2_of(uint64_t value) {
  return std::log2(static_cast<double>(std::max<uint64_t>(value, 1)));
}

/// Powers of two in a range, at most about eight of them.
std::vector<uint64_t> ticks(double low, double high) {
  const double span = high - low;
  int step = 1;
  while (span / step > 8) step *= 2;
  std::vector<uint64_t> out;
  for (int power = static_cast<int>(std::ceil(low - 1e-9)); power <= high + 1e-9; ++power) {
    if (power % step == 0 && power >= 0 && power < 64) out.push_back(uint64_t{1} << power);
  }
  return out;
}

class LineDrawing {
 public:
  explicit LineDrawing(const LineChart& chart) : chart_(chart) {
    x_low_ = y_low_ = 64;
    for (const ChartLine& line : chart.lines) {
      for (const ChartPoint& point : line.points) {
        include(x_low_, x_high_, log2_of(point.x));
        include(y_low_, y_high_, log2_of(point.y));
      }
    }
    for (const ChartLevel& level : chart.levels) include(y_low_, y_high_, log2_of(level.y));
    y_low_ = std::floor(y_low_);
    y_high_ = std::ceil(y_high_);
    if (y_high_ <= y_low_) y_high_ = y_low_ + 1;
    if (x_high_ <= x_low_) x_high_ = x_low_ + 1;
  }

  std::string draw() {
    out_ = open_svg(kHeight, chart_.title);
    out_ += text_at(kLeft, 20, "start", chart_.title);
    axes();
    for (const ChartLevel& level : chart_.levels) draw_level(level);
    for (std::size_t i = 0; i < chart_.lines.size(); ++i) draw_line(chart_.lines[i], color_of(i));
    return out_ + "</svg>\n";
  }

 private:
  static constexpr double kHeight = 400, kLeft = 84, kRight = 130, kTop = 36, kBottom = 46;

  static void include(double& low, double& high, double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  double x_of(uint64_t x) const {
    return kLeft + (log2_of(x) - x_low_) / (x_high_ - x_low_) * (kWidth - kLeft - kRight);
  }
  double y_of(uint64_t y) const {
    return kHeight - kBottom -
           (log2_of(y) - y_low_) / (y_high_ - y_low_) * (kHeight - kTop - kBottom);
  }

  void axes() {
    const std::string grid = fmt::format("stroke=\"{}\"", kGrid);
    for (const uint64_t y : ticks(y_low_, y_high_)) {
      out_ += stroke(kLeft, y_of(y), kWidth - kRight, y_of(y), grid);
      out_ += text_at(kLeft - 8, y_of(y) + 4, "end", format_size(y));
    }
    for (const uint64_t x : ticks(x_low_, x_high_)) {
      out_ += stroke(x_of(x), kTop, x_of(x), kHeight - kBottom, grid);
      out_ += text_at(x_of(x), kHeight - kBottom + 18, "middle", short_tokens(x));
    }
    out_ += text_at((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", "tokens of a sequence");
  }

  void draw_level(const ChartLevel& level) {
    const double y = y_of(level.y);
    out_ += stroke(kLeft, y, kWidth - kRight, y,
                   fmt::format("stroke=\"{}\" stroke-dasharray=\"6 4\" {}", kInk,
                               data_of(level.key, level.y)));
    // Within the plot: beside it stand the names of the lines.
    out_ += text_at(kLeft + 6, y - 5, "start", level.name);
  }

  void draw_line(const ChartLine& line, std::string_view color) {
    std::string path;
    for (const ChartPoint& point : line.points) {
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x_of(point.x), y_of(point.y));
    }
    out_ += fmt::format(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path, color);
    for (const ChartPoint& point : line.points) {
      out_ += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\" {}><title>{}: {} tokens, "
          "{}</title></circle>\n",
          x_of(point.x), y_of(point.y), color, data_of(point.key, point.y), xml_escaped(line.name),
          grouped(point.x), format_size(point.y));
    }
    if (line.points.empty()) return;
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{}</text>\n",
                        x_of(line.points.back().x) + 8, y_of(line.points.back().y) + 4, color,
                        xml_escaped(line.name));
  }

  const LineChart& chart_;
  double x_low_ = 64, x_high_ = 0, y_low_ = 64, y_high_ = 0;
  std::string out_;
};

}  // namespace

std::string line_chart_svg(const LineChart& chart) { return LineDrawing(chart).draw(); }

std::string bar_chart_svg(const BarChart& chart) {
  constexpr double kRow = 26, kTop = 36, kNames = 190, kTexts = 150;
  const double height = kTop + kRow * static_cast<double>(chart.bars.size()) + 10;
  uint64_t most = 1;
  for (const ChartBar& bar : chart.bars) most = std::max(most, bar.value);
  std::string out = open_svg(height, chart.title);
  out += text_at(kNames, 20, "start", chart.title);
  if (!chart.part_name.empty()) {
    out += text_at(kWidth - 10, 20, "end", "paler: " + chart.part_name);
  }
  const double room = kWidth - kNames - kTexts;
  double y = kTop;
  for (const ChartBar& bar : chart.bars) {
    const auto wide = [&](uint64_t value) {
      return static_cast<double>(value) / static_cast<double>(most) * room;
    };
    const std::string_view color = bar.dim ? "#999999" : color_of(0);
    out += text_at(kNames - 8, y + 14, "end", bar.name);
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"18\" fill=\"{}\" {}/>\n", kNames,
        y, wide(bar.value), color, data_of(bar.key, bar.value));
    if (bar.part > 0) {
      out += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"18\" fill=\"#ffffff\" "
          "fill-opacity=\"0.6\"/>\n",
          kNames + wide(bar.value - std::min(bar.part, bar.value)), y,
          wide(std::min(bar.part, bar.value)));
    }
    out += text_at(kNames + wide(bar.value) + 8, y + 14, "start", bar.text);
    y += kRow;
  }
  return out + "</svg>\n";
}

}  // namespace pagewise::planner
