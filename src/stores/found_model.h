// SPDX-License-Identifier: Apache-2.0
// A model in a store: the names that lead to it and the file it is in. Nothing of the file itself
// has been read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stores/location.h"

namespace pagewise::stores {

struct FoundModel {
  StoreKind store = StoreKind::kFolder;
  std::string name;       // as it is listed, and as it can be asked for
  std::string long_name;  // the same with all of the file's name; empty: there is none
  std::string path;     // the GGUF file, or the first of its parts; of a broken entry its manifest
  uint32_t parts = 1;   // that the names of its files promise
  uint64_t bytes = 0;   // of all parts that are there
  std::string problem;  // why there is no file to open, as a short clause; empty: there is one

  // What else it answers to (find.h); letters of either case.
  std::vector<std::string> whole_names;  // by themselves
  std::vector<std::string> bases;        // in front of a colon: "llama3.2", "org/repo"
  std::vector<std::string> tags;         // behind it: "3b", "Q4_K_M"

  // The same file has the same numbers, however it is named.
  uint64_t device = 0, inode = 0;
};

/// Endings of a file's stem that say how it is quantised: "Q4_K_M" of "Tiny-1B-Q4_K_M"; empty when
/// it has none.
std::string_view quantisation_of(std::string_view stem);

}  // namespace pagewise::stores
