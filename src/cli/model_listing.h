// SPDX-License-Identifier: Apache-2.0
// What `pagewise models` says of a model that was found, from the header of its file: gathered
// here, printed by models_command.cc. Nothing that the file says can make this fail.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "stores/found_model.h"

namespace pagewise::cli {

struct ListedModel {
  stores::FoundModel found;
  std::string type;          // how it is quantised: "Q4_K_M"; empty: not known
  std::string architecture;  // empty: the file does not say
  std::optional<uint64_t> context;
  std::optional<uint64_t> kv_token_bytes;  // as f16, the server's default
  std::string problem;  // why it cannot be served, as one short clause; empty: it can be

  // Where it can be served: what it needs, and whether that is free now.
  bool fits = false;
  uint32_t context_now = 0;   // that the default pool serves; 0 when it does not fit
  uint64_t bytes_needed = 0;  // weights, working memory and the smallest pool
};

/// Reads the header of the model's file, of all parts. Cost: that, and where it can be served its
/// tokenizer is built, some 50 ms for the largest vocabularies.
ListedModel list_model(stores::FoundModel found);

}  // namespace pagewise::cli
