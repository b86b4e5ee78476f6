// SPDX-License-Identifier: Apache-2.0
#include "cli/serve_flags.h"

#include <fmt/format.h>

namespace pagewise::cli {
namespace {

/// Seconds of a lease. CLI11's own ranges let NaN pass.
CLI::Validator lease_seconds() {
  return {[](std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && value >= 1e-3 && value <= 1e9) return "";
            return fmt::format("'{}' is no number of seconds from 0.001 to 1e9", text);
          },
          "SECONDS"};
}

CLI::Validator share() {
  return {[](std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && value >= 0 && value <= 1) return "";
            return fmt::format("'{}' is no share from 0 to 1", text);
          },
          "SHARE"};
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
          "TOKENS"};
}

}  // namespace

void add_serve_flags(CLI::App& command, ServeFlags& flags) {
  command.add_option("model", flags.model, "A GGUF file")->required();
  command
      .add_option("--host", flags.host,
                  "Address to listen on; other than this machine's own needs keys")
      ->capture_default_str();
  command.add_option("--port", flags.port, "Port; 0: any free one, printed at start")
      ->capture_default_str();
  command.add_option("--threads", flags.threads, "Compute threads; 0: one a core")
      ->capture_default_str();
  command.add_option(
      "--kv-memory", flags.kv_memory,
      "Ceiling of KV memory, in bytes or KiB, MiB, GiB; default: half of what is free after the "
      "weights");
  command.add_option("--block-tokens", flags.block_tokens, "Positions of a KV block")
      ->capture_default_str()
      ->check(CLI::IsMember({16U, 32U, 64U, 128U}));
  command.add_option("--kv-type", flags.kv_type, "Type of K and V in the cache")
      ->capture_default_str()
      ->check(CLI::IsMember({"f16", "bf16", "f32"}));
  command
      .add_option("--max-context", flags.max_context,
                  "Served context in tokens, prompt and answer together; 0: the model's, or what "
                  "the pool holds")
      ->capture_default_str()
      ->check(context_tokens());
  command
      .add_option("--step-tokens", flags.step_tokens,
                  "Tokens of one step at most: the bound on others' gaps")
      ->capture_default_str()
      ->check(CLI::Range(1U, 65536U));
  command
      .add_option("--max-seqs", flags.max_seqs, "Sequences that run at once; bounds a request's n")
      ->capture_default_str()
      ->check(CLI::Range(1U, 4096U));
  command
      .add_option("--max-queue", flags.max_queue,
                  "Requests that may wait; more are told to come back later")
      ->capture_default_str()
      ->check(CLI::Range(0U, 1U << 20));
  command.add_flag("--no-prefix-cache", flags.no_prefix_cache,
                   "Compute every prompt from its start");
  command
      .add_option("--alias", flags.aliases,
                  "Other names of the model, '*' and '?' allowed; repeat it or give a comma list")
      ->delimiter(',');
  command.add_option("--api-key-file", flags.api_key_file,
                     "Accept only these keys: one a line, '#' starts a comment");
  command.add_flag("--insecure", flags.insecure, "Serve an outside address without keys");
  command
      .add_option("--lease-5m", flags.lease_5m_s,
                  "Seconds that a 5m cache marker protects its prefix")
      ->capture_default_str()
      ->check(lease_seconds());
  command
      .add_option("--lease-1h", flags.lease_1h_s,
                  "Seconds that a 1h cache marker protects its prefix")
      ->capture_default_str()
      ->check(lease_seconds());
  command
      .add_option("--lease-share", flags.lease_share,
                  "Share of the pool that all leases may hold, 0 to 1")
      ->capture_default_str()
      ->check(share());
  command
      .add_option("--cache-min-tokens", flags.cache_min_tokens,
                  "Cache markers on shorter prefixes do not count; 0: one block")
      ->capture_default_str();
  command.add_flag("--debug-shuffle-blocks{1}", flags.shuffle_seed,
                   "Hand block ids out in shuffled order (=SEED): the same answers must come");
}

}  // namespace pagewise::cli
