// SPDX-License-Identifier: Apache-2.0
// `pagewise plan`: flags to a PlanInput, a Plan to text or JSON. Options arrive as text and are
// parsed here, so that all mistakes are reported in one form.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/model_argument.h"
#include "cli/process.h"
#include "planner/plan.h"
#include "planner/plan_output.h"

namespace pagewise::cli {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitDoesNotFit = 3;

/// What was typed; empty where nothing was.
struct PlanFlags {
  std::string source, layers, kv_heads, head_dim, value_dim, window, full_every;
  std::string kv_type = "f16", kv_type_k, kv_type_v;
  std::string block_tokens = "32", tokens, batch, memory, requests, mib_per_token;
  std::string prefix_tokens, calls, read_price = "0.1", write_price = "1";
  std::vector<std::string> folders;
  bool json = false;
};

Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

Result<uint64_t> parse_whole(std::string_view flag, std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return invalid(fmt::format("{}: '{}' is not a whole number", flag, text));
  }
  return value;
}

Result<uint32_t> parse_count(std::string_view flag, std::string_view text, uint64_t max) {
  PW_ASSIGN_OR_RETURN(const uint64_t value, parse_whole(flag, text));
  if (value < 1 || value > max) {
    return invalid(fmt::format("{}: {} is not in 1 to {}", flag, value, max));
  }
  return static_cast<uint32_t>(value);
}

Result<double> parse_real(std::string_view flag, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return invalid(fmt::format("{}: '{}' is not a number", flag, text));
  }
  return value;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0;;) {
    const std::size_t comma = text.find(',', at);
    parts.push_back(text.substr(at, comma - at));
    if (comma == std::string_view::npos) return parts;
    at = comma + 1;
  }
}

Result<std::vector<uint64_t>> parse_list(std::string_view flag, std::string_view text) {
  std::vector<uint64_t> values;
  for (const std::string_view part : split(text)) {
    PW_ASSIGN_OR_RETURN(const uint64_t value, parse_whole(flag, part));
    values.push_back(value);
  }
  return values;
}

Result<std::vector<planner::RequestShape>> parse_requests(std::string_view text) {
  std::vector<planner::RequestShape> requests;
  for (const std::string_view part : split(text)) {
    const std::size_t slash = part.find('/');
    if (slash == std::string_view::npos) {
      return invalid(fmt::format("--requests: '{}' is not USED/MAXIMUM", part));
    }
    planner::RequestShape request;
    PW_ASSIGN_OR_RETURN(request.used, parse_whole("--requests", part.substr(0, slash)));
    PW_ASSIGN_OR_RETURN(request.maximum, parse_whole("--requests", part.substr(slash + 1)));
    requests.push_back(request);
  }
  return requests;
}

Result<const planner::KvFormat*> parse_format(std::string_view flag, std::string_view name) {
  const planner::KvFormat* format = planner::find_kv_format(name);
  if (format == nullptr) {
    return invalid(
        fmt::format("{}: '{}' is no KV type; known: {}", flag, name, planner::kv_format_names()));
  }
  return format;
}

Result<planner::Layout> layout_from_flags(const PlanFlags& flags) {
  planner::LayoutGroup group;
  PW_ASSIGN_OR_RETURN(const uint32_t layers,
                      parse_count("--layers", flags.layers, planner::kLayersMax));
  PW_ASSIGN_OR_RETURN(group.kv_heads,
                      parse_count("--kv-heads", flags.kv_heads, planner::kKvHeadsMax));
  PW_ASSIGN_OR_RETURN(group.key_dim,
                      parse_count("--head-dim", flags.head_dim, planner::kHeadDimMax));
  group.value_dim = group.key_dim;
  if (!flags.value_dim.empty()) {
    PW_ASSIGN_OR_RETURN(group.value_dim,
                        parse_count("--value-dim", flags.value_dim, planner::kHeadDimMax));
  }
  uint32_t full_every = 0;  // no layer keeps everything once there is a window
  if (!flags.full_every.empty()) {
    if (flags.window.empty()) return invalid("--full-every needs --window");
    PW_ASSIGN_OR_RETURN(full_every,
                        parse_count("--full-every", flags.full_every, planner::kLayersMax));
  }
  uint64_t window = 0;
  if (!flags.window.empty()) {
    PW_ASSIGN_OR_RETURN(window, parse_whole("--window", flags.window));
    if (window > planner::kTokensMax) {
      return invalid(fmt::format("--window: {} is not in 0 to {}", window, planner::kTokensMax));
    }
  }
  planner::Layout layout;
  const uint32_t full_layers = window == 0 ? layers : full_every == 0 ? 0 : layers / full_every;
  if (full_layers > 0) {
    group.layers = full_layers;
    planner::add_layer(layout, group);
  }
  if (full_layers < layers) {
    group.layers = layers - full_layers;
    group.window = static_cast<uint32_t>(window);
    planner::add_layer(layout, group);
  }
  return layout;
}

Result<std::optional<planner::Layout>> parse_layout(const PlanFlags& flags) {
  const std::pair<std::string_view, const std::string*> shape[] = {{"--layers", &flags.layers},
                                                                   {"--kv-heads", &flags.kv_heads},
                                                                   {"--head-dim", &flags.head_dim}};
  const bool any = std::any_of(std::begin(shape), std::end(shape),
                               [](const auto& flag) { return !flag.second->empty(); });
  if (!flags.source.empty()) {
    for (const auto& [flag, text] : shape) {
      if (!text->empty()) return invalid(fmt::format("{}: the file says it already", flag));
    }
    if (!flags.value_dim.empty() || !flags.full_every.empty()) {
      return invalid("--value-dim and --full-every go with --layers, not with a file");
    }
    PW_ASSIGN_OR_RETURN(const NamedModel named, find_model({flags.source, flags.folders}));
    PW_ASSIGN_OR_RETURN(planner::Layout layout, planner::layout_from_path(named.path));
    if (!flags.window.empty()) {
      // Another window would be another model; but "what if every layer kept everything" is a
      // question.
      if (flags.window != "0")
        return invalid("--window: with a file only 0 (no windows) makes sense");
      planner::Layout whole = layout;
      whole.groups.clear();
      for (planner::LayoutGroup group : layout.groups) {
        group.window = 0;
        planner::add_layer(whole, group);
      }
      layout = std::move(whole);
    }
    return std::optional(std::move(layout));
  }
  if (!any) {
    for (const auto& [flag, text] :
         {std::pair("--window", &flags.window), std::pair("--value-dim", &flags.value_dim),
          std::pair("--full-every", &flags.full_every)}) {
      if (!text->empty()) return invalid(fmt::format("{} needs --layers and the rest", flag));
    }
    return std::optional<planner::Layout>();
  }
  for (const auto& [flag, text] : shape) {
    if (text->empty()) {
      return invalid(
          fmt::format("{} is missing: --layers, --kv-heads and --head-dim go together", flag));
    }
  }
  PW_ASSIGN_OR_RETURN(planner::Layout layout, layout_from_flags(flags));
  return std::optional(std::move(layout));
}

/// Lengths to show when a file was named and nothing asked: usual ones, and the model's whole
/// context.
std::vector<uint64_t> usual_lengths(const planner::Layout& layout) {
  std::vector<uint64_t> lengths;
  if (!layout.context || *layout.context == 0 || *layout.context > planner::kTokensMax)
    return lengths;
  for (const uint64_t tokens : {1024, 4096, 8192}) {
    if (tokens < *layout.context) lengths.push_back(tokens);
  }
  lengths.push_back(*layout.context);
  return lengths;
}

Result<planner::PlanInput> parse_input(const PlanFlags& flags) {
  planner::PlanInput input;
  PW_ASSIGN_OR_RETURN(input.layout, parse_layout(flags));
  PW_ASSIGN_OR_RETURN(input.key_format, parse_format("--kv-type", flags.kv_type));
  input.value_format = input.key_format;
  if (!flags.kv_type_k.empty()) {
    PW_ASSIGN_OR_RETURN(input.key_format, parse_format("--kv-type-k", flags.kv_type_k));
  }
  if (!flags.kv_type_v.empty()) {
    PW_ASSIGN_OR_RETURN(input.value_format, parse_format("--kv-type-v", flags.kv_type_v));
  }
  PW_ASSIGN_OR_RETURN(const uint64_t block_tokens,
                      parse_whole("--block-tokens", flags.block_tokens));
  if (block_tokens != 16 && block_tokens != 32 && block_tokens != 64 && block_tokens != 128) {
    return invalid(fmt::format("--block-tokens: {} is not 16, 32, 64 or 128", block_tokens));
  }
  input.block_tokens = static_cast<uint32_t>(block_tokens);
  if (!flags.mib_per_token.empty()) {
    PW_ASSIGN_OR_RETURN(const double mib, parse_real("--mib-per-token", flags.mib_per_token));
    const double bytes = mib * static_cast<double>(kMiB);
    if (!(bytes >= 1 && bytes <= static_cast<double>(planner::kTokenBytesMax))) {
      return invalid(fmt::format("--mib-per-token: {} MiB is not in 1 byte to {}", mib,
                                 format_size(planner::kTokenBytesMax)));
    }
    input.token_bytes = static_cast<uint64_t>(std::llround(bytes));
  }
  if (!flags.tokens.empty()) {
    PW_ASSIGN_OR_RETURN(input.tokens, parse_list("--tokens", flags.tokens));
  }
  if (!flags.batch.empty()) {
    if (flags.tokens.empty()) return invalid("--batch needs --tokens: sequences of which length?");
    PW_ASSIGN_OR_RETURN(input.batches, parse_list("--batch", flags.batch));
  }
  if (!flags.memory.empty()) {
    const Result<uint64_t> memory = parse_size(flags.memory);
    if (!memory.has_value()) return invalid("--memory: " + memory.error().message);
    input.memory = *memory;
  }
  if (!flags.requests.empty()) {
    PW_ASSIGN_OR_RETURN(input.requests, parse_requests(flags.requests));
  }
  if (!flags.prefix_tokens.empty()) {
    PW_ASSIGN_OR_RETURN(input.prefix_tokens, parse_whole("--prefix-tokens", flags.prefix_tokens));
  }
  if (!flags.calls.empty()) {
    PW_ASSIGN_OR_RETURN(input.calls, parse_whole("--calls", flags.calls));
  }
  PW_ASSIGN_OR_RETURN(input.prices.read, parse_real("--read-price", flags.read_price));
  PW_ASSIGN_OR_RETURN(input.prices.write, parse_real("--write-price", flags.write_price));
  if (input.layout && input.tokens.empty() && input.requests.empty() && !input.calls) {
    input.tokens = usual_lengths(*input.layout);
  }
  return input;
}

int run_plan(const PlanFlags& flags) {
  const Result<planner::PlanInput> input = parse_input(flags);
  const Result<planner::Plan> plan =
      input.has_value() ? planner::make_plan(*input) : Result<planner::Plan>(input.error());
  if (!plan.has_value()) {
    fmt::print(stderr, "pagewise plan: {}\n", plan.error().message);
    return kExitUsage;
  }
  if (flags.json) {
    fmt::print("{}\n", planner::plan_json(*plan));
  } else {
    fmt::print("{}", planner::plan_text(*input, *plan));
  }
  return plan->fits.value_or(true) ? 0 : kExitDoesNotFit;
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_status) {
  CLI::App* plan = app.add_subcommand(
      "plan", "How much KV memory, how many requests, what to do when it does not fit");
  // Shared with the callback, which outlives this call.
  const auto flags = std::make_shared<PlanFlags>();
  plan->add_option("SOURCE", flags->source,
                   "A GGUF file, or a model's name; only the header is read");
  add_model_dir_flag(*plan, flags->folders);
  plan->add_option("--layers", flags->layers, "Without a file: number of layers")->group("Layout");
  plan->add_option("--kv-heads", flags->kv_heads, "KV heads of a layer")->group("Layout");
  plan->add_option("--head-dim", flags->head_dim, "Values of K (and V) a head")->group("Layout");
  plan->add_option("--value-dim", flags->value_dim,
                   "Values of V a head, where they differ from K's")
      ->group("Layout");
  plan->add_option("--window", flags->window,
                   "Layers keep only the last N positions (0: all; with a file only 0)")
      ->group("Layout");
  plan->add_option("--full-every", flags->full_every,
                   "With --window: every Nth layer keeps all positions")
      ->group("Layout");
  plan->add_option("--mib-per-token", flags->mib_per_token,
                   "KV of one token in MiB, in place of a layout")
      ->group("Layout");
  plan->add_option("--kv-type", flags->kv_type,
                   "Element type of K and V: " + planner::kv_format_names() + " (default f16)")
      ->group("Cache");
  plan->add_option("--kv-type-k", flags->kv_type_k, "The same for K alone")->group("Cache");
  plan->add_option("--kv-type-v", flags->kv_type_v, "The same for V alone")->group("Cache");
  plan->add_option("--block-tokens", flags->block_tokens,
                   "Tokens a block: 16, 32, 64, 128 (default 32)")
      ->group("Cache");
  plan->add_option("--tokens", flags->tokens, "Lengths of a sequence, comma-separated")
      ->group("Questions");
  plan->add_option("--batch", flags->batch, "Numbers of sequences, comma-separated (default 1)")
      ->group("Questions");
  plan->add_option("--memory", flags->memory,
                   "Memory free for KV: 40GiB; exit status 3 when too small")
      ->group("Questions");
  plan->add_option("--requests", flags->requests,
                   "Requests as USED/MAXIMUM tokens, comma-separated: reserved against used")
      ->group("Questions");
  plan->add_option("--prefix-tokens", flags->prefix_tokens,
                   "Tokens at the front that all requests share")
      ->group("Questions");
  plan->add_option("--calls", flags->calls,
                   "How often the prefix is sent: what does caching it save?")
      ->group("Questions");
  plan->add_option("--read-price", flags->read_price, "Price of a cached token read (default 0.1)")
      ->group("Questions");
  plan->add_option("--write-price", flags->write_price,
                   "Price of a token written to the cache (default 1)")
      ->group("Questions");
  plan->add_flag("--json", flags->json, "One JSON object");
  plan->callback([flags, &exit_status] {
    exit_status = run_plan(*flags);
    finish("plan", Status::ok(), exit_status);
  });
}

}  // namespace pagewise::cli
