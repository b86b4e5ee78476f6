// SPDX-License-Identifier: Apache-2.0
// Models that are files in folders: Hugging Face's hub cache, LM Studio's folders, llama.cpp's
// cache, and whatever folder a person names.
//
//   hub         models--ORG--NAME/snapshots/COMMIT/FILE, links into ../../blobs; refs/main has the
//               commit that counts. llama.cpp's newer cache has the same form.
//   LM Studio   PUBLISHER/MODEL/FILE
//   llama.cpp   ORG_NAME_FILE in one folder, in its older cache
//
// The parts of a split model (gguf/split_name.h) are one model.
#pragma once

#include <string>
#include <vector>

#include "stores/found_model.h"
#include "stores/walk.h"

namespace pagewise::stores {

/// The models in `location`, whatever of these forms they are in; each file once a repository.
std::vector<FoundModel> models_of_files(const Location& location, const WalkLimits& limits,
                                        std::vector<std::string>& notes);

}  // namespace pagewise::stores
