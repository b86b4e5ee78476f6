// SPDX-License-Identifier: Apache-2.0
#include "telemetry/metrics.h"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace pagewise::telemetry {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using Buckets = Histogram::BucketBoundaries;

// Bucket edges are vLLM's, so that panels which name them keep working.
const Buckets kFirstTokenS = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                              1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const Buckets kPerTokenS = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                            .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const Buckets kRequestS = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                           30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};

/// 1, 2, 5, 10, ... up to the first edge at or above `max`.
Buckets one_two_five(uint32_t max) {
  Buckets edges;
  for (double decade = 1; edges.empty() || edges.back() < max; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      edges.push_back(step * decade);
      if (edges.back() >= max) break;
    }
  }
  return edges;
}

}  // namespace

struct Metrics::Impl {
  explicit Impl(const StaticInfo& info) : labels{{"model_name", info.model_name}} {
    const Buckets tokens = one_two_five(std::max<uint32_t>(info.context_max, 1));
    first_token = &histogram("vllm:time_to_first_token_seconds", "Submission to the first token.",
                             kFirstTokenS);
    inter_token =
        &histogram("vllm:inter_token_latency_seconds", "Gap between output tokens.", kPerTokenS);
    per_token = &histogram("vllm:request_time_per_output_token_seconds",
                           "Mean time per output token behind the first, per request.", kPerTokenS);
    e2e =
        &histogram("vllm:e2e_request_latency_seconds", "Submission to the last token.", kRequestS);
    queue = &histogram("vllm:request_queue_time_seconds", "Time in the queue.", kRequestS);
    inference = &histogram("vllm:request_inference_time_seconds", "Admission to the last token.",
                           kRequestS);
    prefill =
        &histogram("vllm:request_prefill_time_seconds", "Admission to the first token.", kRequestS);
    decode = &histogram("vllm:request_decode_time_seconds", "First token to the last.", kRequestS);
    request_prompt =
        &histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", tokens);
    request_computed = &histogram("vllm:request_prefill_kv_computed_tokens",
                                  "Prompt tokens computed, cache hits left out.", tokens);
    request_generation =
        &histogram("vllm:request_generation_tokens", "Output tokens of a request.", tokens);
    request_n = &histogram("vllm:request_params_n", "Choices asked for.", {1, 2, 5, 10, 20});
    request_max = &histogram("vllm:request_params_max_tokens", "max_tokens asked for.", tokens);

    running = &gauge("vllm:num_requests_running", "Requests that are being computed.");
    waiting = &gauge("vllm:num_requests_waiting", "Requests in the queue.");
    usage = &gauge("vllm:kv_cache_usage_perc", "Share of blocks held by running requests, 0 to 1.");
    prefix_queries =
        &counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.");
    prefix_hits =
        &counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.");
    prompt_tokens = &counter("vllm:prompt_tokens_total", "Prompt tokens of admitted requests.");
    generation_tokens = &counter("vllm:generation_tokens_total", "Tokens generated.");
    prompt_cached =
        &counter("vllm:prompt_tokens_cached_total", "Prompt tokens read from the cache.");
    preemptions = &counter("vllm:num_preemptions_total", "Running requests put back to wait.");
    auto& success = prometheus::BuildCounter()
                        .Name("vllm:request_success_total")
                        .Help("Finished requests by reason.")
                        .Register(registry);
    const auto finished = [&](std::string reason) {
      return &success.Add(
          {{"model_name", info.model_name}, {"finished_reason", std::move(reason)}});
    };
    finished_stop = finished("stop");
    finished_length = finished("length");
    finished_abort = finished("abort");
    finished_error = finished("error");

    auto& blocks = prometheus::BuildGauge()
                       .Name("pagewise_kv_blocks")
                       .Help("KV blocks by state; the three sum to pagewise_kv_pool_blocks.")
                       .Register(registry);
    const auto state = [&](std::string name) {
      return &blocks.Add({{"model_name", info.model_name}, {"state", std::move(name)}});
    };
    blocks_live = state("live");
    blocks_cached = state("cached");
    blocks_free = state("free");
    blocks_pool = &gauge("pagewise_kv_pool_blocks", "KV blocks of the pool.");
    blocks_leased = &gauge("pagewise_kv_leased_blocks", "Blocks under a cache lease.");
    slack = &gauge("pagewise_kv_slack_tokens",
                   "Allocated positions of running sequences that hold no token.");
    naive = &gauge("pagewise_kv_naive_reserve_bytes",
                   "What reserving every running request's maximum would take.");
    created = &counter("pagewise_cache_created_tokens_total", "Tokens reported as cache creation.");
    read = &counter("pagewise_cache_read_tokens_total", "Tokens reported as cache read.");
    evictions = &counter("pagewise_evictions_total", "Cached blocks given up for new ones.");
    evictions_ceiling = &counter("pagewise_evictions_ceiling_total",
                                 "Of these, given up because of their namespace's ceiling.");
    evictions_below_floor =
        &counter("pagewise_evictions_below_floor_total",
                 "Of these, given up below a namespace's floor for a sequence that ran alone.");
    blocks_returned = &counter("pagewise_kv_blocks_returned_total",
                               "Free blocks whose memory went back to the system.");
    leases_broken = &counter("pagewise_leases_broken_total",
                             "Leases that ended early because memory was needed.");
    prefill_saved = &counter("pagewise_prefill_saved_seconds_total",
                             "What prompt tokens read from the cache would have taken to compute.");
    steps = &counter("pagewise_steps_total", "Forward passes.");
    http = &prometheus::BuildCounter()
                .Name("pagewise_http_requests_total")
                .Help("HTTP answers by route and status.")
                .Register(registry);

    pool_memory = &gauge("pagewise_kv_pool_bytes", "Memory that the KV pool may take.");
    committed_memory = &gauge("pagewise_kv_committed_bytes", "Memory that KV blocks take now.");
    gauge("pagewise_weight_bytes", "Memory of the weights.")
        .Set(static_cast<double>(info.weight_bytes));
    gauge("pagewise_working_bytes", "Memory that computing takes beside weights and KV.")
        .Set(static_cast<double>(info.working_bytes));
    resident =
        &gauge("process_resident_memory_bytes", "Memory of the process that is in the machine's.");
    context = &gauge("pagewise_context_max_tokens", "Served context: it follows the pool.");
    resizes = &counter("pagewise_kv_pool_resizes_total", "Times the KV pool was resized.");
    queue_refused = &prometheus::BuildCounter()
                         .Name("vllm:admission_rejections_total")
                         .Help("Requests refused because the queue was full.")
                         .Register(registry)
                         .Add({{"model_name", info.model_name}, {"reason", "max_num_queued_reqs"}});
    auto& limited = prometheus::BuildCounter()
                        .Name("pagewise_key_refusals_total")
                        .Help("Requests refused by their key's own limit.")
                        .Register(registry);
    key_requests_refused =
        &limited.Add({{"model_name", info.model_name}, {"limit", "max-requests"}});
    key_tokens_refused = &limited.Add({{"model_name", info.model_name}, {"limit", "max-tokens"}});

    predicted = &prometheus::BuildGauge()
                     .Name("pagewise_cache_predicted_hit_ratio")
                     .Help(
                         "Share of prompt tokens that so many times the KV memory would find in "
                         "the prefix cache, by recent traffic.")
                     .Register(registry);
    config_family = &prometheus::BuildGauge()
                         .Name("vllm:cache_config_info")
                         .Help("Configuration of the KV cache.")
                         .Register(registry);
    add_groups(info);
    show_config(info);
  }

  /// An info metric says by its labels: another pool is another one.
  void show_config(const StaticInfo& info) {
    if (config != nullptr) config_family->Remove(config);
    shown = info;
    config = &config_family->Add({{"model_name", info.model_name},
                                  {"block_size", std::to_string(info.block_tokens)},
                                  {"num_gpu_blocks", std::to_string(info.blocks_pool)},
                                  {"kv_cache_size_tokens", std::to_string(info.tokens_held)},
                                  {"block_bytes", std::to_string(info.block_bytes)},
                                  {"cache_dtype", info.kv_type},
                                  {"enable_prefix_caching", info.prefix_cache ? "True" : "False"},
                                  {"max_model_len", std::to_string(info.context_max)}});
    config->Set(1);
  }

  /// The gauges appear when there is something to say, so that nobody plots an invented zero.
  void show_predicted(const std::vector<PredictedHits>& all) {
    for (const PredictedHits& hits : all) {
      Labels own = labels;
      own["memory"] = fmt::format("{:g}x", hits.memory_factor);
      predicted->Add(own).Set(hits.ratio);
    }
  }

  /// Gauges of each group; the label `group` counts from 0, `window` is 0 for full attention.
  void add_groups(const StaticInfo& info) {
    const auto family = [&](const char* name, const char* help) {
      return &prometheus::BuildGauge().Name(name).Help(help).Register(registry);
    };
    auto* const pool =
        family("pagewise_kv_group_pool_blocks", "KV blocks of a layer group's pool.");
    auto* const bytes = family("pagewise_kv_group_block_bytes", "Memory of one block of a group.");
    auto* const state = family("pagewise_kv_group_blocks",
                               "KV blocks of a layer group by state; they sum to its pool.");
    auto* const most = family("pagewise_kv_sequence_blocks_max",
                              "The most blocks of a group that one sequence has held: at rest, and "
                              "during a step.");
    for (std::size_t g = 0; g < info.groups.size(); ++g) {
      Labels own = labels;
      own["group"] = std::to_string(g);
      own["window"] = std::to_string(info.groups[g].window);
      const auto with = [&](const char* name, const char* value) {
        Labels more = own;
        more[name] = value;
        return more;
      };
      bytes->Add(own).Set(static_cast<double>(info.groups[g].block_bytes));
      groups.push_back({&pool->Add(own), &state->Add(with("state", "live")),
                        &state->Add(with("state", "cached")), &state->Add(with("state", "free")),
                        &most->Add(with("when", "rest")), &most->Add(with("when", "step"))});
    }
  }

  Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  Counter& counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                     buckets);
  }

  struct GroupGauges {
    Gauge *pool, *live, *cached, *free, *rest_max, *step_max;
  };

  const Labels labels;
  prometheus::Registry registry;
  std::vector<GroupGauges> groups;
  Histogram *first_token, *inter_token, *per_token, *e2e, *queue, *inference, *prefill, *decode;
  Histogram *request_prompt, *request_computed, *request_generation, *request_n, *request_max;
  Gauge *running, *waiting, *usage, *blocks_live, *blocks_cached, *blocks_free, *blocks_pool,
      *blocks_leased;
  Gauge *slack, *naive, *pool_memory, *committed_memory, *resident, *context;
  Counter *resizes, *queue_refused, *key_requests_refused, *key_tokens_refused;
  prometheus::Family<Gauge>* config_family = nullptr;
  prometheus::Family<Gauge>* predicted = nullptr;
  Gauge* config = nullptr;
  StaticInfo shown;
  Counter *prefix_queries, *prefix_hits, *prompt_tokens, *generation_tokens, *prompt_cached,
      *preemptions;
  Counter *finished_stop, *finished_length, *finished_abort, *finished_error;
  Counter *created, *read, *evictions, *evictions_ceiling, *evictions_below_floor, *blocks_returned,
      *leases_broken, *steps, *prefill_saved;
  prometheus::Family<Counter>* http;
  std::mutex render_mutex;  // one render at a time: counters are moved up to the snapshot's totals
};

Metrics::Metrics(const StaticInfo& info) : impl_(std::make_unique<Impl>(info)) {}
Metrics::~Metrics() = default;

void Metrics::observe_request(const RequestSample& sample) {
  const auto observe = [](Histogram* histogram, double seconds) {
    if (seconds >= 0) histogram->Observe(seconds);
  };
  observe(impl_->queue, sample.queue_s);
  observe(impl_->prefill, sample.prefill_s);
  observe(impl_->first_token, sample.first_token_s);
  observe(impl_->e2e, sample.total_s);
  if (sample.total_s >= 0 && sample.queue_s >= 0) {
    observe(impl_->inference, std::max(0.0, sample.total_s - sample.queue_s));
  }
  if (sample.total_s >= 0 && sample.first_token_s >= 0) {
    const double decode_s = std::max(0.0, sample.total_s - sample.first_token_s);
    observe(impl_->decode, decode_s);
    if (sample.completion_tokens > sample.choices) {
      observe(impl_->per_token, decode_s / (sample.completion_tokens - sample.choices));
    }
  }
  impl_->request_prompt->Observe(sample.prompt_tokens);
  impl_->request_computed->Observe(sample.computed_tokens);
  impl_->request_generation->Observe(sample.completion_tokens);
  impl_->request_n->Observe(sample.choices);
  impl_->request_max->Observe(static_cast<double>(sample.max_tokens));
}

void Metrics::observe_tokens(double gap_s, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) impl_->inter_token->Observe(gap_s / count);
}

void Metrics::count_http(std::string_view route, int status) {
  Labels labels = impl_->labels;
  labels["route"] = std::string(route);
  labels["status"] = std::to_string(status);
  impl_->http->Add(labels).Increment();
}

void Metrics::count_refusal(Limit limit) {
  switch (limit) {
    case Limit::kQueue:
      return impl_->queue_refused->Increment();
    case Limit::kKeyRequests:
      return impl_->key_requests_refused->Increment();
    case Limit::kKeyTokens:
      return impl_->key_tokens_refused->Increment();
  }
}

std::string Metrics::render(const EngineSnapshot& now) {
  std::lock_guard lock(impl_->render_mutex);
  const auto raise = [](Counter* counter, uint64_t total) {
    counter->Increment(std::max(0.0, static_cast<double>(total) - counter->Value()));
  };
  impl_->running->Set(now.requests_running);
  impl_->waiting->Set(now.requests_waiting);
  impl_->usage->Set(now.blocks_pool == 0 ? 0
                                         : static_cast<double>(now.blocks_live) / now.blocks_pool);
  impl_->blocks_live->Set(now.blocks_live);
  impl_->blocks_cached->Set(now.blocks_cached);
  impl_->blocks_free->Set(now.blocks_free);
  impl_->blocks_pool->Set(now.blocks_pool);
  impl_->blocks_leased->Set(now.blocks_leased);
  for (std::size_t g = 0; g < std::min(impl_->groups.size(), now.groups.size()); ++g) {
    const Impl::GroupGauges& gauges = impl_->groups[g];
    const GroupSnapshot& group = now.groups[g];
    gauges.pool->Set(group.blocks_pool);
    gauges.live->Set(group.blocks_live);
    gauges.cached->Set(group.blocks_cached);
    gauges.free->Set(group.blocks_free);
    gauges.rest_max->Set(group.sequence_rest_max);
    gauges.step_max->Set(group.sequence_step_max);
  }
  impl_->slack->Set(static_cast<double>(now.slack_tokens));
  impl_->naive->Set(static_cast<double>(now.naive_reserve_bytes));
  impl_->show_predicted(now.predicted_hits);
  raise(impl_->prefix_queries, now.prefix_query_tokens);
  raise(impl_->prefix_hits, now.prefix_hit_tokens);
  raise(impl_->prompt_tokens, now.prompt_tokens);
  raise(impl_->generation_tokens, now.generation_tokens);
  raise(impl_->prompt_cached, now.prefix_hit_tokens);
  raise(impl_->preemptions, now.preemptions);
  raise(impl_->finished_stop, now.finished_stop);
  raise(impl_->finished_length, now.finished_length);
  raise(impl_->finished_abort, now.finished_cancelled);
  raise(impl_->finished_error, now.finished_error);
  raise(impl_->created, now.cache_created_tokens);
  raise(impl_->read, now.cache_read_tokens);
  raise(impl_->evictions, now.evictions);
  raise(impl_->evictions_ceiling, now.evictions_ceiling);
  raise(impl_->evictions_below_floor, now.evictions_below_floor);
  raise(impl_->blocks_returned, now.blocks_returned);
  raise(impl_->leases_broken, now.leases_broken);
  raise(impl_->steps, now.steps);
  impl_->prefill_saved->Increment(
      std::max(0.0, now.prefill_saved_s - impl_->prefill_saved->Value()));
  raise(impl_->resizes, now.pool_resizes);
  impl_->pool_memory->Set(static_cast<double>(now.pool_bytes));
  impl_->committed_memory->Set(static_cast<double>(now.committed_bytes));
  impl_->resident->Set(static_cast<double>(now.resident_bytes));
  impl_->context->Set(now.context_max);
  if (now.pool_resizes > 0 && (now.blocks_pool != impl_->shown.blocks_pool ||
                               now.context_max != impl_->shown.context_max)) {
    StaticInfo info = impl_->shown;
    info.blocks_pool = now.blocks_pool;
    info.context_max = now.context_max;
    info.tokens_held = now.tokens_held;
    impl_->show_config(info);
  }
  const std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace pagewise::telemetry
