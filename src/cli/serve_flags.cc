// SPDX-License-Identifier: Apache-2.0
#include "cli/serve_flags.h"

#include <string>

#include "server/cache_minimum.h"

namespace pagewise::cli {
namespace {

/// Tokens, or a family in their place.
CLI::Validator cache_minimum() {
  return {[](std::string& text) -> std::string {
            const Result<uint32_t> tokens = server::parse_cache_minimum(text);
            if (!tokens) return tokens.error().message;
            text = std::to_string(*tokens);
            return "";
          },
          ""};
}

}  // namespace

void add_serve_flags(CLI::App& command, ServeFlags& flags) {
  add_model_argument(command, flags.model, "A GGUF file, or a model's name (pagewise models)");
  command
      .add_option("--host", flags.host,
                  "Address to listen on; other than this machine's own needs keys")
      ->capture_default_str();
  command.add_option("--port", flags.port, "Port; 0: any free one, printed at start")
      ->capture_default_str()
      ->check(whole_in(0, 65535));
  add_compute_flags(command, flags.compute);
  add_pool_flags(command, flags.kv_memory, flags.max_context);
  command
      .add_option("--step-tokens", flags.step_tokens,
                  "Tokens of one step at most: the bound on others' gaps")
      ->capture_default_str()
      ->check(whole_in(1, 65536));
  command
      .add_option("--max-seqs", flags.max_seqs, "Sequences that run at once; bounds a request's n")
      ->capture_default_str()
      ->check(whole_in(1, 4096));
  command
      .add_option("--max-queue", flags.max_queue,
                  "Requests that may wait; more are told to come back later")
      ->capture_default_str()
      ->check(whole_in(0, 1U << 20));
  command.add_flag("--no-prefix-cache", flags.no_prefix_cache,
                   "Compute every prompt from its start");
  command
      .add_option("--cache-curve", flags.cache_curve,
                  "Whether to keep what other sizes of memory would find: on or off")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}));
  command
      .add_option("--alias", flags.aliases,
                  "Other names of the model, '*' and '?' allowed; repeat it or give a comma list")
      ->delimiter(',');
  command.add_option("--chat-template", flags.chat_template,
                     "File of a chat template to use in place of the model file's own");
  command.add_option("--api-key-file", flags.api_key_file,
                     "Accept only these keys: one a line, '#' starts a comment");
  command.add_flag("--insecure", flags.insecure, "Serve an outside address without keys");
  command
      .add_option("--lease-5m", flags.lease_5m_s,
                  "Seconds that a 5m cache marker protects its prefix")
      ->capture_default_str()
      ->check(number_in(1e-3, 1e9, "number of seconds"));
  command
      .add_option("--lease-1h", flags.lease_1h_s,
                  "Seconds that a 1h cache marker protects its prefix")
      ->capture_default_str()
      ->check(number_in(1e-3, 1e9, "number of seconds"));
  command
      .add_option("--lease-share", flags.lease_share,
                  "Share of the pool that all leases may hold, 0 to 1")
      ->capture_default_str()
      ->check(number_in(0, 1, "share"));
  command
      .add_option("--cache-mode", flags.cache_mode,
                  "What joining a running prefill is called: native, a read; strict, a creation")
      ->capture_default_str()
      ->check(CLI::IsMember({"native", "strict"}));
  command
      .add_option(
          "--cache-min-tokens", flags.cache_min_tokens,
          "Cache markers on shorter prefixes do not count: tokens, or a hosted family whose "
          "minimum it is; 0: one block")
      ->capture_default_str()
      ->transform(cache_minimum());
  command.add_option("--price-table", flags.price_table,
                     "JSON file of prices: the ledger then says what the tokens would cost");
  command.add_flag("--debug-shuffle-blocks{1}", flags.shuffle_seed,
                   "Hand block ids out in shuffled order (=SEED): the same answers must come");
}

}  // namespace pagewise::cli
