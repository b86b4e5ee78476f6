// SPDX-License-Identifier: Apache-2.0
// `pagewise serve`: loads a model, sizes its KV pool, and answers both APIs until told to stop.
#include <fmt/format.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/system_memory.h"
#include "base/thread_name.h"
#include "cli/commands.h"
#include "cli/model_file.h"
#include "cli/pool_size.h"
#include "cli/process.h"
#include "cli/serve_flags.h"
#include "cli/start_screen.h"
#include "engine/engine.h"
#include "kv/pool_split.h"
#include "model/cpu_executor.h"
#include "server/api.h"
#include "server/api_keys.h"
#include "server/curve_report.h"
#include "server/http_server.h"
#include "server/ledger_report.h"
#include "server/loading_gate.h"
#include "server/price_table.h"
#include "telemetry/line_log.h"
#include "telemetry/metrics.h"

namespace pagewise::cli {
namespace {

/// Prompts of one call to /v1/completions, however long the queue may be.
constexpr uint64_t kPromptsMax = 128;

TimeNs to_ns(double seconds) { return static_cast<TimeNs>(seconds * 1e9); }

telemetry::EngineSnapshot to_snapshot(const engine::Stats& stats, const kv::Geometry& geometry) {
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
  out.evictions_ceiling = stats.evictions_ceiling;
  out.evictions_below_floor = stats.evictions_below_floor;
  out.blocks_returned = stats.blocks_returned;
  out.pool_bytes = stats.pool_bytes;
  out.committed_bytes = stats.committed_bytes;
  out.context_max = stats.context_max;
  out.pool_resizes = stats.pool_resizes;
  if (const auto resident = resident_memory()) out.resident_bytes = *resident;
  out.leases_broken = stats.leases_broken;
  out.prefill_saved_s = static_cast<double>(stats.prefill_saved_ns) * 1e-9;
  out.finished_stop = stats.finished_stop;
  out.finished_length = stats.finished_length;
  out.finished_cancelled = stats.finished_cancelled;
  out.finished_error = stats.finished_error;
  out.steps = stats.steps;
  if (stats.predicted_hit_rates) {
    for (std::size_t i = 0; i < engine::kCurveFactors.size(); ++i)
      out.predicted_hits.push_back({engine::kCurveFactors[i], (*stats.predicted_hit_rates)[i]});
  }
  std::vector<uint32_t> blocks;
  for (const engine::GroupStats& group : stats.groups) {
    blocks.push_back(group.blocks.pool);
    out.groups.push_back({group.blocks.pool, group.blocks.live, group.blocks.cached,
                          group.blocks.free, group.sequence_rest_max, group.sequence_step_max});
  }
  out.tokens_held = kv::tokens_held(geometry, blocks);
  return out;
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

server::ServedModel describe(const ServeFlags& flags, const std::string& name,
                             const text::Tokenizer& tokenizer, const LoadedTemplate& chat_template,
                             uint32_t context) {
  server::ServedModel served = describe_model(tokenizer, chat_template);
  served.name = name;
  served.aliases = flags.aliases;
  served.context_max = context;
  served.choices_max = flags.max_seqs;
  // As many as an idle server takes at once, so that no call is told for ever to come back later.
  served.prompts_max = static_cast<uint32_t>(
      std::min<uint64_t>(kPromptsMax, uint64_t{flags.max_queue} + flags.max_seqs));
  served.created_unix_s = unix_time_s();
  return served;
}

bool is_strict(const ServeFlags& flags) { return flags.cache_mode == "strict"; }

engine::Options engine_options(const ServeFlags& flags, uint32_t context,
                               const server::ApiKeys& keys, uint32_t tariffs) {
  engine::Options options;
  options.context_max = context;
  options.step_tokens = flags.step_tokens;
  options.seqs_max = flags.max_seqs;
  options.queue_max = flags.max_queue;
  options.prefix_cache = !flags.no_prefix_cache;
  options.cache_curve = flags.cache_curve == "on";
  options.shuffle_blocks = flags.shuffle_seed != 0;
  options.shuffle_seed = flags.shuffle_seed;
  options.lease_5m_ns = to_ns(flags.lease_5m_s);
  options.lease_1h_ns = to_ns(flags.lease_1h_s);
  options.lease_share = flags.lease_share;
  options.cache_tokens_min = flags.cache_min_tokens;
  options.quotas = keys.quotas();
  options.tariffs = tariffs;
  options.cache_mode = is_strict(flags) ? kv::CacheMode::kStrict : kv::CacheMode::kNative;
  return options;
}

/// The floors of the key file against the pool, before the weights are read.
Status check_floors(const ServeFlags& flags, const server::ApiKeys& keys,
                    const kv::Geometry& geometry, const Pool& pool) {
  std::vector<kv::CacheGroup> groups;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g)
    groups.push_back({pool.blocks[g], geometry.groups[g].window});
  const Status status = kv::check_floors(keys.quotas(), groups);
  if (status) return status;
  return {ErrorCode::kInvalidArgument,
          fmt::format("{}: {} (--kv-memory)", flags.api_key_file, status.error().message)};
}

/// What operators may ask. All must outlive the port.
server::OperatorPort operators(engine::Engine& engine, const server::ServedModel& served,
                               const PoolWish& wish, const model::ModelSpec& spec,
                               const kv::Geometry& geometry) {
  using server::OperatorPort;
  OperatorPort port;
  port.report_pool = [&engine](auto done) { engine.report_pool(std::move(done)); };
  port.report_cache = [&engine](auto done) { engine.report_cache(std::move(done)); };
  port.report_curve = [&engine](auto done) { engine.report_curve(std::move(done)); };
  port.clear_cache = [&engine](std::optional<std::string> name, auto done) {
    engine.clear_cache(std::move(name), std::move(done));
  };
  port.resize_pool = [&engine, &wish, &spec, &geometry, context = served.context_max](
                         uint64_t bytes, OperatorPort::Done<engine::PoolReport> done) {
    const engine::Stats now = engine.stats();
    const Result<Pool> pool =
        size_pool_again(bytes, now.pool_bytes, now.committed_bytes, wish, spec, geometry);
    if (!pool) return done(pool.error());
    engine.resize(pool->blocks,
                  [context, done = std::move(done)](Result<engine::PoolReport> report) mutable {
                    if (report) context = report->context_max;
                    done(std::move(report));
                  });
  };
  return port;
}

/// What the server's requests came to. Waits for the step that runs.
std::string last_words(engine::Engine& engine, const server::PriceTable& prices) {
  std::promise<Result<engine::CacheReport>> cache;
  engine.report_cache([&cache](auto report) { cache.set_value(std::move(report)); });
  const Result<engine::CacheReport> report = cache.get_future().get();
  if (!report) return report.error().message;
  std::promise<Result<engine::CurveReport>> curve;
  engine.report_curve([&curve](auto report) { curve.set_value(std::move(report)); });
  const Result<engine::CurveReport> predicted = curve.get_future().get();
  std::string out = server::ledger_summary(*report, prices);
  if (predicted && predicted->figures && predicted->figures->enough)
    out += "\ncurve: " + server::curve_summary(*predicted);
  return out;
}

/// The network thread: runs from before the model is there, so that probes get an answer meanwhile.
class NetworkThread {
 public:
  NetworkThread(server::HttpServer& listener, server::LoadingGate& gate)
      : listener_(listener), thread_([this, &gate] {
          name_this_thread("network");
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
  for (const std::string& alias : flags.aliases) {
    if (alias.empty()) return {ErrorCode::kInvalidArgument, "--alias: a name must not be empty"};
  }
  guard_standard_streams();
  raise_descriptor_limit();
  return_large_buffers();
  // What can be refused at once is refused before the weights are read.
  PW_ASSIGN_OR_RETURN(server::ApiKeys keys, load_keys(flags));
  server::PriceTable prices;
  if (!flags.price_table.empty()) {
    PW_ASSIGN_OR_RETURN(prices, server::PriceTable::from_file(flags.price_table));
  }
  PW_ASSIGN_OR_RETURN(const NamedModel named, find_model(flags.model));
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

  PW_ASSIGN_OR_RETURN(ModelFile model, open_model(named.path, flags.max_context));
  const model::ModelSpec& spec = model.spec;
  PW_ASSIGN_OR_RETURN(const LoadedTemplate chat_template,
                      load_template(*model.file, flags.chat_template));
  PW_ASSIGN_OR_RETURN(const kv::Geometry geometry, geometry_of(spec, flags.compute));
  const PoolWish wish{flags.kv_memory, flags.max_context, flags.step_tokens, flags.compute.threads,
                      flags.max_seqs};
  PW_ASSIGN_OR_RETURN(const Pool pool, size_pool(wish, spec, geometry));
  PW_RETURN_IF_ERROR(check_floors(flags, keys, geometry, pool));

  model::CpuExecutorOptions executor_options;
  executor_options.threads = flags.compute.threads;
  executor_options.blocks = pool.blocks;
  executor_options.blocks_reserved = pool.blocks_reserved;
  executor_options.step_tokens_max = flags.step_tokens;
  executor_options.step_runs_max = flags.max_seqs;
  executor_options.context_max = pool.context_reserved;
  executor_options.progress = load_progress();
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<model::CpuExecutor> executor,
                      model::CpuExecutor::create(*model.file, spec, geometry, executor_options));
  model.file.reset();

  engine::Engine engine(*executor, *model.tokenizer, clock,
                        engine_options(flags, pool.context_reserved, keys, prices.tariffs()));
  PW_RETURN_IF_ERROR(engine.start_status());
  const server::ServedModel served =
      describe(flags, named.name, *model.tokenizer, chat_template, engine.options().context_max);

  telemetry::StaticInfo info;
  info.model_name = served.name;
  info.block_tokens = geometry.block_tokens;
  info.context_max = served.context_max;
  info.kv_type = kv_types_text(flags.compute);
  info.prefix_cache = !flags.no_prefix_cache;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    info.blocks_pool += pool.blocks[g];
    info.block_bytes += geometry.block_bytes(g);
    info.groups.push_back({geometry.groups[g].window, geometry.block_stride(g)});
  }
  info.tokens_held = kv::tokens_held(geometry, pool.blocks);
  info.weight_bytes = executor->weight_bytes();
  info.working_bytes = executor->scratch_bytes();
  telemetry::Metrics metrics(info);

  server::ApiSetup setup;
  setup.model = served;
  setup.keys = std::move(keys);
  setup.prices = prices;
  setup.strict_markers = is_strict(flags);
  setup.engine.submit = [&engine](engine::Request request,
                                  std::shared_ptr<engine::RequestSink> sink) {
    return engine.submit(std::move(request), std::move(sink));
  };
  setup.engine.cancel = [&engine](RequestId request) { engine.cancel(request); };
  setup.engine.look_up = [&engine](engine::LookUp asked,
                                   std::function<void(Result<engine::LookedUp>)> done) {
    engine.look_up(std::move(asked), std::move(done));
  };
  setup.operators = operators(engine, served, wish, spec, geometry);
  setup.snapshot = [&engine, &geometry] { return to_snapshot(engine.stats(), geometry); };
  setup.metrics = &metrics;
  setup.clock = &clock;
  setup.unix_time_s = unix_time_s;
  setup.log = [&log](std::string_view line) { log.write(line); };
  setup.random_seed = random_seed + 1;  // other ids than the gate's
  const std::unique_ptr<server::Handler> api = server::make_api(std::move(setup));

  // Open first: who reads the address may ask at once.
  const std::string screen =
      start_screen(flags, spec, geometry, pool, *executor, served, listener->port());
  gate.open(*api);
  log.write(screen);
  network.wait();
  log.write(last_words(engine, prices));
  log.write("stopped");
  return Status::ok();
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command =
      app.add_subcommand("serve", "Serve a model over the OpenAI and Anthropic HTTP APIs");
  add_serve_flags(*command, *flags);
  command->callback([flags, &exit_status] { finish("serve", serve(*flags), exit_status); });
}

}  // namespace pagewise::cli
