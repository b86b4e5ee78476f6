// SPDX-License-Identifier: Apache-2.0
#include "server/http.h"

#include <algorithm>
#include <cctype>

namespace pagewise::server {

const std::string* HttpRequest::header(std::string_view name) const {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };
  for (const HttpHeader& header : headers) {
    if (std::equal(name.begin(), name.end(), header.name.begin(), header.name.end(), same))
      return &header.value;
  }
  return nullptr;
}

}  // namespace pagewise::server
