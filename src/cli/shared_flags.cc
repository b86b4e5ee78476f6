// SPDX-License-Identifier: Apache-2.0
#include "cli/shared_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/isa.h"

namespace pagewise::cli {
namespace {

/// An instruction set that this machine has.
CLI::Validator isa_text() {
  return {[](std::string& text) -> std::string {
            const auto names = kernels::isa_names();
            if (std::find(names.begin(), names.end(), text) != names.end()) return "";
            return fmt::format(
                "'{}' is no instruction set that this machine has and the kernels are "
                "compiled for; there are: {}",
                text, fmt::join(names, ", "));
          },
          ""};
}

/// One token for the prompt and one for the answer.
CLI::Validator context_tokens() {
  return {[](std::string& text) -> std::string {
            uint32_t value = 0;
            const bool number = CLI::detail::lexical_cast(text, value);
            if (number && value == 1)
              return "1 leaves no token for an answer; give 0 or 2 and more";
            if (number && value <= 1U << 30) return "";
            return fmt::format("'{}' is no number of tokens from 0 to {}", text, 1U << 30);
          },
          ""};
}

}  // namespace

CLI::Validator number_in(double low, double high, std::string_view what) {
  return {[low, high, what = std::string(what)](std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return "";
            return fmt::format("'{}' is no {} from {} to {}", text, what, low, high);
          },
          ""};
}

CLI::Validator whole_in(uint64_t low, uint64_t high) {
  return {[low, high](std::string& text) -> std::string {
            uint64_t value = 0;
            const char* const end = text.data() + text.size();
            const auto [read, error] = std::from_chars(text.data(), end, value);
            if (error == std::errc() && read == end && value >= low && value <= high) return "";
            return fmt::format("'{}' is no whole number from {} to {}", text, low, high);
          },
          ""};
}

CLI::Validator size_text() {
  return {[](std::string& text) -> std::string {
            const auto parsed = parse_size(text);
            return parsed.has_value() ? "" : parsed.error().message;
          },
          ""};
}

void add_compute_flags(CLI::App& command, ComputeFlags& flags) {
  command.add_option("--threads", flags.threads, "Compute threads; 0: one a core")
      ->capture_default_str()
      ->check(whole_in(0, UINT32_MAX));
  command
      .add_option_function<std::string>(
          "--isa", [](const std::string& name) { PW_CHECK(kernels::use_isa(name)); },
          "Instruction set of the kernels, for the same bits on unlike machines; default: the best "
          "here")
      ->check(isa_text());
  command.add_option("--block-tokens", flags.block_tokens, "Positions of a KV block")
      ->capture_default_str()
      ->check(CLI::IsMember({16U, 32U, 64U, 128U}));
  add_kv_type_flags(command, flags);
}

void add_kv_type_flags(CLI::App& command, ComputeFlags& flags) {
  const CLI::IsMember served({"f16", "bf16", "f32", "q8_0"});
  command.add_option("--kv-type", flags.kv_type, "Type of K and V in the cache")
      ->capture_default_str()
      ->check(served);
  command.add_option("--kv-type-k", flags.kv_type_k, "The same for K alone")->check(served);
  command.add_option("--kv-type-v", flags.kv_type_v, "The same for V alone")->check(served);
}

KvTypes kv_types_of(const ComputeFlags& flags) {
  const auto type_of = [&](const std::string& own) {
    const std::optional<KvType> type = parse_kv_type(own.empty() ? flags.kv_type : own);
    PW_CHECK(type.has_value());
    return *type;
  };
  return {type_of(flags.kv_type_k), type_of(flags.kv_type_v)};
}

std::string kv_types_text(const ComputeFlags& flags) {
  const auto [key, value] = kv_types_of(flags);
  const std::string of_key(kv_type_name(key)), of_value(kv_type_name(value));
  return key == value ? of_key : "K " + of_key + ", V " + of_value;
}

void add_pool_flags(CLI::App& command, std::string& kv_memory, uint32_t& max_context) {
  command
      .add_option("--kv-memory", kv_memory,
                  "Ceiling of KV memory, in bytes or KiB, MiB, GiB; default: half of what is free "
                  "after the weights")
      ->check(size_text());
  command
      .add_option("--max-context", max_context,
                  "Context in tokens, prompt and answer together; 0: the model's, or what "
                  "the pool holds")
      ->capture_default_str()
      ->check(context_tokens());
}

void add_sampling_flags(CLI::App& command, sampling::Params& params) {
  command.add_option("--temp", params.temperature, "Temperature; 0: always the likeliest token")
      ->capture_default_str()
      ->check(number_in(0, 100, "temperature"));
  command.add_option("--top-k", params.top_k, "Only the K likeliest; 0: off")
      ->capture_default_str()
      ->check(whole_in(0, UINT32_MAX));
  command.add_option("--top-p", params.top_p, "Only the likeliest up to this share; 1: off")
      ->capture_default_str()
      ->check(number_in(0, 1, "share"));
  command.add_option("--min-p", params.min_p, "Only those above this share of the best; 0: off")
      ->capture_default_str()
      ->check(number_in(0, 1, "share"));
}

}  // namespace pagewise::cli
