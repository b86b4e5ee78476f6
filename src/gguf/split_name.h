// SPDX-License-Identifier: Apache-2.0
// Names of the files of a model that was saved in parts: STEM-00001-of-00003.gguf and so on, part 1
// first. Source: llama.cpp's gguf-split.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pagewise::gguf {

struct SplitName {
  std::string stem;     // with its folders, without "-00001-of-00003.gguf"
  uint32_t number = 0;  // of this part, 1 to count
  uint32_t count = 0;

  /// The path of part `number`.
  std::string path_of(uint32_t number) const;
};

/// Empty for every other name, among them those whose numbers make no sense.
std::optional<SplitName> parse_split_name(std::string_view path);

}  // namespace pagewise::gguf
