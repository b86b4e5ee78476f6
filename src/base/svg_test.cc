// SPDX-License-Identifier: Apache-2.0
#include "base/svg.h"

#include <gtest/gtest.h>

#include <vector>

namespace pagewise {
namespace {

using Heights = std::vector<double>;

TEST(Svg, LabelsThatHaveRoomStayWhereTheyAre) {
  EXPECT_EQ(svg_label_heights({100, 20, 60}, 16, 300), (Heights{100, 20, 60}));
  EXPECT_EQ(svg_label_heights({}, 16, 300), Heights{});
}

TEST(Svg, LabelsThatWouldOverlapAreMovedApartInTheirOrder) {
  EXPECT_EQ(svg_label_heights({100, 100, 90}, 16, 300), (Heights{106, 122, 90}));
}

TEST(Svg, LabelsAtTheBottomPushTheOthersUp) {
  EXPECT_EQ(svg_label_heights({300, 299, 40}, 16, 300), (Heights{300, 284, 40}));
}

TEST(Svg, TextCannotBecomeMarkup) {
  EXPECT_EQ(svg_text(1, 2, "end", "a<b & c", "soft"),
            "<text x=\"1.0\" y=\"2.0\" text-anchor=\"end\" class=\"soft\">a&lt;b &amp; c</text>\n");
  EXPECT_NE(svg_open(7, 5, "<x>").find("<title>&lt;x&gt;</title>"), std::string::npos);
}

TEST(Svg, ColoursComeAgainAfterTheLast) {
  EXPECT_EQ(svg_series(0), "0");
  EXPECT_EQ(svg_series(7), "0");
  EXPECT_NE(svg_open(7, 5, "t").find("prefers-color-scheme:dark"), std::string::npos);
}

}  // namespace
}  // namespace pagewise
