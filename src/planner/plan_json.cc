// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>
#include <string>
#include <utility>

#include "base/json.h"
#include "planner/plan_output.h"

namespace pagewise::planner {
namespace {

json::object row_json(const PlanRow& row) {
  json::object out;
  out["tokens"] = row.tokens;
  out["batch"] = row.batch;
  out["kv_bytes"] = row.kv_bytes;
  if (row.paged_bytes != row.kv_bytes) out["paged_bytes"] = row.paged_bytes;
  if (row.sequences_max) out["max_sequences"] = *row.sequences_max;
  if (row.sequences_sharing_max) out["max_sequences_sharing"] = *row.sequences_sharing_max;
  return out;
}

void add_rows(const Plan& plan, json::object& out) {
  if (plan.rows.empty()) return;
  json::array rows;
  for (const PlanRow& row : plan.rows) rows.push_back(row_json(row));
  out["rows"] = std::move(rows);
  if (plan.rows.size() > 1) return;
  for (const auto& field : row_json(plan.rows.front())) out[field.key()] = field.value();
}

void add_layout(const PlanInput& input, const Plan& plan, json::object& out) {
  if (!plan.cost) return;
  out["kv_bytes_per_token"] = plan.cost->token_bytes();
  if (plan.cost->state_bytes() > 0) out["state_bytes"] = plan.cost->state_bytes();
  if (!input.layout || input.token_bytes) return;
  json::array groups;
  for (const LayoutGroup& group : input.layout->groups) {
    Layout alone;
    alone.groups = {group};
    const auto cost = KvCost::of_layout(alone, *input.key_format, *input.value_format,
                                        input.block_tokens, input.state_value_bytes);
    if (!cost.has_value()) continue;  // the whole could be planned, so each part can
    groups.push_back(json::object{{"layers", group.layers},
                                  {"kv_heads", group.kv_heads},
                                  {"key_dim", group.key_dim},
                                  {"value_dim", group.value_dim},
                                  {"window", group.window},
                                  {"bytes_per_token", cost->token_bytes()}});
  }
  out["groups"] = std::move(groups);
  if (input.layout->layers_sharing > 0) out["layers_sharing"] = input.layout->layers_sharing;
  if (input.layout->states.empty()) return;
  json::array states;
  for (const StateGroup& group : input.layout->states) {
    states.push_back(json::object{{"layers", group.layers}, {"values", group.values}});
  }
  out["states"] = std::move(states);
}

void add_device(const PlanInput& input, json::object& out) {
  if (!input.device) return;
  const DevicePlan& device = *input.device;
  const EngineRule& rule = *device.input.engine;
  out["device"] = json::object{{"engine", rule.name},
                               {"devices", device.input.devices},
                               {"device_bytes", device.input.device_bytes},
                               {"utilization", device.share},
                               {"usable_bytes", device.usable_bytes},
                               {"weight_bytes", device.weight_bytes},
                               {"working_bytes", device.working_bytes},
                               {"kv_bytes", device.kv_bytes},
                               {"kv_bytes_distinct", device.kv_bytes_distinct},
                               {"block_tokens", input.block_tokens},
                               {"pages", rule.pages},
                               {"note", rule.note},
                               {"source", rule.source}};
}

void add_sums(const PopulationPlan& plan, json::object& out) {
  out["naive_bytes"] = plan.naive_bytes;
  out["used_bytes"] = plan.used_bytes;
  out["wasted_bytes"] = plan.wasted_bytes;
  out["paged_bytes"] = plan.paged_bytes;
  if (plan.sequences_naive) out["max_requests_naive"] = *plan.sequences_naive;
  if (plan.sequences_paged) out["max_requests_paged"] = *plan.sequences_paged;
  if (plan.sequences_sharing) out["max_requests_sharing"] = *plan.sequences_sharing;
}

void add_populations(const Plan& plan, json::object& out) {
  if (plan.mix) add_sums(*plan.mix, out);
  if (plan.lengths) {
    json::object lengths{{"requests", plan.lengths->requests},
                         {"tokens_mean", plan.lengths->tokens_mean},
                         {"tokens_max", plan.lengths->tokens_max},
                         {"reserve_tokens", plan.reserve_tokens}};
    add_sums(*plan.lengths, lengths);
    out["lengths"] = std::move(lengths);
  }
  if (plan.waste.empty()) return;
  json::array waste;
  for (const WasteRow& row : plan.waste) {
    json::object entry{{"block_tokens", row.block_tokens},
                       {"paged_bytes", row.paged_bytes},
                       {"slack_bytes", row.slack_bytes}};
    if (row.sequences) entry["max_requests"] = *row.sequences;
    waste.push_back(std::move(entry));
  }
  out["waste"] = std::move(waste);
}

void add_reach(const Plan& plan, json::object& out) {
  if (!plan.reach) return;
  json::array options;
  for (const ReachOption& option : plan.reach->options) {
    options.push_back(json::object{{"by", option.by},
                                   {"value", option.value},
                                   {"sequences", option.sequences},
                                   {"memory_bytes", option.memory_bytes},
                                   {"reached", option.reached},
                                   {"served", option.served}});
  }
  out["users"] = json::object{{"wanted", plan.reach->wanted},
                              {"sequences", plan.reach->sequences},
                              {"options", std::move(options)}};
}

/// To six significant digits.
double rounded(double value) {
  const std::string text = fmt::format("{:.6g}", value);
  double out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

void add_times(const PlanInput& input, const Plan& plan, json::object& out) {
  if (plan.times.empty()) return;
  json::array rows;
  for (const TimesRow& row : plan.times) {
    json::object entry{
        {"tokens", row.tokens}, {"batch", row.batch}, {"first_token_ns", row.first_token_ns}};
    if (row.first_token_cached_ns) {
      entry["cached_tokens"] = row.cached_tokens;
      entry["first_token_cached_ns"] = *row.first_token_cached_ns;
    }
    entry["decode_token_ns"] = row.decode_token_ns;
    entry["tokens_per_s"] = rounded(row.tokens_per_s());
    entry["tokens_per_s_sum"] = rounded(row.tokens_per_s_sum());
    rows.push_back(std::move(entry));
  }
  out["times"] = json::object{{"calibration", input.calibration->name},
                              {"step_tokens", input.step_tokens},
                              {"rows", std::move(rows)}};
}

void add_bill(const Plan& plan, json::object& out) {
  if (!plan.bill) return;
  out["uncached_tokens"] = plan.bill->uncached_tokens;
  out["billed_tokens"] = plan.bill->billed_tokens;
  if (plan.bill->break_even_calls) out["break_even_calls"] = *plan.bill->break_even_calls;
  if (plan.prefill_bill) {
    out["uncached_prefill_ns"] = plan.prefill_bill->uncached_ns;
    out["cached_prefill_ns"] = plan.prefill_bill->cached_ns;
  }
  if (plan.prefix_bytes) out["prefix_bytes"] = *plan.prefix_bytes;
  if (!plan.bill->timed) return;
  const TimedBill& timed = *plan.bill->timed;
  json::object entry{{"even_writes", timed.even_writes},
                     {"even_billed_tokens", timed.even_billed_tokens},
                     {"random_hit_share", timed.random_hit_share},
                     {"random_billed_tokens", timed.random_billed_tokens}};
  if (timed.random_gap_max_s) entry["random_gap_max_s"] = *timed.random_gap_max_s;
  if (plan.prefill_bill) {
    entry["even_prefill_ns"] = *plan.prefill_bill->even_ns;
    entry["random_prefill_ns"] = *plan.prefill_bill->random_ns;
  }
  out["timed"] = std::move(entry);
}

void add_weights(const Plan& plan, json::object& out) {
  if (plan.weight_bytes) out["weight_bytes"] = *plan.weight_bytes;
  if (plan.crossover_tokens) out["crossover_tokens"] = *plan.crossover_tokens;
  if (plan.crossovers.empty()) return;
  json::array crossovers;
  for (const Crossover& crossover : plan.crossovers) {
    crossovers.push_back(json::object{{"batch", crossover.batch}, {"tokens", crossover.tokens}});
  }
  out["crossovers"] = std::move(crossovers);
}

}  // namespace

json::object plan_object(const PlanInput& input, const Plan& plan) {
  json::object out;
  add_rows(plan, out);
  add_layout(input, plan, out);
  add_device(input, out);
  add_times(input, plan, out);
  add_populations(plan, out);
  add_reach(plan, out);
  add_bill(plan, out);
  add_weights(plan, out);
  if (plan.fits) out["fits"] = *plan.fits;
  if (plan.fits && !*plan.fits) {
    json::array fixes;
    for (const Fix& fix : plan.fixes) {
      fixes.push_back(json::object{{"fix", fix.fix}, {"effect", fix.effect}, {"cost", fix.cost}});
    }
    out["fixes"] = std::move(fixes);
  }
  return out;
}

std::string plan_json(const PlanInput& input, const Plan& plan) {
  return json::serialize(plan_object(input, plan));
}

}  // namespace pagewise::planner
