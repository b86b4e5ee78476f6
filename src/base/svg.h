// SPDX-License-Identifier: Apache-2.0
// The parts that charts are drawn with, as SVG text: no script, no font, no other file. Colours
// follow the reader's choice of light or dark, in pages and where an image is shown alone.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pagewise {

/// Begins one element of that size in pixels, complete with its styles; ends with "</svg>\n".
/// Classes: `ink`, `soft`, `dim` fill and `grid`, `rule` stroke in neutral tones; `s0` to `s6`
/// stroke and `f0` to `f6` fill in colours that eyes tell apart which do not tell red from green;
/// `pale` covers a part of a bar.
std::string svg_open(double width, double height, std::string_view title);

/// The index of a series' colour: "s" + svg_series(8).
std::string svg_series(std::size_t index);

/// `anchor`: "start", "middle" or "end". The text keeps its distance from what is drawn below it.
std::string svg_text(double x, double y, std::string_view anchor, std::string_view text,
                     std::string_view css_class = "ink");

/// `attributes`: further ones, such as a class.
std::string svg_line(double x1, double y1, double x2, double y2, std::string_view attributes);

/// Heights for labels that want to stand at `wanted` and need `gap` each: moved apart where they
/// would overlap, in order, none below `bottom` while there is room.
std::vector<double> svg_label_heights(const std::vector<double>& wanted, double gap, double bottom);

}  // namespace pagewise
