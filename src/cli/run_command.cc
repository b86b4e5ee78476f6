// SPDX-License-Identifier: Apache-2.0
// `pagewise run`: one prompt, one completion, no server. The shortest way to see a model speak, and
// what its KV cache is worth (`--recompute`).
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/model_argument.h"
#include "cli/model_file.h"
#include "cli/process.h"
#include "cli/shared_flags.h"
#include "cli/terminal_text.h"
#include "model/cpu_executor.h"
#include "model/solo_sequence.h"
#include "sampling/sampler.h"
#include "text/detokenizer.h"

namespace pagewise::cli {
namespace {

struct RunFlags {
  ModelArgument model;
  std::string prompt;
  uint32_t tokens = 128;
  sampling::Params sampling{.temperature = 0};
  ComputeFlags compute;
  bool json = false;
  bool recompute = false;
  bool ignore_eos = false;
};

struct RunResult {
  std::vector<TokenId> tokens;
  std::vector<sampling::Sampled> sampled;
  std::string text;
  bool stopped = false;  // by an end-of-generation token; else by -n
  double prefill_ms = 0;
  double decode_ms = 0;

  /// Of the tokens behind the first, which belongs to the prefill.
  double tokens_per_second() const {
    return tokens.size() < 2 || decode_ms <= 0
               ? 0
               : static_cast<double>(tokens.size() - 1) * 1000 / decode_ms;
  }
};

double ms_between(TimeNs from, TimeNs to) { return static_cast<double>(to - from) / 1e6; }

Result<RunResult> generate(const RunFlags& flags, const text::Tokenizer& tokenizer,
                           model::Executor& executor, std::vector<TokenId> tokens) {
  const SystemClock clock;
  RunResult result;
  model::SoloSequence sequence(executor);
  sampling::Sampler sampler(executor.vocab_size());
  text::Utf8Assembler assembler;
  const auto print_from = [&](std::size_t at) {
    if (!flags.json) print_generated(std::string_view(result.text).substr(at));
  };

  const TimeNs start = clock.now();
  TimeNs first = start;
  std::size_t fed = 0;
  while (result.tokens.size() < flags.tokens) {
    if (flags.recompute) {
      sequence.reset();
      fed = 0;
    }
    PW_ASSIGN_OR_RETURN(const std::span<const float> logits,
                        sequence.feed(std::span(tokens).subspan(fed)));
    fed = tokens.size();
    const sampling::Sampled sampled = sampler.sample(logits, flags.sampling, 0, tokens.size());
    if (sampled.token.value < 0) {
      return Error{ErrorCode::kInternal,
                   fmt::format("token {}: {}", tokens.size(), sampling::kNoNumbers)};
    }
    if (result.tokens.empty()) first = clock.now();
    result.tokens.push_back(sampled.token);
    if (flags.sampling.logprobs >= 0) result.sampled.push_back(sampled);
    tokens.push_back(sampled.token);
    const std::size_t shown = result.text.size();
    if (!flags.ignore_eos && tokenizer.is_eog(sampled.token)) {
      result.stopped = true;
      break;
    }
    if (!tokenizer.is_control(sampled.token)) {
      assembler.push(tokenizer.token_bytes(sampled.token), result.text);
      print_from(shown);
    }
  }
  result.prefill_ms = ms_between(start, first);
  result.decode_ms = ms_between(first, clock.now());
  assembler.finish();
  return result;
}

json::object to_json(const RunResult& result, std::size_t prompt_tokens,
                     const text::Tokenizer& tokenizer) {
  const auto logprob = [&](TokenId token, float value) {
    // The bytes may be part of a character; JSON carries whole ones, the id tells the rest.
    text::Utf8Assembler whole;
    std::string spelled;
    whole.push(tokenizer.token_bytes(token), spelled);
    if (!whole.empty()) spelled += "\xEF\xBF\xBD";
    return json::object{{"id", token.value}, {"token", spelled}, {"logprob", value}};
  };
  json::object out;
  out["prompt_tokens"] = prompt_tokens;
  json::array ids;
  for (const TokenId token : result.tokens) ids.emplace_back(token.value);
  out["tokens"] = std::move(ids);
  out["text"] = result.text;
  out["finish"] = result.stopped ? "stop" : "length";
  out["prefill_ms"] = result.prefill_ms;
  out["decode_ms"] = result.decode_ms;
  out["tok_s"] = result.tokens_per_second();
  if (!result.sampled.empty()) {
    json::array steps;
    for (const sampling::Sampled& sampled : result.sampled) {
      json::object step = logprob(sampled.token, sampled.logprob);
      json::array top;
      for (const sampling::TokenLogprob& entry : sampled.top) {
        top.push_back(logprob(entry.token, entry.logprob));
      }
      step["top"] = std::move(top);
      steps.push_back(std::move(step));
    }
    out["logprobs"] = std::move(steps);
  }
  return out;
}

Status run(const RunFlags& flags) {
  PW_ASSIGN_OR_RETURN(const NamedModel named, find_model(flags.model));
  PW_ASSIGN_OR_RETURN(const ModelFile model, open_model(named.path));
  const auto& [file, spec, tokenizer] = model;

  std::vector<TokenId> tokens = tokenizer->encode(flags.prompt, /*parse_special=*/true);
  // BOS once: the prompt may spell it itself (C15).
  if (const auto bos = tokenizer->bos();
      bos && tokenizer->add_bos() && (tokens.empty() || tokens.front() != *bos)) {
    tokens.insert(tokens.begin(), *bos);
  }
  if (tokens.empty()) {
    return {ErrorCode::kInvalidArgument, "the prompt is empty: give some text with -p"};
  }
  const std::size_t prompt_tokens = tokens.size();
  // The last token that is sampled needs no room of its own.
  const uint64_t positions = prompt_tokens + std::max(flags.tokens, 1U) - 1;
  if (positions > spec.context) {
    return {
        ErrorCode::kContextTooLong,
        fmt::format("a prompt of {} tokens and {} new ones do not fit the model's context of {}",
                    prompt_tokens, flags.tokens, spec.context)};
  }

  PW_ASSIGN_OR_RETURN(const kv::Geometry geometry, geometry_of(spec, flags.compute));
  model::CpuExecutorOptions options;
  options.threads = flags.compute.threads;
  options.blocks.assign(geometry.groups.size(),
                        static_cast<uint32_t>(geometry.blocks_for(positions)));
  options.context_max = static_cast<uint32_t>(positions);
  options.step_runs_max = 1;
  options.progress = load_progress();
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<model::CpuExecutor> executor,
                      model::CpuExecutor::create(*file, spec, geometry, options));
  PW_ASSIGN_OR_RETURN(const RunResult result,
                      generate(flags, *tokenizer, *executor, std::move(tokens)));
  if (flags.json) {
    std::puts(json::serialize(to_json(result, prompt_tokens, *tokenizer)).c_str());
  } else {
    std::putchar('\n');
    PW_RETURN_IF_ERROR(flush_output());
    std::fprintf(stderr, "%s in %.1f ms, %s at %.1f tok/s (%s, %s%s)\n",
                 counted(prompt_tokens, "prompt token").c_str(), result.prefill_ms,
                 counted(result.tokens.size(), "token").c_str(), result.tokens_per_second(),
                 std::string(executor->isa()).c_str(),
                 counted(executor->threads(), "thread").c_str(),
                 flags.recompute ? ", without a KV cache" : "");
  }
  return Status::ok();
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "Complete one prompt and print the text");
  add_model_argument(*command, flags->model, "A GGUF file, or a model's name (pagewise models)");
  command
      ->add_option("-p,--prompt", flags->prompt,
                   "Text to continue, as it is: no chat template; control tokens are read")
      ->required();
  command->add_option("-n,--tokens", flags->tokens, "New tokens at most")
      ->capture_default_str()
      ->check(whole_in(1, 1U << 30));
  add_sampling_flags(*command, flags->sampling);
  command->add_option("--seed", flags->sampling.seed, "Of the draws")
      ->capture_default_str()
      ->check(whole_in(0, UINT64_MAX));
  CLI::Option* logprobs =
      command
          ->add_option("--logprobs", flags->sampling.logprobs,
                       "With --json: log-probabilities of each token and of this many of the best")
          ->check(whole_in(0, 100));
  add_compute_flags(*command, flags->compute);
  command->add_flag("--ignore-eos", flags->ignore_eos, "Go on behind an end-of-text token");
  command->add_flag("--recompute", flags->recompute,
                    "Without a KV cache: every token computes all before it again, the same bits");
  logprobs->needs(command->add_flag("--json", flags->json, "One JSON object instead of text"));
  command->callback([flags, &exit_status] { finish("run", run(*flags), exit_status); });
}

}  // namespace pagewise::cli
