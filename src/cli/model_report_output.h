// SPDX-License-Identifier: Apache-2.0
// A report on a model file as text for people and as JSON for programs. Whatever stands in the file
// drives no terminal and makes no invalid JSON.
#pragma once

#include <string>

#include "cli/model_report.h"
#include "gguf/gguf.h"

namespace pagewise::cli {

/// Aligned lines; long texts and arrays of the metadata abbreviated.
std::string report_text(const ModelReport& report, const gguf::File& file);

/// One object on one line, complete: all metadata with whole arrays, every tensor. docs/flags.md
/// lists the keys.
std::string report_json(const ModelReport& report, const gguf::File& file);

}  // namespace pagewise::cli
