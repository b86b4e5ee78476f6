// SPDX-License-Identifier: Apache-2.0
// The percent-encoding of URIs (RFC 3986, section 2.1).
#pragma once

#include <string>
#include <string_view>

namespace pagewise {

/// `text` with the byte 0xHH in place of each %HH, in one pass: %2541 becomes %41. A percent sign
/// without two hexadecimal digits behind it stays as it is.
std::string percent_decoded(std::string_view text);

}  // namespace pagewise
