// SPDX-License-Identifier: Apache-2.0
// Where other programs keep GGUF files on this machine.
//
// Sources, each as of 2026: Ollama's envconfig and manifest packages; huggingface_hub's constants;
// LM Studio's documentation of its models directory; llama.cpp's common/common.cpp and
// common/hf-cache.cpp.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pagewise::stores {

enum class StoreKind { kOllama, kHuggingFace, kLmStudio, kLlamaCpp, kFolder };

/// "Ollama", "Hugging Face", ...; "folder" for what a person named.
std::string_view store_name(StoreKind kind);

struct Location {
  StoreKind kind = StoreKind::kFolder;
  std::string path;

  bool operator==(const Location&) const = default;
};

/// Adds a place once, without slashes at its end.
void add_location(std::vector<Location>& out, StoreKind kind, std::string path);

/// The value of an environment variable; empty when it is not set or empty.
using Environment = std::function<std::string(const char* name)>;
/// This process's own.
std::string process_environment(const char* name);

/// The stores that are looked at, whether they are there or not, in the order above:
///   Ollama        $OLLAMA_MODELS; else ~/.ollama/models and, as the service of the Linux package
///                 has it, /usr/share/ollama/.ollama/models
///   Hugging Face  $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
///                 $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub: the first that is
///                 set
///   LM Studio     the folder that ~/.lmstudio-home-pointer names, ~/.lmstudio, ~/.cache/lm-studio:
///                 /models in each
///   llama.cpp     $LLAMA_CACHE, $XDG_CACHE_HOME/llama.cpp or ~/.cache/llama.cpp: the first that is
///                 set
std::vector<Location> usual_locations(const Environment& environment);

}  // namespace pagewise::stores
