// SPDX-License-Identifier: Apache-2.0
#include "base/xml.h"

#include <gtest/gtest.h>

namespace pagewise {
namespace {

TEST(XmlEscaped, LeavesNothingThatIsReadAsMarkup) {
  EXPECT_EQ(xml_escaped("a<b> & \"c\" &amp; \xC3\xA9"),
            "a&lt;b&gt; &amp; &quot;c&quot; &amp;amp; \xC3\xA9");
  EXPECT_EQ(xml_escaped(""), "");
}

}  // namespace
}  // namespace pagewise
