// SPDX-License-Identifier: Apache-2.0
// How the flags of `pagewise plan` are called, and what --help says of them.
#include "cli/model_argument.h"
#include "cli/plan_flags.h"

namespace pagewise::cli {

void add_plan_flags(CLI::App& plan, PlanFlags& flags) {
  plan.add_option("SOURCE", flags.source,
                  "A GGUF file (only its header is read), a config.json, or a model's name");
  add_model_dir_flag(plan, flags.folders);
  plan.add_option("--layers", flags.layers, "Without a file: number of layers")->group("Layout");
  plan.add_option("--kv-heads", flags.kv_heads, "KV heads of a layer")->group("Layout");
  plan.add_option("--head-dim", flags.head_dim, "Values of K (and V) a head")->group("Layout");
  plan.add_option("--value-dim", flags.value_dim, "Values of V a head, where they differ from K's")
      ->group("Layout");
  plan.add_option("--window", flags.window,
                  "Layers keep only the last N positions (0: all; with a file only 0)")
      ->group("Layout");
  plan.add_option("--full-every", flags.full_every,
                  "With --window: every Nth layer keeps all positions")
      ->group("Layout");
  plan.add_option("--latent-dim", flags.latent_dim,
                  "Latent attention: values of the one row a token, in place of heads")
      ->group("Layout");
  plan.add_option("--state-layers", flags.state_layers, "Layers that keep a state instead of rows")
      ->group("Layout");
  plan.add_option("--state-values", flags.state_values, "Values of such a layer's state")
      ->group("Layout");
  plan.add_option("--weights", flags.weights,
                  "Memory of the weights, in place of what the file says")
      ->group("Layout");
  plan.add_option("--mib-per-token", flags.mib_per_token,
                  "KV of one token in MiB, in place of a layout")
      ->group("Layout");
  plan.add_option("--kv-type", flags.kv_type,
                  "Element type of K and V: " + planner::kv_format_names() + " (default f16)")
      ->group("Cache");
  plan.add_option("--kv-type-k", flags.kv_type_k, "The same for K alone")->group("Cache");
  plan.add_option("--kv-type-v", flags.kv_type_v, "The same for V alone")->group("Cache");
  plan.add_option("--state-type", flags.state_type,
                  "Element type of recurrent states: f32, f16, bf16 (default f32)")
      ->group("Cache");
  plan.add_option("--block-tokens", flags.block_tokens,
                  "Tokens a block: 16, 32, 64, 128 (default 32, or the engine's)")
      ->group("Cache");
  plan.add_option("--tokens", flags.tokens, "Lengths of a sequence, comma-separated")
      ->group("Questions");
  plan.add_option("--batch", flags.batch, "Numbers of sequences, comma-separated (default 1)")
      ->group("Questions");
  plan.add_option("--memory", flags.memory,
                  "Memory free for KV: 40GiB; exit status 3 when too small")
      ->group("Questions");
  plan.add_option("--requests", flags.requests,
                  "Requests as USED/MAXIMUM tokens, comma-separated: reserved against used")
      ->group("Questions");
  plan.add_option("--lengths", flags.lengths,
                  "How long requests become, TOKENS or TOKENS*REQUESTS, comma-separated")
      ->group("Questions");
  plan.add_option("--trace", flags.trace,
                  "The same from a file: JSON lines or CSV with input_length and output_length")
      ->group("Questions");
  plan.add_option("--max-tokens", flags.max_tokens,
                  "With --lengths or --trace: what each may become (default: the longest)")
      ->group("Questions");
  plan.add_flag("--waste", flags.waste, "Waste of reserving, and of blocks of each size")
      ->group("Questions");
  plan.add_option("--users", flags.users,
                  "So many at once: which KV type, block size, cap or memory reaches them?")
      ->group("Questions");
  plan.add_option("--prefix-tokens", flags.prefix_tokens,
                  "Tokens at the front that all requests share")
      ->group("Questions");
  plan.add_option("--calls", flags.calls,
                  "How often the prefix is sent: what does caching it save?")
      ->group("Questions");
  plan.add_option("--read-price", flags.read_price, "Price of a cached token read (default 0.1)")
      ->group("Questions");
  plan.add_option("--write-price", flags.write_price,
                  "Price of a token written to the cache (default 1)")
      ->group("Questions");
  plan.add_option("--every", flags.every, "With --calls: time between calls: 90s, 5m, 1h")
      ->group("Questions");
  plan.add_option("--ttl", flags.ttl, "How long a cached prefix lives after its use (default 5m)")
      ->group("Questions");
  plan.add_option("--calibration", flags.calibration,
                  "How long steps take, a JSON file: adds times of prompts and of answers")
      ->group("Times");
  plan.add_option("--step-tokens", flags.step_tokens,
                  "Tokens of one step, as of serve (default 512)")
      ->group("Times");
  plan.add_option("--device-memory", flags.device_memory,
                  "Memory of one device, in place of --memory: 24GiB")
      ->group("Device");
  plan.add_option("--devices", flags.devices, "How many of them (default 1)")->group("Device");
  plan.add_option("--engine", flags.engine,
                  "Whose rules divide it: " + planner::engine_names() + " (default pagewise)")
      ->group("Device");
  plan.add_option("--working-memory", flags.working_memory,
                  "What the engine takes beside weights and KV")
      ->group("Device");
  plan.add_option("--utilization", flags.utilization,
                  "Share of memory, in place of the engine's own")
      ->group("Device");
  plan.add_option("--live", flags.live,
                  "Compare the plan of SOURCE with the server at this address that runs it")
      ->group("Live");
  plan.add_option("--key", flags.key, "With --live: API key, when the server asks for one")
      ->group("Live");
  plan.add_option("--html", flags.html, "Write the answers as a page with charts to this file");
  plan.add_option("--svg", flags.svg, "Write the chart of KV against length to this file");
  plan.add_flag("--json", flags.json, "One JSON object");
  // A variable that is not set in a script must not silently take the question with it.
  for (CLI::Option* option : plan.get_options()) {
    if (option->get_expected_max() == 0) continue;
    option->check([](const std::string& text) {
      return text.empty() ? std::string("needs a value, and has an empty one") : std::string();
    });
  }
}

}  // namespace pagewise::cli
