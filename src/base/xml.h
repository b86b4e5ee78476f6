// SPDX-License-Identifier: Apache-2.0
// Text inside of XML, HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace pagewise {

/// `text` with &, <, > and " written so that it stands for itself between tags and in attributes.
std::string xml_escaped(std::string_view text);

}  // namespace pagewise
