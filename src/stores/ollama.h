// SPDX-License-Identifier: Apache-2.0
// Ollama's store: a manifest (JSON) for each name and tag, which names blobs by their SHA-256.
//
//   manifests/HOST/NAMESPACE/MODEL/TAG    manifests-v2/... of the same form, in newer versions
//   blobs/sha256-HEX                      the GGUF file, template, parameters, ...
//
// A manifest may also be a list of several for different runners, by value or by digest.
#pragma once

#include <string>
#include <vector>

#include "stores/found_model.h"
#include "stores/walk.h"

namespace pagewise::stores {

/// Whether the folder is laid out like that.
bool is_ollama_store(const std::string& folder);

/// A model for every manifest, broken ones with their problem. Cost: each manifest is read, at most
/// 1 MiB of it; blobs are not.
std::vector<FoundModel> models_of_ollama(const std::string& folder, const WalkLimits& limits,
                                         std::vector<std::string>& notes);

}  // namespace pagewise::stores
