// SPDX-License-Identifier: Apache-2.0
// Charts as SVG text: lines over two logarithmic axes, and bars. Each mark carries the number it
// stands for (data-key, data-value), so that a test or a reader can take it back out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pagewise::planner {

struct ChartPoint {
  uint64_t x = 0;
  uint64_t y = 0;
  std::string key;  // where the plan's JSON has y: "rows.3.kv_bytes"
};

struct ChartLine {
  std::string name;
  std::vector<ChartPoint> points;  // x ascending, all numbers at least 1
};

/// A height that is compared with, drawn across.
struct ChartLevel {
  std::string name;
  uint64_t y = 0;
  std::string key;
};

/// What is drawn upwards: bytes, in powers of two, or nanoseconds, in powers of ten.
enum class ChartUnit : uint8_t { kBytes, kTime };

/// Sizes or times over lengths in tokens, whose axis has powers of two.
struct LineChart {
  std::string title;
  ChartUnit unit = ChartUnit::kBytes;
  std::string x_name;
  std::vector<ChartLine> lines;  // at least one, with at least two x in all
  std::vector<ChartLevel> levels;
};

struct ChartBar {
  std::string name;
  uint64_t value = 0;
  std::string text;  // the value for people
  std::string key;
  uint64_t part = 0;  // of the value, drawn paler from the end: what is wasted
  bool dim = false;   // drawn in grey
};

struct BarChart {
  std::string title;
  std::vector<ChartBar> bars;
  std::string part_name;  // what the paler part is; empty: there is none
};

/// One <svg> element, complete in itself.
std::string line_chart_svg(const LineChart& chart);
std::string bar_chart_svg(const BarChart& chart);

}  // namespace pagewise::planner
