// SPDX-License-Identifier: Apache-2.0
#include "stores/ollama.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "base/result.h"
#include "base/text_file.h"

namespace pagewise::stores {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kManifestBytesMax = std::size_t{1} << 20;
constexpr std::string_view kDefaultHost = "registry.ollama.ai";
constexpr std::string_view kDefaultNamespace = "library";
constexpr std::string_view kDefaultTag = "latest";
constexpr std::string_view kManifestList = "application/vnd.ollama.manifest.list.v2+json";

std::string_view text_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string())
                                                : std::string_view();
}

const json::array* array_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr ? value->if_array() : nullptr;
}

/// The file of a digest; empty for what is none, so that no digest leads out of the folder.
std::string blob_path(const std::string& folder, std::string_view digest) {
  constexpr std::string_view kPrefix = "sha256";
  constexpr std::size_t kHex = 64;
  const auto hex = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  if (digest.size() != kPrefix.size() + 1 + kHex || !digest.starts_with(kPrefix) ||
      (digest[kPrefix.size()] != ':' && digest[kPrefix.size()] != '-') ||
      !std::all_of(digest.end() - kHex, digest.end(), hex)) {
    return "";
  }
  const std::string_view name = digest.substr(kPrefix.size() + 1);
  const std::string path = fmt::format("{}/blobs/sha256-{}", folder, name);
  // Before version 0.1.30 the name had a colon.
  const std::string old_path = fmt::format("{}/blobs/sha256:{}", folder, name);
  std::error_code error;
  return !fs::exists(path, error) && fs::exists(old_path, error) ? old_path : path;
}

/// Errors: what is wrong with a manifest, as the end of a sentence about it.
Result<json::object> read_object(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return Error{ErrorCode::kIo,
                 fmt::format("cannot be read: {}", std::generic_category().message(errno))};
  }
  if (!S_ISREG(info.st_mode)) return Error{ErrorCode::kMalformed, "is no file"};
  if (static_cast<uint64_t>(info.st_size) > kManifestBytesMax) {
    return Error{ErrorCode::kMalformed, "is larger than any manifest"};
  }
  const auto text = read_text_file(path, "a manifest", kManifestBytesMax);
  if (!text) return Error{ErrorCode::kIo, "cannot be read"};
  const auto parsed = parse_json(*text);
  if (!parsed || !parsed->is_object()) {
    return Error{ErrorCode::kMalformed, "is not a JSON object"};
  }
  return parsed->get_object();
}

/// Of a list the manifest whose runner reads GGUF files; anything else is its own.
Result<json::object> manifest_to_run(const std::string& folder, json::object manifest) {
  const json::array* children = array_at(manifest, "manifests");
  if (text_at(manifest, "mediaType") != kManifestList && children == nullptr) return manifest;
  if (children == nullptr) return Error{ErrorCode::kMalformed, "is a list without entries"};
  for (const std::string_view runner : {"ollama", "llamacpp"}) {
    for (const json::value& child : *children) {
      if (!child.is_object() || text_at(child.get_object(), "runner") != runner) continue;
      const json::object& found = child.get_object();
      if (array_at(found, "layers") != nullptr) return found;
      const std::string path = blob_path(folder, text_at(found, "digest"));
      if (path.empty()) return Error{ErrorCode::kMalformed, "has an entry without a digest"};
      return read_object(path);
    }
  }
  return Error{ErrorCode::kUnsupported, "is only for runners that read no GGUF files"};
}

/// The path of its weights. Errors: why there are none to open, as a short clause.
Result<std::string> weights_of(const std::string& folder, const std::string& manifest_path) {
  auto read = read_object(manifest_path);
  if (!read) return Error{read.error().code, "its manifest " + read.error().message};
  auto chosen = manifest_to_run(folder, *std::move(read));
  if (!chosen) return Error{chosen.error().code, "its manifest " + chosen.error().message};
  const json::array* layers = array_at(*chosen, "layers");
  if (layers == nullptr) return Error{ErrorCode::kMalformed, "its manifest names no layers"};
  std::vector<std::string_view> weights;
  bool adapter = false, tensors = false;
  for (const json::value& layer : *layers) {
    if (!layer.is_object()) return Error{ErrorCode::kMalformed, "its manifest names odd layers"};
    const std::string_view type = text_at(layer.get_object(), "mediaType");
    if (type == "application/vnd.ollama.image.model") {
      weights.push_back(text_at(layer.get_object(), "digest"));
    }
    adapter = adapter || type == "application/vnd.ollama.image.adapter";
    tensors = tensors || type == "application/vnd.ollama.image.tensor";
  }
  if (adapter) return Error{ErrorCode::kUnsupported, "LoRA adapters are not supported"};
  if (weights.empty()) {
    return Error{ErrorCode::kUnsupported,
                 tensors ? "safetensors, not GGUF" : "its manifest names no model"};
  }
  if (weights.size() > 1) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("its weights are in {} blobs", weights.size())};
  }
  std::string path = blob_path(folder, weights.front());
  if (path.empty()) return Error{ErrorCode::kMalformed, "its manifest names no SHA-256"};
  return path;
}

struct Name {
  std::string host, owner, model, tag;
};

FoundModel make_model(const std::string& folder, const std::string& manifest, const Name& name) {
  FoundModel out;
  out.store = StoreKind::kOllama;
  const std::string owned = name.owner + "/" + name.model;
  const std::string full = name.host + "/" + owned;
  const std::string& shown = name.host != kDefaultHost         ? full
                             : name.owner != kDefaultNamespace ? owned
                                                               : name.model;
  out.name = shown + ":" + name.tag;
  out.bases = {name.model, owned, full};
  out.tags = {name.tag};
  if (name.tag == kDefaultTag) out.whole_names = {shown};

  const auto weights = weights_of(folder, manifest);
  out.path = weights ? *weights : manifest;
  if (!weights) {
    out.problem = weights.error().message;
    return out;
  }
  struct stat info {};
  if (stat(out.path.c_str(), &info) != 0) {
    out.problem = fmt::format("its blob: {}", std::generic_category().message(errno));
    return out;
  }
  out.bytes = static_cast<uint64_t>(info.st_size);
  out.device = info.st_dev;
  out.inode = info.st_ino;
  return out;
}

/// Names of what is in a folder that is no folder itself.
std::vector<std::string> manifests_in(const std::string& folder, const WalkLimits& limits,
                                      std::vector<std::string>& notes) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with('.') && !is_folder(at->path().string())) names.push_back(name);
    if (names.size() > limits.entries_max) break;
  }
  if (error) notes.push_back(fmt::format("{}: {}", folder, error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

bool is_ollama_store(const std::string& folder) {
  return is_folder(folder + "/blobs") &&
         (is_folder(folder + "/manifests") || is_folder(folder + "/manifests-v2"));
}

std::vector<FoundModel> models_of_ollama(const std::string& folder, const WalkLimits& limits,
                                         std::vector<std::string>& notes) {
  std::vector<FoundModel> out;
  std::set<std::string> names;
  for (const char* generation : {"manifests-v2", "manifests"}) {
    const std::string root = path_in(folder, generation);
    if (!is_folder(root)) continue;
    for (const std::string& host : folders_in(root, limits, notes)) {
      const std::string of_host = path_in(root, host);
      for (const std::string& owner : folders_in(of_host, limits, notes)) {
        const std::string owned = path_in(of_host, owner);
        for (const std::string& model : folders_in(owned, limits, notes)) {
          const std::string tags = path_in(owned, model);
          for (const std::string& tag : manifests_in(tags, limits, notes)) {
            if (out.size() >= limits.entries_max) return out;
            // The newer manifest of a name is found first; the older one is not read.
            if (!names.insert(fmt::format("{}/{}/{}:{}", host, owner, model, tag)).second) continue;
            out.push_back(make_model(folder, path_in(tags, tag), {host, owner, model, tag}));
          }
        }
      }
    }
  }
  return out;
}

}  // namespace pagewise::stores
