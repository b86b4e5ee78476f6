// SPDX-License-Identifier: Apache-2.0
#include "base/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/xml.h"

namespace pagewise {
namespace {

struct Series {
  std::string_view light, dark;
};
// Source: Okabe and Ito, "Color Universal Design" (2008); lightened where a dark ground asks for
// it, and darkened where a light one does.
constexpr Series kSeries[] = {
    {"#0072b2", "#58a6ff"}, {"#c04f00", "#f0883e"}, {"#008060", "#2fbf9a"}, {"#b0528d", "#e09ac2"},
    {"#9a6700", "#e3b341"}, {"#2a86b8", "#7cc7f2"}, {"#1f2328", "#f0f6fc"}};

std::string series_styles(std::string_view Series::*tone) {
  std::string out;
  for (std::size_t i = 0; i < std::size(kSeries); ++i) {
    out += fmt::format(".s{0}{{stroke:{1}}}.f{0}{{fill:{1}}}", i, kSeries[i].*tone);
  }
  return out;
}

std::string styles() {
  return fmt::format(
      "<style>\n"
      "svg text{{font:13px system-ui,sans-serif;paint-order:stroke;stroke:#ffffff;"
      "stroke-width:3px;stroke-linejoin:round}}\n"
      ".back{{fill:#ffffff}}.ink{{fill:#1f2328}}.soft{{fill:#59636e}}.dim{{fill:#9198a1}}"
      ".grid{{stroke:#d1d9e0}}.rule{{stroke:#1f2328}}.pale{{fill:#ffffff;fill-opacity:.6}}\n{}\n"
      "@media (prefers-color-scheme:dark){{\n"
      "svg text{{stroke:#0d1117}}\n"
      ".back{{fill:#0d1117}}.ink{{fill:#f0f6fc}}.soft{{fill:#9198a1}}.dim{{fill:#656c76}}"
      ".grid{{stroke:#3d444d}}.rule{{stroke:#f0f6fc}}.pale{{fill:#0d1117;fill-opacity:.6}}\n{}\n"
      "}}\n</style>\n",
      series_styles(&Series::light), series_styles(&Series::dark));
}

}  // namespace

std::string svg_open(double width, double height, std::string_view title) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\">\n<title>{2}</title>\n{3}"
      "<rect width=\"100%\" height=\"100%\" class=\"back\"/>\n",
      width, height, xml_escaped(title), styles());
}

std::string svg_series(std::size_t index) { return std::to_string(index % std::size(kSeries)); }

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text,
                     std::string_view css_class) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n",
                     x, y, anchor, css_class, xml_escaped(text));
}

std::string svg_line(double x1, double y1, double x2, double y2, std::string_view attributes) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, attributes);
}

std::vector<double> svg_label_heights(const std::vector<double>& wanted, double gap,
                                      double bottom) {
  std::vector<std::size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return wanted[a] < wanted[b]; });
  std::vector<double> heights = wanted;
  for (std::size_t i = 1; i < order.size(); ++i) {
    heights[order[i]] = std::max(heights[order[i]], heights[order[i - 1]] + gap);
  }
  // What now hangs over the bottom pushes the others up again.
  double limit = bottom;
  for (std::size_t i = order.size(); i-- > 0; limit -= gap) {
    heights[order[i]] = std::min(heights[order[i]], limit);
    limit = heights[order[i]];
  }
  return heights;
}

}  // namespace pagewise
