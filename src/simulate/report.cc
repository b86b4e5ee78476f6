// SPDX-License-Identifier: Apache-2.0
#include "simulate/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/bytes.h"
#include "kv/pool_split.h"
#include "simulate/page.h"

namespace pagewise::simulate {
namespace {

/// To six significant digits: what a model of five numbers can mean, and what reads well.
double rounded(double value) {
  const std::string text = fmt::format("{:.6g}", value);
  double out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

double ratio(double part, double whole) { return whole == 0 ? 0 : rounded(part / whole); }
double ratio(uint64_t part, uint64_t whole) {
  return ratio(static_cast<double>(part), static_cast<double>(whole));
}
double seconds(TimeNs ns) { return static_cast<double>(ns) / 1e9; }
double milliseconds(TimeNs ns) { return static_cast<double>(ns) / 1e6; }

TimeNs span_ns(const workload::Trace& trace) {
  return trace.requests().empty() ? 0 : trace.requests().back().arrival_ns;
}

json::object times_json(const Histogram& times) {
  return {{"p50", rounded(milliseconds(times.quantile(0.5)))},
          {"p90", rounded(milliseconds(times.quantile(0.9)))},
          {"p99", rounded(milliseconds(times.quantile(0.99)))},
          {"max", rounded(milliseconds(times.max()))}};
}

json::object measured_json(const Measured& measured, uint32_t replicas) {
  const double elapsed_s = seconds(measured.last_ns);
  return {
      {"offered", measured.offered},
      {"served", measured.served},
      {"refused_queue_full", measured.refused_queue},
      {"refused_too_long", measured.refused_context},
      {"failed", measured.failed},
      {"prompt_tokens", measured.prompt_tokens},
      {"cached_tokens", measured.cached_tokens},
      {"output_tokens", measured.output_tokens},
      {"hit_rate", ratio(measured.cached_tokens, measured.prompt_tokens)},
      {"first_token_ms", times_json(measured.first_token)},
      {"gap_ms", times_json(measured.gap)},
      {"queue_ms", times_json(measured.queue)},
      {"elapsed_s", rounded(elapsed_s)},
      {"requests_per_s", ratio(static_cast<double>(measured.served), elapsed_s)},
      {"prompt_tokens_per_s", ratio(static_cast<double>(measured.prompt_tokens), elapsed_s)},
      {"output_tokens_per_s", ratio(static_cast<double>(measured.output_tokens), elapsed_s)},
      {"busy_share", ratio(seconds(measured.busy_ns), elapsed_s * replicas)},
      {"unused_share", ratio(measured.positions_unused, measured.positions_held)},
      {"reserve_factor", ratio(measured.positions_reserved, measured.positions_held)},
      {"preemptions", measured.preemptions},
      {"evictions", json::object{{"total", measured.evictions},
                                 {"ceiling", measured.evictions_ceiling},
                                 {"below_floor", measured.evictions_below_floor}}},
      {"markers", json::object{{"read_tokens", measured.marked_read_tokens},
                               {"created_tokens", measured.marked_created_tokens},
                               {"leases_broken", measured.leases_broken},
                               {"leases_refused", measured.leases_refused}}},
      {"prefix_waits", measured.prefix_waits},
      {"steps", measured.steps},
  };
}

std::string_view policy_name(const SimulationOptions& options) {
  return options.replica.engine.protected_share == 0 ? "lru" : "default";
}

std::string_view mark_name(kv::LeaseClass lease) {
  return lease == kv::LeaseClass::k5m ? "5m" : "1h";
}

uint64_t pool_tokens(const SimulationOptions& options) {
  return kv::tokens_held(options.replica.geometry, options.replica.blocks);
}

uint64_t pool_bytes(const ReplicaOptions& replica) {
  uint64_t bytes = 0;
  for (uint32_t g = 0; g < replica.blocks.size(); ++g) {
    bytes += replica.blocks[g] * replica.geometry.block_stride(g);
  }
  return bytes;
}

bool has_windows(const kv::Geometry& geometry) {
  return std::any_of(geometry.groups.begin(), geometry.groups.end(),
                     [](const kv::GroupGeometry& group) { return group.window != 0; });
}

json::array groups_json(const ReplicaOptions& replica) {
  json::array groups;
  for (uint32_t g = 0; g < replica.blocks.size(); ++g) {
    const kv::GroupGeometry& group = replica.geometry.groups[g];
    groups.push_back(json::object{{"layers", group.layers},
                                  {"window", group.window},
                                  {"blocks", replica.blocks[g]},
                                  {"block_bytes", replica.geometry.block_stride(g)}});
  }
  return groups;
}

json::object machine_json(const SimulationOptions& options) {
  const ReplicaOptions& replica = options.replica;
  json::object machine{{"calibration", replica.calibration.name},
                       {"kv_bytes_per_token", replica.geometry.token_bytes()},
                       {"replicas", options.replicas},
                       {"routing", routing_name(options.routing)},
                       {"pool_tokens", pool_tokens(options)},
                       {"pool_bytes", pool_bytes(replica)},
                       {"block_tokens", replica.geometry.block_tokens},
                       {"policy", policy_name(options)},
                       {"prefix_cache", replica.engine.prefix_cache}};
  if (replica.mark) machine["mark"] = mark_name(*replica.mark);
  if (!options.model_name.empty()) {
    machine["model"] = options.model_name;
    machine["kv_type"] = options.kv_type_name;
    machine["groups"] = groups_json(replica);
  }
  return machine;
}

// ---- Text ----

/// "1,234,567".
std::string grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string duration(TimeNs ns) {
  const double ms = milliseconds(ns);
  if (ms < 100) return fmt::format("{:.1f} ms", ms);
  if (ms < 10'000) return fmt::format("{:.0f} ms", ms);
  if (ms < 7'200'000) return fmt::format("{:.1f} s", ms / 1000);
  return fmt::format("{:.1f} h", ms / 3'600'000);
}

std::string row(std::string_view name, std::string_view text) {
  return fmt::format("{:<14}{}\n", name, text);
}

std::string times_row(std::string_view name, const Histogram& times) {
  return row(name, fmt::format("half within {}, 90 % {}, 99 % {}, longest {}",
                               duration(times.quantile(0.5)), duration(times.quantile(0.9)),
                               duration(times.quantile(0.99)), duration(times.max())));
}

std::string share_of(uint64_t part, uint64_t whole) { return percent(ratio(part, whole)); }

std::string measured_text(const Measured& measured, uint32_t replicas) {
  std::string out = row(
      "served", fmt::format("{} of {} requests; refused {} (queue full), {} (too "
                            "long)",
                            grouped(measured.served), grouped(measured.offered),
                            grouped(measured.refused_queue), grouped(measured.refused_context)));
  out += row("hit rate",
             fmt::format("{}: {} of {} prompt tokens",
                         share_of(measured.cached_tokens, measured.prompt_tokens),
                         grouped(measured.cached_tokens), grouped(measured.prompt_tokens)));
  out += times_row("first token", measured.first_token);
  out += times_row("gaps", measured.gap);
  out += times_row("queue", measured.queue);
  const double elapsed_s = seconds(measured.last_ns);
  const auto per_s = [&](uint64_t count) {
    return fmt::format("{:.4g}", ratio(static_cast<double>(count), elapsed_s));
  };
  out += row("throughput",
             fmt::format("{} requests, {} prompt tokens, {} answer tokens a second; busy {}",
                         per_s(measured.served), per_s(measured.prompt_tokens),
                         per_s(measured.output_tokens),
                         percent(ratio(seconds(measured.busy_ns), elapsed_s * replicas))));
  out += row("waste", fmt::format("{} of allocated positions hold no token; reserving every "
                                  "answer's length at once: {:.3g} times the memory",
                                  share_of(measured.positions_unused, measured.positions_held),
                                  ratio(measured.positions_reserved, measured.positions_held)));
  out += row("memory", fmt::format("{} preemptions, {} blocks evicted",
                                   grouped(measured.preemptions), grouped(measured.evictions)));
  return out;
}

std::string markers_text(const Measured& measured) {
  return row(
      "markers",
      fmt::format("{} tokens read, {} created; {} leases broken, {} refused",
                  grouped(measured.marked_read_tokens), grouped(measured.marked_created_tokens),
                  grouped(measured.leases_broken), grouped(measured.leases_refused)));
}

std::string machine_text(const SimulationOptions& options) {
  const ReplicaOptions& replica = options.replica;
  std::string out =
      row("machine", fmt::format("{}{}; pool of {} tokens in blocks of {} ({}), policy {}",
                                 options.replicas > 1 ? fmt::format("{} x ", options.replicas) : "",
                                 replica.calibration.name, grouped(pool_tokens(options)),
                                 replica.geometry.block_tokens, format_size(pool_bytes(replica)),
                                 policy_name(options)));
  if (options.model_name.empty()) return out;
  std::string groups;
  for (uint32_t g = 0; g < replica.blocks.size(); ++g) {
    const uint32_t window = replica.geometry.groups[g].window;
    groups +=
        fmt::format("; {} layers {}: {} blocks", replica.geometry.groups[g].layers,
                    window == 0 ? "that keep all" : fmt::format("behind a window of {}", window),
                    grouped(replica.blocks[g]));
  }
  return out +
         row("model", fmt::format("{}, KV {}{}", options.model_name, options.kv_type_name, groups));
}

/// Memory in which a pool keeps so many tokens in the layers that keep all. Those behind a window
/// need less for them: as much as serve gives them.
uint64_t curve_bytes(const ReplicaOptions& replica, uint64_t tokens) {
  const kv::Geometry& geometry = replica.geometry;
  if (!has_windows(geometry)) return tokens * geometry.token_bytes();
  return kv::memory_to_hold(geometry, replica.split_wish(0), tokens);
}

std::string curve_text(const Report& report) {
  const Curve& curve = *report.curve;
  std::string out = "hit rate against memory (least recently used";
  if (curve.share < 1) {
    out += fmt::format(", from {} of the blocks", percent(curve.share));
  }
  out += ")\n";
  if (has_windows(report.options.replica.geometry)) {
    out += "  memory as serve divides it; tokens of the layers that keep all\n";
  }
  if (curve.points.empty()) out += "  nothing is asked for twice\n";
  std::string told;
  for (const CurvePoint& point : curve.points) {
    // What more memory does not change is not repeated.
    if (percent(point.hit_rate) == told) continue;
    told = percent(point.hit_rate);
    out += fmt::format("  {:>15} tokens {:>10}  {:>7}\n", grouped(point.tokens),
                       format_size(curve_bytes(report.options.replica, point.tokens)),
                       percent(point.hit_rate));
  }
  return out;
}

}  // namespace

json::object report_json(const Report& report) {
  const SimulationOptions& options = report.options;
  json::object out;
  out["trace"] = json::object{{"name", report.trace_name},
                              {"requests", report.trace->requests().size()},
                              {"span_s", rounded(seconds(span_ns(*report.trace)))},
                              {"prompt_tokens", report.trace->prompt_tokens()},
                              {"output_tokens", report.trace->output_tokens()}};
  if (report.outcome) {
    out["machine"] = machine_json(options);
    out["result"] = measured_json(report.outcome->all, options.replicas);
    if (options.replicas > 1) {
      json::array each;
      for (const Measured& measured : report.outcome->replicas) {
        each.push_back(measured_json(measured, 1));
      }
      out["replicas"] = std::move(each);
    }
  }
  if (report.curve) {
    json::array points;
    for (const CurvePoint& point : report.curve->points) {
      points.push_back(json::object{{"tokens", point.tokens},
                                    {"bytes", curve_bytes(options.replica, point.tokens)},
                                    {"hit_rate", rounded(point.hit_rate)}});
    }
    out["curve"] = json::object{{"followed_share", rounded(report.curve->share)},
                                {"points", std::move(points)}};
  }
  return out;
}

std::string report_text(const Report& report) {
  const SimulationOptions& options = report.options;
  const workload::Trace& trace = *report.trace;
  std::string out =
      row("trace",
          fmt::format("{}: {} requests in {}, {} prompt tokens, {} answer tokens",
                      report.trace_name, grouped(trace.requests().size()), duration(span_ns(trace)),
                      grouped(trace.prompt_tokens()), grouped(trace.output_tokens())));
  if (report.outcome) {
    out += machine_text(options);
    out += measured_text(report.outcome->all, options.replicas);
    if (options.replica.mark) out += markers_text(report.outcome->all);
    for (std::size_t i = 0; options.replicas > 1 && i < report.outcome->replicas.size(); ++i) {
      const Measured& measured = report.outcome->replicas[i];
      out +=
          row(i == 0 ? routing_name(options.routing) : "",
              fmt::format("replica {}: {} requests, hit rate {}", i + 1, grouped(measured.offered),
                          share_of(measured.cached_tokens, measured.prompt_tokens)));
    }
  }
  if (report.curve) out += curve_text(report);
  return out;
}

std::string report_html(const Report& report) { return make_page(report_json(report)); }

Result<std::string> report_svg(const Report& report) { return make_svg(report_json(report)); }

}  // namespace pagewise::simulate
