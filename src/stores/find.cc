// SPDX-License-Identifier: Apache-2.0
#include "stores/find.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "stores/file_models.h"
#include "stores/ollama.h"

namespace pagewise::stores {
namespace {

constexpr std::size_t kShownMax = 5;
constexpr std::size_t kNearMax = 3;

bool equal(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

bool any_equal(const std::vector<std::string>& names, std::string_view name) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& one) { return equal(one, name); });
}

struct Asked {
  std::string_view whole, base, tag;  // tag: empty without
};

Asked parse_asked(std::string_view name) {
  const std::size_t colon = name.rfind(':');
  // A colon in front of a slash belongs to a host's port.
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == name.size() ||
      name.find('/', colon) != std::string_view::npos) {
    return {name, name, {}};
  }
  return {name, name.substr(0, colon), name.substr(colon + 1)};
}

/// How well a name fits, 0 best; kNoFit.
constexpr int kNoFit = 9;
int fit_of(const FoundModel& model, const Asked& asked) {
  if (equal(model.name, asked.whole)) return 0;
  if (any_equal(model.whole_names, asked.whole)) return 1;
  if (!asked.tag.empty()) {
    return any_equal(model.bases, asked.base) && any_equal(model.tags, asked.tag) ? 2 : kNoFit;
  }
  return any_equal(model.bases, asked.base) ? 3 : kNoFit;
}

/// Letters and digits alone, small.
std::string folded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) out.push_back(static_cast<char>(std::tolower(byte)));
  }
  return out;
}

/// Levenshtein's: insertions, deletions and substitutions.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

/// How far a name is from what was asked; empty where it is another name altogether.
std::optional<std::size_t> nearness(const FoundModel& model, const Asked& asked) {
  std::optional<std::size_t> best;
  const auto offer = [&](std::string_view name, std::string_view wanted) {
    const std::string a = folded(name).substr(0, 200);
    const std::string b = folded(wanted).substr(0, 200);
    if (a.empty() || b.empty()) return;
    std::size_t far = distance(a, b);
    const bool inside = b.size() >= 3 && a.find(b) != std::string::npos;
    const std::size_t allowed = std::max<std::size_t>(2, b.size() / 4);
    if (!inside && far > allowed) return;
    if (inside) far = std::min<std::size_t>(far, allowed);
    if (!best || far < *best) best = far;
  };
  offer(model.name, asked.whole);
  for (const std::string& base : model.bases) offer(base, asked.base);
  for (const std::string& whole : model.whole_names) offer(whole, asked.base);
  return best;
}

std::string shown(std::string_view text) {
  constexpr std::size_t kBytesMax = 200;
  std::string out;
  for (const char c : text.substr(0, kBytesMax)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return text.size() > kBytesMax ? out + "..." : out;
}

Error not_found(const Findings& findings, const Asked& asked) {
  std::string where = "no model store is there (Ollama, Hugging Face, LM Studio, llama.cpp)";
  if (!findings.searched.empty()) {
    std::vector<std::string> places;
    for (const Location& location : findings.searched) {
      places.push_back(location.kind == StoreKind::kFolder
                           ? location.path
                           : fmt::format("{} ({})", store_name(location.kind), location.path));
    }
    where = fmt::format("no model of that name in {}", fmt::join(places, ", "));
  }
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const FoundModel& model : findings.models) {
    if (const auto far = nearness(model, asked)) near.emplace_back(*far, model.name);
  }
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  std::vector<std::string> names;
  for (const auto& [far, name] : near) {
    if (names.size() < kNearMax) names.push_back(name);
  }
  return {ErrorCode::kNotFound,
          fmt::format("{}: no such file, and {}{}", shown(asked.whole), where,
                      names.empty() ? std::string("; `pagewise models` lists what there is")
                                    : fmt::format("; near: {}", fmt::join(names, ", ")))};
}

Error ambiguous(const Asked& asked, const std::vector<const FoundModel*>& fits) {
  std::vector<std::string> names;
  for (const FoundModel* model : fits) {
    const auto same_name = [&](const FoundModel* other) { return equal(other->name, model->name); };
    const bool unique = std::count_if(fits.begin(), fits.end(), same_name) == 1;
    names.push_back(unique ? model->name : model->path);
  }
  const std::size_t more = names.size() - std::min(names.size(), kShownMax);
  names.resize(names.size() - more);
  return {ErrorCode::kInvalidArgument,
          fmt::format("{}: {} models have that name; give one of: {}{}", shown(asked.whole),
                      fits.size(), fmt::join(names, ", "),
                      more == 0 ? "" : fmt::format(" and {} more", more))};
}

}  // namespace

Findings find_models(std::span<const Location> locations, const WalkLimits& limits) {
  Findings out;
  for (const Location& location : locations) {
    if (!is_folder(location.path)) continue;
    out.searched.push_back(location);
    std::vector<FoundModel> models = is_ollama_store(location.path)
                                         ? models_of_ollama(location.path, limits, out.notes)
                                         : models_of_files(location, limits, out.notes);
    std::sort(models.begin(), models.end(), [](const FoundModel& a, const FoundModel& b) {
      return std::tie(a.name, a.path) < std::tie(b.name, b.path);
    });
    std::move(models.begin(), models.end(), std::back_inserter(out.models));
  }
  return out;
}

Result<FoundModel> resolve(const Findings& findings, std::string_view name) {
  const Asked asked = parse_asked(name);
  int best = kNoFit;
  std::vector<const FoundModel*> fits;
  for (const FoundModel& model : findings.models) {
    const int fit = fit_of(model, asked);
    if (fit > best || fit == kNoFit) continue;
    if (fit < best) fits.clear();
    best = fit;
    fits.push_back(&model);
  }
  if (fits.empty()) return not_found(findings, asked);
  // One that can be opened is meant rather than one that cannot; and one file is one model.
  const auto broken = [](const FoundModel* model) { return !model->problem.empty(); };
  if (!std::all_of(fits.begin(), fits.end(), broken)) std::erase_if(fits, broken);
  std::vector<const FoundModel*> files;
  for (const FoundModel* model : fits) {
    const auto same = [&](const FoundModel* other) {
      return model->inode != 0 && model->inode == other->inode && model->device == other->device;
    };
    if (std::none_of(files.begin(), files.end(), same)) files.push_back(model);
  }
  if (files.size() > 1) return ambiguous(asked, files);
  const FoundModel& found = *files.front();
  if (found.problem.empty()) return found;
  return Error{ErrorCode::kUnsupported,
               fmt::format("{}: {} ({})", found.name, found.problem, found.path)};
}

}  // namespace pagewise::stores
