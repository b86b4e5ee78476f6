// SPDX-License-Identifier: Apache-2.0
// `pagewise models`: the models that are on this machine already, and which of them can be served.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"
#include "base/system_memory.h"
#include "cli/commands.h"
#include "cli/json_values.h"
#include "cli/model_argument.h"
#include "cli/model_listing.h"
#include "cli/process.h"
#include "cli/terminal_text.h"
#include "stores/find.h"

namespace pagewise::cli {
namespace {

constexpr std::size_t kNameShown = 80, kProblemShown = 160, kNotesShown = 20;

struct ModelsFlags {
  std::vector<std::string> folders;
  bool json = false;
};

std::string listing_json(const std::vector<ListedModel>& models, const stores::Findings& findings,
                         uint64_t available) {
  json::array rows;
  for (const ListedModel& model : models) {
    const bool served = model.problem.empty();
    rows.push_back(json::object{
        {"name", well_formed(model.found.name)},
        {"store", stores::store_name(model.found.store)},
        {"path", well_formed(model.found.path)},
        {"parts", model.found.parts},
        {"bytes", model.found.bytes},
        {"type", text_or_null(model.type)},
        {"architecture", text_or_null(model.architecture)},
        {"context", number_or_null(model.context)},
        {"kv_bytes_per_token", number_or_null(model.kv_token_bytes)},
        {"served", served},
        {"problem", text_or_null(model.problem)},
        {"fits_now", served ? json::value(model.fits) : json::value(nullptr)},
        {"context_now", model.fits ? json::value(model.context_now) : json::value(nullptr)},
        {"bytes_needed", served ? json::value(model.bytes_needed) : json::value(nullptr)}});
  }
  json::array places;
  for (const stores::Location& location : findings.searched) {
    places.push_back(json::object{{"store", stores::store_name(location.kind)},
                                  {"path", well_formed(location.path)}});
  }
  return json::serialize(json::object{{"models", std::move(rows)},
                                      {"searched", std::move(places)},
                                      {"notes", strings_json(findings.notes)},
                                      {"memory_available", available}});
}

std::string fits_text(const ListedModel& model, uint64_t available) {
  if (!model.problem.empty()) return "not served: " + one_line(model.problem, kProblemShown);
  if (!model.fits) {
    return fmt::format("no: takes {} and more, {} are free", format_size(model.bytes_needed),
                       format_size(available));
  }
  return model.context_now == model.context ? std::string("yes")
                                            : fmt::format("yes, {} tokens", model.context_now);
}

/// How many columns a text takes on a terminal, near enough: bytes that begin a character.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

std::string table(const std::vector<ListedModel>& models, uint64_t available) {
  constexpr std::size_t kColumns = 7;
  using Row = std::array<std::string, kColumns>;
  std::vector<Row> rows = {
      {"NAME", "TYPE", "SIZE", "ARCHITECTURE", "CONTEXT", "KV/TOKEN", "FITS NOW"}};
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  for (const ListedModel& model : models) {
    rows.push_back({one_line(model.found.name, kNameShown), or_dash(one_line(model.type, 20)),
                    model.found.bytes == 0 ? "-" : format_size(model.found.bytes),
                    or_dash(one_line(model.architecture, 20)),
                    model.context ? std::to_string(*model.context) : "-",
                    model.kv_token_bytes ? format_size(*model.kv_token_bytes) : "-",
                    fits_text(model, available)});
  }
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < kColumns; ++i) {
      out += row[i];
      if (i + 1 < kColumns) out.append(widths[i] - width_of(row[i]) + 2, ' ');
    }
    out += '\n';
  }
  return out;
}

std::string listing_text(const std::vector<ListedModel>& models, const stores::Findings& findings,
                         uint64_t available) {
  std::string out;
  if (!models.empty()) out = table(models, available) + "\n";
  if (findings.searched.empty()) {
    out +=
        "No store of Ollama, Hugging Face, LM Studio or llama.cpp is there; --model-dir names "
        "another folder.\n";
  } else {
    out += models.empty() ? "No model in" : "Looked in";
    for (const stores::Location& location : findings.searched) {
      out += fmt::format("{} {} ({})", &location == &findings.searched.front() ? "" : ",",
                         one_line(location.path, 300), stores::store_name(location.kind));
    }
    out += ".\n";
  }
  const std::size_t shown = std::min(findings.notes.size(), kNotesShown);
  for (std::size_t i = 0; i < shown; ++i) {
    out += fmt::format("Not read: {}\n", one_line(findings.notes[i], 400));
  }
  if (findings.notes.size() > shown) {
    out += fmt::format("Not read: {} more; --json has all\n", findings.notes.size() - shown);
  }
  return out;
}

Status list_models(const ModelsFlags& flags) {
  PW_ASSIGN_OR_RETURN(const uint64_t available, available_memory());
  stores::Findings findings = stores::find_models(model_locations(flags.folders));
  std::vector<ListedModel> models;
  for (stores::FoundModel& found : findings.models) models.push_back(list_model(std::move(found)));
  // Those that can be served first.
  std::stable_sort(models.begin(), models.end(), [](const ListedModel& a, const ListedModel& b) {
    return a.problem.empty() > b.problem.empty();
  });
  if (flags.json) {
    fmt::print("{}\n", listing_json(models, findings, available));
  } else {
    fmt::print("{}", listing_text(models, findings, available));
  }
  return Status::ok();
}

}  // namespace

void add_models_command(CLI::App& app, int& exit_status) {
  const auto flags = std::make_shared<ModelsFlags>();
  CLI::App* command = app.add_subcommand(
      "models",
      "The models that Ollama, Hugging Face, LM Studio and llama.cpp have on this machine");
  add_model_dir_flag(*command, flags->folders);
  command->add_flag("--json", flags->json, "One JSON object");
  command->callback([flags, &exit_status] { finish("models", list_models(*flags), exit_status); });
}

}  // namespace pagewise::cli
