// SPDX-License-Identifier: Apache-2.0
#include "stores/file_models.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "base/text_file.h"
#include "gguf/split_name.h"

namespace pagewise::stores {
namespace {

constexpr std::string_view kHubPrefix = "models--";
constexpr std::size_t kExtensionBytes = 5;  // ".gguf"

std::string_view last_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string_view folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

/// "models--org--name" is "org/name".
std::string repository_of(std::string_view folder) {
  std::string out;
  for (std::string_view rest = folder.substr(kHubPrefix.size());;) {
    const std::size_t dashes = rest.find("--");
    out += rest.substr(0, dashes);
    if (dashes == std::string_view::npos) return out;
    out += '/';
    rest = rest.substr(dashes + 2);
  }
}

/// Files of one model: one, or the parts that are there of a split one.
struct Group {
  FoundFile first;
  uint32_t first_number = 1;
  uint32_t parts = 1;
  uint64_t bytes = 0;
  std::string stem;      // without folders, extension and number of the part
  std::string relative;  // the same with folders
};

std::vector<Group> group_parts(std::vector<FoundFile> files) {
  std::vector<Group> groups;
  std::map<std::pair<std::string, uint32_t>, std::size_t> split;  // stem and count, to its group
  for (FoundFile& file : files) {
    const auto name = gguf::parse_split_name(file.relative);
    Group group;
    group.relative =
        name ? name->stem : file.relative.substr(0, file.relative.size() - kExtensionBytes);
    group.stem = last_of(group.relative);
    group.bytes = file.bytes;
    group.first = std::move(file);
    if (name) {
      group.parts = name->count;
      group.first_number = name->number;
      const auto [at, is_new] = split.try_emplace({name->stem, name->count}, groups.size());
      if (!is_new) {
        Group& known = groups[at->second];
        known.bytes += group.bytes;
        if (group.first_number < known.first_number) {
          known.first = std::move(group.first);
          known.first_number = group.first_number;
        }
        continue;
      }
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

/// llama.cpp's older cache has a repository's name in that of the file: ORG_NAME-GGUF_FILE.
void split_flat_name(std::string& repository, std::string& stem) {
  constexpr std::string_view kMark = "-gguf_";
  const std::size_t mark = lower(stem).find(kMark);
  const std::size_t owner = stem.find('_');
  if (mark == std::string::npos || owner == std::string::npos || owner == 0 || owner >= mark) {
    return;
  }
  repository = stem.substr(0, owner) + "/" + stem.substr(owner + 1, mark + 5 - owner - 1);
  stem = stem.substr(mark + kMark.size());
}

FoundModel make_model(StoreKind store, std::string repository, const Group& group) {
  FoundModel out;
  out.store = store;
  out.path = group.first.path;
  out.parts = group.parts;
  out.bytes = group.bytes;
  out.device = group.first.device;
  out.inode = group.first.inode;

  std::string stem = group.stem;
  const std::string file_stem = stem;
  if (repository.empty()) repository = folder_of(group.relative);
  if (repository.empty()) split_flat_name(repository, stem);
  const std::string quantisation(quantisation_of(stem));
  out.whole_names = {stem, stem + ".gguf", group.relative, group.relative + ".gguf"};
  if (file_stem != stem) out.whole_names.push_back(file_stem);
  if (!repository.empty()) {
    out.whole_names.push_back(repository + "/" + stem);
    out.whole_names.push_back(repository + "/" + stem + ".gguf");
    const std::string own(last_of(repository));
    out.bases = {repository, own};
    if (lower(own).ends_with("-gguf")) {
      out.bases.push_back(own.substr(0, own.size() - 5));
      out.bases.push_back(repository.substr(0, repository.size() - 5));
    }
  }
  if (!quantisation.empty() && quantisation.size() + 1 < stem.size()) {
    out.bases.push_back(stem.substr(0, stem.size() - quantisation.size() - 1));
    out.tags.push_back(quantisation);
  }
  out.tags.push_back(stem);
  out.long_name = repository.empty() ? group.relative : repository + "/" + stem;
  out.name = repository.empty()     ? stem
             : quantisation.empty() ? repository + "/" + stem
                                    : repository + ":" + quantisation;
  return out;
}

/// The commits in a repository's folder, the one that refs/main names first.
std::vector<std::string> snapshots_in(const std::string& folder, const WalkLimits& limits,
                                      std::vector<std::string>& notes) {
  if (!is_folder(folder + "/snapshots")) return {};
  std::vector<std::string> commits = folders_in(folder + "/snapshots", limits, notes);
  std::string current;
  if (const auto text = read_text_file(folder + "/refs/main", "a commit", 256)) {
    current = text->substr(0, text->find_first_of(" \r\n"));
  }
  const auto at = std::find(commits.begin(), commits.end(), current);
  if (at != commits.end()) std::rotate(commits.begin(), at, at + 1);
  return commits;
}

void add_repository(StoreKind store, const std::string& folder, const WalkLimits& limits,
                    std::vector<FoundModel>& models, std::vector<std::string>& notes) {
  std::set<std::string> seen;  // what a newer snapshot has, too
  for (const std::string& commit : snapshots_in(folder, limits, notes)) {
    Walk walk = walk_folder(folder + "/snapshots/" + commit, {}, limits);
    notes.insert(notes.end(), walk.notes.begin(), walk.notes.end());
    for (const Group& group : group_parts(std::move(walk.files))) {
      if (!seen.insert(group.relative).second) continue;
      models.push_back(make_model(store, repository_of(last_of(folder)), group));
    }
  }
}

/// Two files of one repository may have the same ending: then each is listed by its own name.
void tell_apart(std::vector<FoundModel>& models) {
  std::map<std::string, uint32_t> uses;
  for (const FoundModel& model : models) ++uses[lower(model.name)];
  for (FoundModel& model : models) {
    if (uses[lower(model.name)] < 2) continue;
    model.name = model.long_name;
  }
}

}  // namespace

std::string_view quantisation_of(std::string_view stem) {
  const std::size_t cut = stem.find_last_of("-.");
  const std::string_view end = stem.substr(cut == std::string_view::npos ? 0 : cut + 1);
  const std::string text = lower(end);
  const auto digit = [&](std::size_t at) {
    return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
  };
  for (const std::string_view mark : {"iq", "tq", "q", "bf", "f", "fp", "mxfp", "nvfp"}) {
    if (text.starts_with(mark) && digit(mark.size())) return end;
  }
  return {};
}

std::vector<FoundModel> models_of_files(const Location& location, const WalkLimits& limits,
                                        std::vector<std::string>& notes) {
  std::vector<FoundModel> models;
  const auto is_hub = [](std::string_view name) { return name.starts_with(kHubPrefix); };
  for (const std::string& name : folders_in(location.path, limits, notes)) {
    if (is_hub(name)) {
      add_repository(location.kind, location.path + "/" + name, limits, models, notes);
    }
  }
  Walk walk = walk_folder(location.path, is_hub, limits);
  for (const std::string& note : walk.notes) {
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
  }
  for (const Group& group : group_parts(std::move(walk.files))) {
    models.push_back(make_model(location.kind, "", group));
  }
  tell_apart(models);
  return models;
}

}  // namespace pagewise::stores
