// SPDX-License-Identifier: Apache-2.0
#include "planner/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/bytes.h"
#include "base/svg.h"
#include "base/xml.h"
#include "planner/numbers.h"

namespace pagewise::planner {
namespace {

constexpr double kWidth = 760;
constexpr double kLabelGap = 16;  // a line of text

std::string data_of(std::string_view key, uint64_t value) {
  return fmt::format("data-key=\"{}\" data-value=\"{}\"", xml_escaped(key), value);
}

double log2_of(uint64_t value) {
  return std::log2(static_cast<double>(std::max<uint64_t>(value, 1)));
}

/// Powers of two in a range, at most about eight of them.
std::vector<uint64_t> binary_ticks(double low, double high) {
  const double span = high - low;
  int step = 1;
  while (span / step > 8) step *= 2;
  std::vector<uint64_t> out;
  for (int power = static_cast<int>(std::ceil(low - 1e-9)); power <= high + 1e-9; ++power) {
    if (power % step == 0 && power >= 0 && power < 64) out.push_back(uint64_t{1} << power);
  }
  return out;
}

/// Powers of ten in a range, and where these are few 2 and 5 times them.
std::vector<uint64_t> decimal_ticks(double low, double high) {
  const bool few = high - low < 3 * std::log2(10.0);
  std::vector<uint64_t> out;
  for (uint64_t power = 1; power <= UINT64_MAX / 10; power *= 10) {
    for (const uint64_t factor : {1, 2, 5}) {
      if (factor > 1 && !few) continue;
      const double at = log2_of(power * factor);
      if (at >= low - 1e-9 && at <= high + 1e-9) out.push_back(power * factor);
    }
  }
  return out;
}

/// The powers of ten around a range.
void widen_to_tens(double& low, double& high) {
  const double ten = std::log2(10.0);
  low = std::floor(low / ten + 1e-9) * ten;
  high = std::ceil(high / ten - 1e-9) * ten;
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
    if (chart.unit == ChartUnit::kTime) {
      widen_to_tens(y_low_, y_high_);
    } else {
      y_low_ = std::floor(y_low_);
      y_high_ = std::ceil(y_high_);
    }
    if (y_high_ <= y_low_) y_high_ = y_low_ + 1;
    if (x_high_ <= x_low_) x_high_ = x_low_ + 1;
  }

  std::string draw() {
    out_ = svg_open(kWidth, kHeight, chart_.title);
    out_ += svg_text(kLeft, 20, "start", chart_.title);
    axes();
    for (const ChartLevel& level : chart_.levels) draw_level(level);
    for (std::size_t i = 0; i < chart_.lines.size(); ++i) draw_line(chart_.lines[i], i);
    name_lines();
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

  std::string y_text(uint64_t y) const {
    return chart_.unit == ChartUnit::kTime ? duration(static_cast<TimeNs>(y)) : format_size(y);
  }

  void axes() {
    const std::vector<uint64_t> y_ticks = chart_.unit == ChartUnit::kTime
                                              ? decimal_ticks(y_low_, y_high_)
                                              : binary_ticks(y_low_, y_high_);
    for (const uint64_t y : y_ticks) {
      out_ += svg_line(kLeft, y_of(y), kWidth - kRight, y_of(y), "class=\"grid\"");
      out_ += svg_text(kLeft - 8, y_of(y) + 4, "end", y_text(y), "soft");
    }
    for (const uint64_t x : binary_ticks(x_low_, x_high_)) {
      out_ += svg_line(x_of(x), kTop, x_of(x), kHeight - kBottom, "class=\"grid\"");
      out_ += svg_text(x_of(x), kHeight - kBottom + 18, "middle", short_tokens(x), "soft");
    }
    out_ += svg_text((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", chart_.x_name, "soft");
  }

  void draw_level(const ChartLevel& level) {
    const double y = y_of(level.y);
    out_ += svg_line(
        kLeft, y, kWidth - kRight, y,
        fmt::format("class=\"rule\" stroke-dasharray=\"6 4\" {}", data_of(level.key, level.y)));
    level_heights_.push_back(y - 5);
  }

  void draw_line(const ChartLine& line, std::size_t index) {
    std::string path;
    for (const ChartPoint& point : line.points) {
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x_of(point.x), y_of(point.y));
    }
    const std::string series = svg_series(index);
    out_ += fmt::format(
        "<polyline points=\"{}\" fill=\"none\" stroke-width=\"2\" class=\"s{}\"/>\n", path, series);
    for (const ChartPoint& point : line.points) {
      out_ += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" class=\"f{}\" {}><title>{}: {} tokens, "
          "{}</title></circle>\n",
          x_of(point.x), y_of(point.y), series, data_of(point.key, point.y), xml_escaped(line.name),
          grouped(point.x), y_text(point.y));
    }
  }

  /// Lines beside their ends, levels within the plot: none on top of another, or of the lines.
  void name_lines() {
    const std::vector<double> levels =
        svg_label_heights(level_heights_, kLabelGap, kHeight - kBottom - 4);
    for (std::size_t i = 0; i < levels.size(); ++i) {
      out_ += svg_text(kLeft + 6, levels[i], "start", chart_.levels[i].name);
    }
    std::vector<double> wanted;
    for (const ChartLine& line : chart_.lines) wanted.push_back(y_of(line.points.back().y) + 4);
    const std::vector<double> heights = svg_label_heights(wanted, kLabelGap, kHeight - kBottom);
    for (std::size_t i = 0; i < heights.size(); ++i) {
      out_ += svg_text(x_of(chart_.lines[i].points.back().x) + 8, heights[i], "start",
                       chart_.lines[i].name, "f" + svg_series(i));
    }
  }

  const LineChart& chart_;
  double x_low_ = 64, x_high_ = 0, y_low_ = 64, y_high_ = 0;
  std::vector<double> level_heights_;
  std::string out_;
};

}  // namespace

std::string line_chart_svg(const LineChart& chart) { return LineDrawing(chart).draw(); }

std::string bar_chart_svg(const BarChart& chart) {
  constexpr double kRow = 26, kTop = 36, kNames = 190, kTexts = 150;
  const double height = kTop + kRow * static_cast<double>(chart.bars.size()) + 10;
  uint64_t most = 1;
  for (const ChartBar& bar : chart.bars) most = std::max(most, bar.value);
  std::string out = svg_open(kWidth, height, chart.title);
  out += svg_text(kNames, 20, "start", chart.title);
  if (!chart.part_name.empty()) {
    out += svg_text(kWidth - 10, 20, "end", "paler: " + chart.part_name, "soft");
  }
  const double room = kWidth - kNames - kTexts;
  double y = kTop;
  for (const ChartBar& bar : chart.bars) {
    const auto wide = [&](uint64_t value) {
      return static_cast<double>(value) / static_cast<double>(most) * room;
    };
    out += svg_text(kNames - 8, y + 14, "end", bar.name);
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"18\" class=\"{}\" {}/>\n",
        kNames, y, wide(bar.value), bar.dim ? "dim" : "f0", data_of(bar.key, bar.value));
    if (bar.part > 0) {
      out += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"18\" class=\"pale\"/>\n",
          kNames + wide(bar.value - std::min(bar.part, bar.value)), y,
          wide(std::min(bar.part, bar.value)));
    }
    out += svg_text(kNames + wide(bar.value) + 8, y + 14, "start", bar.text);
    y += kRow;
  }
  return out + "</svg>\n";
}

}  // namespace pagewise::planner
