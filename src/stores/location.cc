// SPDX-License-Identifier: Apache-2.0
#include "stores/location.h"

#include <algorithm>
#include <cstdlib>

#include "base/text_file.h"

namespace pagewise::stores {
namespace {

constexpr std::string_view kOllamaService = "/usr/share/ollama/.ollama/models";

/// The first line of a small file; empty when it cannot be read.
std::string first_line(const std::string& path) {
  const auto text = read_text_file(path, "a file", 4096);
  return text ? text->substr(0, text->find_first_of("\r\n")) : std::string();
}

}  // namespace

std::string_view store_name(StoreKind kind) {
  switch (kind) {
    case StoreKind::kOllama:
      return "Ollama";
    case StoreKind::kHuggingFace:
      return "Hugging Face";
    case StoreKind::kLmStudio:
      return "LM Studio";
    case StoreKind::kLlamaCpp:
      return "llama.cpp";
    case StoreKind::kFolder:
      return "folder";
  }
  return "";
}

void add_location(std::vector<Location>& out, StoreKind kind, std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  Location location{kind, std::move(path)};
  if (std::find(out.begin(), out.end(), location) == out.end()) out.push_back(std::move(location));
}

std::string process_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::vector<Location> usual_locations(const Environment& environment) {
  const std::string home = environment("HOME");
  std::vector<Location> out;
  const auto add = [&out](StoreKind kind, std::string path) {
    add_location(out, kind, std::move(path));
  };
  /// `path` with a leading "~" as the home folder; as a shell would have done it.
  const auto at_home = [&home](const std::string& path) {
    return path.starts_with("~/") && !home.empty() ? home + path.substr(1) : path;
  };
  std::string cache = environment("XDG_CACHE_HOME");
  if (cache.empty() && !home.empty()) cache = home + "/.cache";

  if (const std::string models = environment("OLLAMA_MODELS"); !models.empty()) {
    add(StoreKind::kOllama, at_home(models));
  } else {
    if (!home.empty()) add(StoreKind::kOllama, home + "/.ollama/models");
    add(StoreKind::kOllama, std::string(kOllamaService));
  }

  if (const std::string hub = environment("HF_HUB_CACHE"); !hub.empty()) {
    add(StoreKind::kHuggingFace, at_home(hub));
  } else if (const std::string old = environment("HUGGINGFACE_HUB_CACHE"); !old.empty()) {
    add(StoreKind::kHuggingFace, at_home(old));
  } else if (const std::string hf = environment("HF_HOME"); !hf.empty()) {
    add(StoreKind::kHuggingFace, at_home(hf) + "/hub");
  } else if (!cache.empty()) {
    add(StoreKind::kHuggingFace, cache + "/huggingface/hub");
  }

  if (!home.empty()) {
    if (const std::string own = first_line(home + "/.lmstudio-home-pointer"); !own.empty()) {
      add(StoreKind::kLmStudio, at_home(own) + "/models");
    }
    add(StoreKind::kLmStudio, home + "/.lmstudio/models");
    add(StoreKind::kLmStudio, home + "/.cache/lm-studio/models");
  }

  if (const std::string llama = environment("LLAMA_CACHE"); !llama.empty()) {
    add(StoreKind::kLlamaCpp, at_home(llama));
  } else if (!cache.empty()) {
    add(StoreKind::kLlamaCpp, cache + "/llama.cpp");
  }
  return out;
}

}  // namespace pagewise::stores
