// SPDX-License-Identifier: Apache-2.0
// A layout from the config.json of a model in Hugging Face's form, or from its `text_config` where
// it reads images or sound, too.
//
// What a key means, and what holds where it is absent, is what the configuration class of the
// model's type in transformers 5.24 says (models/TYPE/configuration_TYPE.py). The size of a layer
// that is absent at the top is an error all the same, because a saved configuration has it; in a
// `text_config` it is the class's default, because transformers leaves such keys out there.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "planner/layout.h"

namespace pagewise::planner {

/// `path` begins the messages. Errors: kMalformed for what is no JSON object, a key that is missing
/// or makes no sense; kUnsupported naming a model_type or kind of layer that is not known, and
/// encoder-decoders.
Result<Layout> layout_from_config(std::string_view text, const std::string& path);

/// The same with a file. Where it lies beside the weights (model.safetensors.index.json, or
/// model.safetensors alone), their size is taken from there, else from the configuration
/// (hf_weights.h). Errors: also kIo; kMalformed for an
/// index that tells no size.
Result<Layout> layout_from_config_path(const std::string& path);

/// "llama, mistral, ...", for messages.
std::string config_types_known();

}  // namespace pagewise::planner
