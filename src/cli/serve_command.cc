// SPDX-License-Identifier: Apache-2.0
// `pagewise serve`: loads a model, sizes its KV pool, and answers both APIs until told to stop.
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/rand.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/system_memory.h"
#include "cli/commands.h"
#include "engine/engine.h"
#include "gguf/gguf.h"
#include "model/cpu_executor.h"
#include "model/spec.h"
#include "server/api.h"
#include "server/api_keys.h"
#include "server/http_server.h"
#include "server/loading_gate.h"
#include "telemetry/line_log.h"
#include "telemetry/metrics.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pagewise::cli {
namespace {

struct ServeFlags {
  std::string model;
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  uint32_t threads = 0;
  std::string kv_memory;
  uint32_t block_tokens = 32;
  std::string kv_type = "f16";
  uint32_t max_context = 0;
  uint32_t step_tokens = 512;
  uint32_t max_seqs = 64;
  uint32_t max_queue = 256;
  bool no_prefix_cache = false;
  std::vector<std::string> aliases;
  std::string api_key_file;
  bool insecure = false;
  double lease_5m_s = 300;
  double lease_1h_s = 3600;
  double lease_share = 0.5;
  uint32_t cache_min_tokens = 0;
  uint64_t shuffle_seed = 0;  // 0: off
};

/// What stays behind beside weights and KV: the process itself, tokenizer, activations.
constexpr uint64_t kWorkingBytes = 128 * kMiB;

/// Prompts of one call to /v1/completions, however long the queue may be.
constexpr uint64_t kPromptsMax = 128;

struct Pool {
  uint64_t kv_bytes = 0;
  std::vector<uint32_t> blocks;  // of each group
  uint32_t context = 0;          // served
};

TimeNs to_ns(double seconds) { return static_cast<TimeNs>(seconds * 1e9); }

int64_t unix_time_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

std::string file_stem(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return name;
}

/// Blocks of each group when `bytes` are shared so that every group serves equally many sequences
/// of `context`.
std::vector<uint32_t> share_blocks(const kv::Geometry& geometry, uint64_t bytes, uint32_t context,
                                   uint32_t step_tokens) {
  std::vector<uint64_t> needs;
  uint64_t total = 0;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    const uint32_t window = geometry.groups[g].window;
    // A window group holds its window and what one step adds (design section 4).
    const uint64_t tokens =
        window == 0 ? context : std::min<uint64_t>(context, window + step_tokens);
    needs.push_back(geometry.blocks_for(tokens));
    total += needs.back() * geometry.block_stride(g);
  }
  std::vector<uint32_t> blocks;
  for (const uint64_t need : needs) {
    const auto share = static_cast<unsigned __int128>(bytes) * need / total;
    blocks.push_back(static_cast<uint32_t>(std::min<unsigned __int128>(share, 0x7fffffff)));
  }
  return blocks;
}

/// The pool's size and the context that it can serve. Errors: numbers that do not fit.
Result<Pool> size_pool(const ServeFlags& flags, const model::ModelSpec& spec,
                       const kv::Geometry& geometry) {
  PW_ASSIGN_OR_RETURN(const uint64_t available, available_memory());
  const uint64_t fixed = spec.weight_bytes + kWorkingBytes;
  const uint64_t left = available - std::min(available, fixed);
  Pool pool;
  if (flags.kv_memory.empty()) {
    pool.kv_bytes = left / 2;
  } else {
    PW_ASSIGN_OR_RETURN(pool.kv_bytes, parse_size(flags.kv_memory));
  }
  const std::string have = fmt::format("{} are free, weights and working memory take {}",
                                       format_size(available), format_size(fixed));
  if (left == 0 || pool.kv_bytes > left) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("not enough memory: --kv-memory {} asked, but {}; that leaves {}",
                             format_size(pool.kv_bytes), have, format_size(left))};
  }
  uint32_t wanted = spec.context;
  if (flags.max_context != 0) wanted = std::min(wanted, flags.max_context);
  pool.blocks = share_blocks(geometry, pool.kv_bytes, wanted, flags.step_tokens);
  uint64_t holds = UINT32_MAX;
  uint64_t smallest = 0;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    smallest += geometry.block_stride(g);
    if (geometry.groups[g].window == 0 || pool.blocks[g] == 0) {
      holds = std::min(holds, uint64_t{pool.blocks[g]} * geometry.block_tokens);
    }
  }
  pool.context = static_cast<uint32_t>(std::min<uint64_t>(wanted, holds));
  if (pool.context < 2) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--kv-memory {} holds no block of {} tokens, which takes {}; {}",
                             format_size(pool.kv_bytes), geometry.block_tokens,
                             format_size(smallest), have)};
  }
  return pool;
}

/// How many sequences of `tokens` the pool holds at once.
uint64_t conversations(const kv::Geometry& geometry, const std::vector<uint32_t>& blocks,
                       uint64_t tokens) {
  uint64_t fit = UINT64_MAX;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    const uint32_t window = geometry.groups[g].window;
    const uint64_t held =
        window == 0 ? tokens : std::min<uint64_t>(tokens, window + geometry.block_tokens);
    fit = std::min(fit, blocks[g] / std::max<uint64_t>(geometry.blocks_for(held), 1));
  }
  return fit;
}

std::string fit_text(const kv::Geometry& geometry, const Pool& pool) {
  std::string out;
  for (const uint64_t tokens : {1024, 4096, 8192}) {
    if (!out.empty()) out += ", ";
    out += tokens > pool.context ? fmt::format("{}k: beyond the context", tokens / 1024)
                                 : fmt::format("{}k: {}", tokens / 1024,
                                               conversations(geometry, pool.blocks, tokens));
  }
  return out;
}

telemetry::EngineSnapshot to_snapshot(const engine::Stats& stats) {
  telemetry::EngineSnapshot out;
  out.blocks_pool = stats.blocks_pool;
  out.blocks_live = stats.blocks_live;
  out.blocks_cached = stats.blocks_cached;
  out.blocks_free = stats.blocks_free;
  out.blocks_leased = stats.blocks_leased;
  out.requests_running = stats.requests_running;
  out.requests_waiting = stats.requests_waiting;
  out.slack_tokens = stats.slack_tokens;
  out.naive_reserve_bytes = stats.naive_reserve_bytes;
  out.prompt_tokens = stats.prompt_tokens;
  out.generation_tokens = stats.generation_tokens;
  out.prefix_query_tokens = stats.prefix_query_tokens;
  out.prefix_hit_tokens = stats.prefix_hit_tokens;
  out.cache_created_tokens = stats.cache_created_tokens;
  out.cache_read_tokens = stats.cache_read_tokens;
  out.preemptions = stats.preemptions;
  out.evictions = stats.evictions;
  out.blocks_returned = stats.blocks_returned;
  out.leases_broken = stats.leases_broken;
  out.finished_stop = stats.finished_stop;
  out.finished_length = stats.finished_length;
  out.finished_cancelled = stats.finished_cancelled;
  out.finished_error = stats.finished_error;
  out.steps = stats.steps;
  return out;
}

std::function<void(double)> load_progress() {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [shown = -1](double share) mutable {
    const int percent = static_cast<int>(share * 100);
    if (percent == shown) return;
    shown = percent;
    std::fprintf(stderr, percent < 100 ? "\rloading %d %%" : "\r             \r", percent);
  };
}

/// Every connection is a file descriptor, and the usual soft limit of 1,024 is below what one
/// thread serves.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // when refused, the old limit stays
}

/// A log that nobody reads any more must not end the server (SIGPIPE), and where standard output
/// was closed at the start, the model file or a socket must not get its number and then the log.
void guard_standard_streams() {
  std::signal(SIGPIPE, SIG_IGN);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    if (open("/dev/null", O_RDWR) < 0) return;  // takes the lowest free number: this one
  }
}

/// Keys, and whether this address may be served with or without them.
Result<server::ApiKeys> load_keys(const ServeFlags& flags) {
  server::ApiKeys keys;
  if (!flags.api_key_file.empty()) {
    PW_ASSIGN_OR_RETURN(keys, server::ApiKeys::from_file(flags.api_key_file));
  }
  PW_ASSIGN_OR_RETURN(const bool loopback, server::is_loopback(flags.host));
  if (!loopback && !keys.configured() && !flags.insecure) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format(
            "--host {} is reachable from outside: give --api-key-file FILE, or --insecure to serve "
            "everyone",
            flags.host)};
  }
  return keys;
}

struct LoadedTemplate {
  std::unique_ptr<text::ChatTemplate> compiled;
  std::string problem;  // when there is none
};

Result<LoadedTemplate> load_template(const gguf::File& file) {
  LoadedTemplate out;
  PW_ASSIGN_OR_RETURN(const auto source, file.find_string("tokenizer.chat_template"));
  if (!source) {
    out.problem = "this model file has no chat template";
    return out;
  }
  auto compiled = text::ChatTemplate::compile(*source);
  if (compiled) {
    out.compiled = *std::move(compiled);
  } else {
    out.problem = fmt::format("this model file's chat template cannot be used ({})",
                              compiled.error().message);
  }
  return out;
}

std::string start_screen(const ServeFlags& flags, const model::ModelSpec& spec,
                         const kv::Geometry& geometry, const Pool& pool,
                         const model::CpuExecutor& executor, const server::ServedModel& served,
                         uint16_t port) {
  uint64_t blocks = 0, pool_bytes = 0;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    blocks += pool.blocks[g];
    pool_bytes += pool.blocks[g] * geometry.block_stride(g);
  }
  std::string out;
  const auto add = [&out]<typename... A>(fmt::format_string<A...> format, A&&... arguments) {
    fmt::format_to(std::back_inserter(out), format, std::forward<A>(arguments)...);
  };
  const std::string url = fmt::format(
      "http://{}:{}",
      flags.host.find(':') == std::string::npos ? flags.host : fmt::format("[{}]", flags.host),
      port);
  add("Pagewise {}\n", PAGEWISE_VERSION);
  add("  model          {} ({}, {:.0f} M parameters)\n", served.name, spec.architecture,
      static_cast<double>(spec.parameters) / 1e6);
  add("  weights        {}, {} threads, {}\n", format_size(executor.weight_bytes()),
      executor.threads(), executor.isa());
  add("  KV per token   {} ({})\n", format_size(geometry.token_bytes()), flags.kv_type);
  add("  pool           {} blocks of {} tokens, {}\n", blocks, geometry.block_tokens,
      format_size(pool_bytes));
  add("  context        {} tokens (the model's {})\n", pool.context, spec.context);
  add("  conversations  {} at once\n", fit_text(geometry, pool));
  if (!served.aliases.empty()) add("  aliases        {}\n", fmt::join(served.aliases, ", "));
  if (served.chat_template == nullptr) add("  no chat        {}\n", served.no_template_reason);
  add("  address        {}\n\n", url);
  const std::string key = flags.api_key_file.empty() ? "" : " -H 'authorization: Bearer KEY'";
  if (served.chat_template != nullptr) {
    add("Try: curl {}/v1/messages{} -d "
        "'{{\"model\":\"{}\",\"max_tokens\":64,\"messages\":[{{\"role\":\"user\",\"content\":"
        "\"Hello\"}}]}}'\n",
        url, key, served.name);
  } else {
    add("Try: curl {}/v1/completions{} -d '{{\"model\":\"{}\",\"prompt\":\"Hello\"}}'\n", url, key,
        served.name);
  }
  return out;
}

server::ServedModel describe(const ServeFlags& flags, const text::Tokenizer& tokenizer,
                             const LoadedTemplate& chat_template, uint32_t context) {
  server::ServedModel served;
  served.name = file_stem(flags.model);
  served.aliases = flags.aliases;
  served.tokenizer = &tokenizer;
  served.chat_template = chat_template.compiled.get();
  served.no_template_reason = chat_template.problem;
  served.local_time_s = [] {
    const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm local{};
    localtime_r(&now, &local);
    return static_cast<int64_t>(now) + local.tm_gmtoff;
  };
  if (const auto bos = tokenizer.bos()) served.bos_token = tokenizer.token_bytes(*bos);
  if (const auto eos = tokenizer.eos()) served.eos_token = tokenizer.token_bytes(*eos);
  served.context_max = context;
  for (uint32_t token = 0; token < tokenizer.vocab_size(); ++token) {
    const std::size_t bytes = tokenizer.token_bytes(TokenId(static_cast<int32_t>(token))).size();
    served.token_bytes_max = std::max(served.token_bytes_max, static_cast<uint32_t>(bytes));
  }
  served.choices_max = flags.max_seqs;
  // As many as an idle server takes at once, so that no call is told for ever to come back later.
  served.prompts_max = static_cast<uint32_t>(
      std::min<uint64_t>(kPromptsMax, uint64_t{flags.max_queue} + flags.max_seqs));
  served.created_unix_s = unix_time_s();
  return served;
}

engine::Options engine_options(const ServeFlags& flags, uint32_t context) {
  engine::Options options;
  options.context_max = context;
  options.step_tokens = flags.step_tokens;
  options.seqs_max = flags.max_seqs;
  options.queue_max = flags.max_queue;
  options.prefix_cache = !flags.no_prefix_cache;
  options.shuffle_blocks = flags.shuffle_seed != 0;
  options.shuffle_seed = flags.shuffle_seed;
  options.lease_5m_ns = to_ns(flags.lease_5m_s);
  options.lease_1h_ns = to_ns(flags.lease_1h_s);
  options.lease_share = flags.lease_share;
  options.cache_tokens_min = flags.cache_min_tokens;
  return options;
}

/// The network thread: runs from before the model is there, so that probes get an answer meanwhile.
class NetworkThread {
 public:
  NetworkThread(server::HttpServer& listener, server::LoadingGate& gate)
      : listener_(listener), thread_([this, &gate] {
          listener_.run(gate);
          // A signal before the model is there: nothing is under way that could be finished.
          if (!gate.is_open() && !failed_) std::_Exit(0);
        }) {}
  /// Leaving early: the model could not be loaded.
  ~NetworkThread() {
    if (!thread_.joinable()) return;
    failed_ = true;
    listener_.stop();
    thread_.join();
  }
  void wait() { thread_.join(); }

 private:
  server::HttpServer& listener_;
  std::atomic<bool> failed_{false};
  std::thread thread_;
};

Status serve(const ServeFlags& flags) {
  const std::optional<KvType> kv_type = parse_kv_type(flags.kv_type);
  if (!kv_type) {
    return {ErrorCode::kInvalidArgument, fmt::format("--kv-type {}: not a KV type", flags.kv_type)};
  }
  for (const std::string& alias : flags.aliases) {
    if (alias.empty()) return {ErrorCode::kInvalidArgument, "--alias: a name must not be empty"};
  }
  guard_standard_streams();
  raise_descriptor_limit();
  // What can be refused at once is refused before the weights are read.
  PW_ASSIGN_OR_RETURN(server::ApiKeys keys, load_keys(flags));
  const SystemClock clock;
  // Before whoever writes to it: they end first.
  telemetry::LineLog log(STDOUT_FILENO);
  server::HttpServerOptions http;
  http.host = flags.host;
  http.port = flags.port;
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<server::HttpServer> listener,
                      server::HttpServer::listen(http, clock));

  uint64_t random_seed = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&random_seed), sizeof random_seed) != 1) {
    return {ErrorCode::kIo, "the system gives no random numbers"};
  }
  server::LoadingGate gate(random_seed);
  NetworkThread network(*listener, gate);

  PW_ASSIGN_OR_RETURN(std::unique_ptr<gguf::File> file, gguf::File::open(flags.model));
  PW_ASSIGN_OR_RETURN(const model::ModelSpec spec, model::spec_from_gguf(*file));
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer,
                      text::Tokenizer::from_gguf(*file));
  if (tokenizer->vocab_size() != spec.vocab_size) {
    return {ErrorCode::kMalformed,
            fmt::format("{}: the tokenizer has {} tokens and the model {}", flags.model,
                        tokenizer->vocab_size(), spec.vocab_size)};
  }
  PW_ASSIGN_OR_RETURN(const LoadedTemplate chat_template, load_template(*file));
  PW_ASSIGN_OR_RETURN(const kv::Geometry geometry,
                      model::make_geometry(spec, flags.block_tokens, *kv_type, *kv_type));
  PW_ASSIGN_OR_RETURN(const Pool pool, size_pool(flags, spec, geometry));

  model::CpuExecutorOptions executor_options;
  executor_options.threads = flags.threads;
  executor_options.blocks = pool.blocks;
  executor_options.step_tokens_max = flags.step_tokens;
  executor_options.step_runs_max = flags.max_seqs;
  executor_options.context_max = pool.context;
  executor_options.progress = load_progress();
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<model::CpuExecutor> executor,
                      model::CpuExecutor::create(*file, spec, geometry, executor_options));
  file.reset();

  engine::Engine engine(*executor, *tokenizer, clock, engine_options(flags, pool.context));
  PW_RETURN_IF_ERROR(engine.start_status());
  const server::ServedModel served =
      describe(flags, *tokenizer, chat_template, engine.options().context_max);

  telemetry::StaticInfo info;
  info.model_name = served.name;
  info.block_tokens = geometry.block_tokens;
  info.context_max = served.context_max;
  info.kv_type = flags.kv_type;
  info.prefix_cache = !flags.no_prefix_cache;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    info.blocks_pool += pool.blocks[g];
    info.block_bytes += geometry.block_bytes(g);
  }
  telemetry::Metrics metrics(info);

  server::ApiSetup setup;
  setup.model = served;
  setup.keys = std::move(keys);
  setup.engine.submit = [&engine](engine::Request request,
                                  std::shared_ptr<engine::RequestSink> sink) {
    return engine.submit(std::move(request), std::move(sink));
  };
  setup.engine.cancel = [&engine](RequestId request) { engine.cancel(request); };
  setup.snapshot = [&engine] { return to_snapshot(engine.stats()); };
  setup.metrics = &metrics;
  setup.clock = &clock;
  setup.unix_time_s = unix_time_s;
  setup.log = [&log](std::string_view line) { log.write(line); };
  setup.random_seed = random_seed + 1;  // other ids than the gate's
  const std::unique_ptr<server::Handler> api = server::make_api(std::move(setup));

  log.write(start_screen(flags, spec, geometry, pool, *executor, served, listener->port()));
  gate.open(*api);
  network.wait();
  log.write("stopped");
  return Status::ok();
}

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

void add_serve_command(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command =
      app.add_subcommand("serve", "Serve a model over the OpenAI and Anthropic HTTP APIs");
  command->add_option("model", flags->model, "A GGUF file")->required();
  command
      ->add_option("--host", flags->host,
                   "Address to listen on; other than this machine's own needs keys")
      ->capture_default_str();
  command->add_option("--port", flags->port, "Port; 0: any free one, printed at start")
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "Compute threads; 0: one a core")
      ->capture_default_str();
  command->add_option(
      "--kv-memory", flags->kv_memory,
      "Ceiling of KV memory, in bytes or KiB, MiB, GiB; default: half of what is free after the "
      "weights");
  command->add_option("--block-tokens", flags->block_tokens, "Positions of a KV block")
      ->capture_default_str()
      ->check(CLI::IsMember({16U, 32U, 64U, 128U}));
  command->add_option("--kv-type", flags->kv_type, "Type of K and V in the cache")
      ->capture_default_str()
      ->check(CLI::IsMember({"f16", "bf16", "f32"}));
  command
      ->add_option("--max-context", flags->max_context,
                   "Served context in tokens, prompt and answer together; 0: the model's, or what "
                   "the pool holds")
      ->capture_default_str()
      ->check(context_tokens());
  command
      ->add_option("--step-tokens", flags->step_tokens,
                   "Tokens of one step at most: the bound on others' gaps")
      ->capture_default_str()
      ->check(CLI::Range(1U, 65536U));
  command
      ->add_option("--max-seqs", flags->max_seqs,
                   "Sequences that run at once; bounds a request's n")
      ->capture_default_str()
      ->check(CLI::Range(1U, 4096U));
  command
      ->add_option("--max-queue", flags->max_queue,
                   "Requests that may wait; more are told to come back later")
      ->capture_default_str()
      ->check(CLI::Range(0U, 1U << 20));
  command->add_flag("--no-prefix-cache", flags->no_prefix_cache,
                    "Compute every prompt from its start");
  command
      ->add_option("--alias", flags->aliases,
                   "Other names of the model, '*' and '?' allowed; repeat it or give a comma list")
      ->delimiter(',');
  command->add_option("--api-key-file", flags->api_key_file,
                      "Accept only these keys: one a line, '#' starts a comment");
  command->add_flag("--insecure", flags->insecure, "Serve an outside address without keys");
  command
      ->add_option("--lease-5m", flags->lease_5m_s,
                   "Seconds that a 5m cache marker protects its prefix")
      ->capture_default_str()
      ->check(lease_seconds());
  command
      ->add_option("--lease-1h", flags->lease_1h_s,
                   "Seconds that a 1h cache marker protects its prefix")
      ->capture_default_str()
      ->check(lease_seconds());
  command
      ->add_option("--lease-share", flags->lease_share,
                   "Share of the pool that all leases may hold, 0 to 1")
      ->capture_default_str()
      ->check(share());
  command
      ->add_option("--cache-min-tokens", flags->cache_min_tokens,
                   "Cache markers on shorter prefixes do not count; 0: one block")
      ->capture_default_str();
  command->add_flag("--debug-shuffle-blocks{1}", flags->shuffle_seed,
                    "Hand block ids out in shuffled order (=SEED): the same answers must come");
  command->callback([flags, &exit_status] {
    const Status status = serve(*flags);
    if (!status) {
      std::fprintf(stderr, "pagewise serve: %s\n", status.error().message.c_str());
      exit_status = 1;
    }
  });
}

}  // namespace pagewise::cli
