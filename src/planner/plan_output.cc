// SPDX-License-Identifier: Apache-2.0
#include "planner/plan_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "planner/numbers.h"
#include "planner/text_table.h"

namespace pagewise::planner {
namespace {

std::string mib(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
}

std::string gib(uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
}

/// Part of a whole in whole percent.
int percent(uint64_t part, uint64_t whole) {
  if (whole == 0) return 0;
  return static_cast<int>(
      std::lround(100.0 * static_cast<double>(part) / static_cast<double>(whole)));
}

constexpr auto kLeft = TextTable::Align::kLeft;
constexpr auto kRight = TextTable::Align::kRight;

// Lines of about 56 characters, cut only between clauses.
std::vector<std::string> wrapped(std::string_view text) {
  constexpr std::size_t kWidth = 56;
  std::vector<std::string> lines = {""};
  while (!text.empty()) {
    const std::size_t comma = text.find(", ");
    const std::size_t length = comma == std::string_view::npos ? text.size() : comma + 2;
    if (!lines.back().empty() && lines.back().size() + length > kWidth) lines.emplace_back();
    lines.back() += text.substr(0, length);
    text.remove_prefix(length);
  }
  return lines;
}

std::string group_text(const LayoutGroup& group) {
  std::string dims = std::to_string(group.key_dim);
  if (group.value_dim == 0) {
    return fmt::format(
        "{} {} x 1 latent row x {}{}", group.layers, group.layers == 1 ? "layer" : "layers", dims,
        group.window == 0 ? std::string()
                          : fmt::format(", the last {} positions", grouped(group.window)));
  }
  if (group.value_dim != group.key_dim) {
    dims = fmt::format("{} (K) and {} (V)", group.key_dim, group.value_dim);
  }
  return fmt::format(
      "{} {} x {} KV {} x {}{}", group.layers, group.layers == 1 ? "layer" : "layers",
      group.kv_heads, group.kv_heads == 1 ? "head" : "heads", dims,
      group.window == 0 ? std::string()
                        : fmt::format(", the last {} positions", grouped(group.window)));
}

/// Where layers differ: what a token leaves in these.
std::string group_cost_text(const PlanInput& input, const LayoutGroup& group) {
  if (input.layout->groups.size() < 2) return {};
  Layout alone;
  alone.groups = {group};
  const auto cost =
      KvCost::of_layout(alone, *input.key_format, *input.value_format, input.block_tokens);
  if (!cost.has_value()) return {};
  return fmt::format(": {} bytes a token", grouped(cost->token_bytes()));
}

std::string layout_text(const PlanInput& input, const Plan& plan) {
  if (!plan.cost) return {};
  std::string out;
  if (input.layout && !input.token_bytes) {
    if (!input.layout->name.empty()) {
      out += input.layout->name;
      if (input.layout->context) {
        out += fmt::format(", made for {} positions", grouped(*input.layout->context));
      }
      out += '\n';
    }
    const auto& groups = input.layout->groups;
    for (const LayoutGroup& group : groups) {
      out += "  " + group_text(group) + group_cost_text(input, group) + '\n';
    }
    if (input.layout->layers_sharing > 0) {
      out += fmt::format("  {} layers that read the rows of others and keep none\n",
                         input.layout->layers_sharing);
    }
    for (const StateGroup& group : input.layout->states) {
      out += fmt::format("  {} {} with a state of {} values, whatever the length\n", group.layers,
                         group.layers == 1 ? "layer" : "layers", grouped(group.values));
    }
    out += fmt::format("  K {}, V {}", input.key_format->name, input.value_format->name);
    for (const KvFormat* format : {input.key_format, input.value_format}) {
      if (format->served) continue;
      out += fmt::format(" ({} can be planned but is not served yet)", format->name);
      break;
    }
    out += '\n';
  }
  const uint64_t token = plan.cost->token_bytes();
  if (token > 0) {
    out += fmt::format("  {} bytes of KV a token ({}); blocks of {} tokens, {} each\n",
                       grouped(token), format_size(token), plan.cost->block_tokens(),
                       format_size(plan.cost->block_bytes()));
  }
  if (plan.cost->state_bytes() > 0) {
    out += fmt::format("  {} bytes of state a sequence ({}), {} bytes a value\n",
                       grouped(plan.cost->state_bytes()), format_size(plan.cost->state_bytes()),
                       input.state_value_bytes);
  }
  if (plan.weight_bytes) {
    out += fmt::format("  weights {}", format_size(*plan.weight_bytes));
    if (plan.crossover_tokens) {
      out += fmt::format("; from {} tokens on KV is larger", grouped(*plan.crossover_tokens));
    }
    out += '\n';
    if (input.batches.size() > 1 || input.batches.front() != 1) {
      for (const Crossover& crossover : plan.crossovers) {
        out += fmt::format("  {} at once: from {} tokens each\n", grouped(crossover.batch),
                           grouped(crossover.tokens));
      }
    }
  }
  return out;
}

std::string percent_of_one(double share) {
  return fmt::format("{:g} %", std::round(share * 1000) / 10);
}

std::string device_text(const PlanInput& input) {
  if (!input.device) return {};
  const DevicePlan& device = *input.device;
  const EngineRule& rule = *device.input.engine;
  std::string out = fmt::format("{} on {} {} of {}\n", rule.name, grouped(device.input.devices),
                                device.input.devices == 1 ? "device" : "devices",
                                format_size(device.input.device_bytes));
  TextTable table({kLeft, kRight});
  std::string usable = "it may take";
  if (rule.basis == ShareBasis::kDevice && device.share < 1) {
    usable += fmt::format(" ({})", percent_of_one(device.share));
  }
  if (rule.margin_bytes > 0) {
    usable += fmt::format(" (all but {} of each)", format_size(rule.margin_bytes));
  }
  table.row({usable, format_size(device.usable_bytes)});
  table.row({"weights", format_size(device.weight_bytes)});
  table.row({"working memory", format_size(device.working_bytes)});
  table.row({rule.basis == ShareBasis::kRest
                 ? fmt::format("KV ({} of the rest)", percent_of_one(device.share))
                 : std::string("KV"),
             format_size(device.kv_bytes)});
  if (device.kv_bytes_distinct != device.kv_bytes) {
    table.row(
        {"KV, copies on several devices counted once", format_size(device.kv_bytes_distinct)});
  }
  out += table.text();
  out += fmt::format("  note: {}\n", rule.note);
  if (!rule.pages) {
    out += fmt::format(
        "  note: {} reserves each request's whole context; what is said of blocks "
        "is what paging would give\n",
        rule.name);
  }
  return out;
}

std::string rows_text(const PlanInput& input, const Plan& plan) {
  if (plan.rows.empty()) return {};
  const bool show_gib = std::any_of(plan.rows.begin(), plan.rows.end(),
                                    [](const PlanRow& row) { return row.kv_bytes >= kGiB / 2; });
  const bool show_paged = std::any_of(plan.rows.begin(), plan.rows.end(), [](const PlanRow& row) {
    return row.paged_bytes != row.kv_bytes;
  });
  std::vector<TextTable::Align> columns = {kRight, kRight, kRight};
  std::vector<std::string> head = {"tokens", "batch", "KV"};
  const auto add_column = [&](std::string name) {
    columns.push_back(kRight);
    head.push_back(std::move(name));
  };
  if (show_gib) add_column("");
  if (show_paged) add_column("in whole blocks");
  if (input.memory) {
    add_column(fmt::format("at once in {}", format_size(*input.memory)));
    if (input.prefix_tokens) {
      add_column(fmt::format("sharing {} tokens", grouped(*input.prefix_tokens)));
    }
    add_column("batch fits");
  }
  TextTable table(columns);
  table.row(head);
  for (const PlanRow& row : plan.rows) {
    std::vector<std::string> cells = {grouped(row.tokens), grouped(row.batch), mib(row.kv_bytes)};
    if (show_gib) cells.push_back(gib(row.kv_bytes));
    if (show_paged) cells.push_back(mib(row.paged_bytes));
    if (input.memory) {
      cells.push_back(grouped(*row.sequences_max));
      if (row.sequences_sharing_max) cells.push_back(grouped(*row.sequences_sharing_max));
      cells.push_back(row.paged_bytes <= *input.memory ? "yes" : "no");
    }
    table.row(std::move(cells));
  }
  std::string out = table.text();
  if (input.layout && input.layout->context) {
    for (const uint64_t tokens : input.tokens) {
      if (tokens <= *input.layout->context) continue;
      out +=
          fmt::format("  note: {} tokens are more than the {} positions the model was made for\n",
                      grouped(tokens), grouped(*input.layout->context));
    }
  }
  return out;
}

std::string mix_text(const PlanInput& input, const Plan& plan) {
  if (!plan.mix) return {};
  const PopulationPlan& mix = *plan.mix;
  std::string out = fmt::format("{} requests at the same time\n", grouped(input.requests.size()));
  TextTable table({kLeft, kRight, kLeft});
  table.row({"reserving every maximum", mib(mix.naive_bytes), ""});
  table.row({"used by real tokens", mib(mix.used_bytes), ""});
  table.row({"wasted by reserving", mib(mix.wasted_bytes),
             fmt::format("{} %", percent(mix.wasted_bytes, mix.naive_bytes))});
  const uint64_t slack = mix.paged_bytes - mix.used_bytes;
  std::string slack_text = format_size(slack) + " of slack";
  if (slack < plan.cost->block_bytes() * input.requests.size()) {
    slack_text += ", less than a block a request";
  }
  table.row({fmt::format("in blocks of {}", plan.cost->block_tokens()), mib(mix.paged_bytes),
             slack_text});
  out += table.text();
  if (input.memory) {
    out += fmt::format("  requests like these at once in {}: {} reserved, {} in blocks\n",
                       format_size(*input.memory), grouped(*mix.sequences_naive),
                       grouped(*mix.sequences_paged));
  }
  return out;
}

std::string lengths_text(const PlanInput& input, const Plan& plan) {
  if (!plan.lengths) return {};
  const PopulationPlan& lengths = *plan.lengths;
  std::string out =
      fmt::format("{} requests: {} tokens on average, {} at most; each may become {}\n",
                  grouped(lengths.requests), grouped(lengths.tokens_mean),
                  grouped(lengths.tokens_max), grouped(plan.reserve_tokens));
  const auto each = [&](uint64_t bytes) { return mib(bytes / lengths.requests); };
  TextTable table({kLeft, kRight, kLeft});
  table.row({"on average, reserving what it may become", each(lengths.naive_bytes), ""});
  table.row({"used by real tokens", each(lengths.used_bytes), ""});
  table.row({"wasted by reserving", each(lengths.wasted_bytes),
             fmt::format("{} %", percent(lengths.wasted_bytes, lengths.naive_bytes))});
  const uint64_t slack = lengths.paged_bytes - lengths.used_bytes;
  table.row({fmt::format("in blocks of {}", plan.cost->block_tokens()), each(lengths.paged_bytes),
             fmt::format("{} % of slack", percent(slack, lengths.paged_bytes))});
  out += table.text();
  if (input.memory) {
    out += fmt::format("  at once in {}: {} reserved, {} in blocks", format_size(*input.memory),
                       grouped(*lengths.sequences_naive), grouped(*lengths.sequences_paged));
    if (lengths.sequences_sharing) {
      out += fmt::format(", {} with a common prefix of {} tokens",
                         grouped(*lengths.sequences_sharing), grouped(*input.prefix_tokens));
    }
    out += '\n';
  }
  return out;
}

std::string waste_text(const PlanInput& input, const Plan& plan) {
  if (plan.waste.empty()) return {};
  const PopulationPlan& of = plan.lengths ? *plan.lengths : *plan.mix;
  std::vector<TextTable::Align> columns = {kLeft, kRight, kRight, kRight};
  // Of a distribution the mean is what says something, of a mix the sum.
  const uint64_t parts = plan.lengths ? plan.lengths->requests : 1;
  std::vector<std::string> head = {plan.lengths ? "waste, a request" : "waste", "taken",
                                   "holds no token", "share"};
  if (input.memory) {
    columns.push_back(kRight);
    head.push_back(fmt::format("at once in {}", format_size(*input.memory)));
  }
  TextTable table(columns);
  table.row(head);
  const auto add = [&](std::string name, uint64_t taken, uint64_t empty,
                       std::optional<uint64_t> sequences) {
    std::vector<std::string> cells = {
        std::move(name), format_size(taken / parts), format_size(empty / parts),
        fmt::format(
            "{:.1f} %",
            taken == 0 ? 0.0 : 100.0 * static_cast<double>(empty) / static_cast<double>(taken))};
    if (sequences) cells.push_back(grouped(*sequences));
    table.row(std::move(cells));
  };
  add("reserved", of.naive_bytes, of.wasted_bytes, of.sequences_naive);
  for (const WasteRow& row : plan.waste) {
    add(fmt::format("blocks of {}", row.block_tokens), row.paged_bytes, row.slack_bytes,
        row.sequences);
  }
  return table.text();
}

std::string reach_text(const PlanInput& input, const Plan& plan) {
  if (!plan.reach) return {};
  const Reach& reach = *plan.reach;
  std::string out = fmt::format("{} at once are wanted in {}: {} fit\n", grouped(reach.wanted),
                                format_size(*input.memory), grouped(reach.sequences));
  TextTable table({kLeft, kLeft, kRight, kRight, kLeft, kLeft});
  table.row({"with", "", "fit", fmt::format("{} take", grouped(reach.wanted)), "reached", ""});
  for (const ReachOption& option : reach.options) {
    table.row({option.by, option.value, grouped(option.sequences), format_size(option.memory_bytes),
               option.reached ? "yes" : "no", option.served ? "" : "not served yet"});
  }
  return out + table.text();
}

std::string tokens_per_s(double value) {
  if (value < 100) return fmt::format("{:.3g}", value);
  return grouped(static_cast<uint64_t>(std::llround(value)));
}

std::string times_text(const PlanInput& input, const Plan& plan) {
  if (plan.times.empty()) return {};
  std::string out = fmt::format("Times on {}, in steps of {} tokens\n", input.calibration->name,
                                grouped(input.step_tokens));
  const bool cached = plan.times.front().first_token_cached_ns.has_value();
  std::vector<std::string> head = {"tokens", "batch", "first token"};
  if (cached) head.push_back(fmt::format("{} cached", grouped(*input.prefix_tokens)));
  for (const char* name : {"a token", "tok/s each", "together"}) head.emplace_back(name);
  TextTable table(std::vector<TextTable::Align>(head.size(), kRight));
  table.row(std::move(head));
  for (const TimesRow& row : plan.times) {
    std::vector<std::string> cells = {grouped(row.tokens), grouped(row.batch),
                                      duration(row.first_token_ns)};
    if (cached) cells.push_back(duration(*row.first_token_cached_ns));
    cells.push_back(duration(row.decode_token_ns));
    cells.push_back(tokens_per_s(row.tokens_per_s()));
    cells.push_back(tokens_per_s(row.tokens_per_s_sum()));
    table.row(std::move(cells));
  }
  return out + table.text();
}

/// What the calls of the bill take to compute.
std::string prefill_text(const Plan& plan) {
  if (!plan.prefill_bill) return {};
  const PrefillBill& prefill = *plan.prefill_bill;
  const TimeNs saved = prefill.uncached_ns - prefill.cached_ns;
  std::string out =
      fmt::format("  computing it takes {}; in all calls {} -> {}", duration(prefill.cached_ns),
                  duration(prefill.uncached_ns), duration(prefill.cached_ns));
  out +=
      saved == 0 ? std::string(": no time saved\n") : fmt::format(", {} saved\n", duration(saved));
  if (prefill.even_ns) {
    out += fmt::format("    when entries expire: {} on the beat, {} at random\n",
                       duration(*prefill.even_ns), duration(*prefill.random_ns));
  }
  return out;
}

std::string seconds_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string timed_text(const PlanInput& input, const Plan& plan) {
  if (!plan.bill->timed) return {};
  const TimedBill& timed = *plan.bill->timed;
  std::string out = fmt::format(
      "  a call every {}, entries live {} after their last use\n"
      "    on the beat: {} writes, {} billed tokens\n"
      "    at random, the same on average: {:.1f} % hits, {} billed tokens\n",
      seconds_text(input.timing->gap_s), seconds_text(input.timing->ttl_s),
      grouped(timed.even_writes), grouped(timed.even_billed_tokens), 100 * timed.random_hit_share,
      grouped(timed.random_billed_tokens));
  if (timed.random_gap_max_s) {
    out += fmt::format("    random calls gain while they come every {} or oftener\n",
                       seconds_text(*timed.random_gap_max_s));
  }
  return out;
}

std::string bill_text(const PlanInput& input, const Plan& plan) {
  if (!plan.bill) return {};
  const PrefixBill& bill = *plan.bill;
  std::string out =
      fmt::format("A prefix of {} tokens in {} {}; a write costs {}, a read {} of an input token\n",
                  grouped(*input.prefix_tokens), grouped(*input.calls),
                  *input.calls == 1 ? "call" : "calls", input.prices.write, input.prices.read);
  out += fmt::format("  {} -> {} billed tokens", grouped(bill.uncached_tokens),
                     grouped(bill.billed_tokens));
  if (bill.billed_tokens < bill.uncached_tokens) {
    out += fmt::format(" ({} % less)\n",
                       percent(bill.uncached_tokens - bill.billed_tokens, bill.uncached_tokens));
  } else if (bill.billed_tokens > bill.uncached_tokens) {
    out += fmt::format(" ({} % more): a net loss\n",
                       percent(bill.billed_tokens - bill.uncached_tokens, bill.uncached_tokens));
  } else {
    out += ": no gain\n";
  }
  if (bill.break_even_calls) {
    out += fmt::format("  caching pays from call {} on\n", grouped(*bill.break_even_calls));
  } else {
    out += "  at these prices caching never pays\n";
  }
  out += timed_text(input, plan);
  out += prefill_text(plan);
  if (plan.prefix_bytes) {
    out += fmt::format("  kept, the prefix takes {} of KV\n", format_size(*plan.prefix_bytes));
  }
  return out;
}

std::string fixes_text(const PlanInput& input, const Plan& plan) {
  if (plan.fits.value_or(true)) return {};
  std::string out;
  for (const PlanRow& row : plan.rows) {
    if (row.paged_bytes <= *input.memory) continue;
    out +=
        fmt::format("Does not fit: {} x {} tokens need {}, and {} are there.\n", grouped(row.batch),
                    grouped(row.tokens), format_size(row.paged_bytes), format_size(*input.memory));
  }
  if (plan.mix && plan.mix->paged_bytes > *input.memory) {
    out += fmt::format("Does not fit: the requests need {} in blocks, and {} are there.\n",
                       format_size(plan.mix->paged_bytes), format_size(*input.memory));
  }
  if (plan.lengths && *plan.lengths->sequences_paged == 0) {
    out += fmt::format("Does not fit: not one request of average length, and {} are there.\n",
                       format_size(*input.memory));
  }
  if (plan.reach && plan.reach->sequences < plan.reach->wanted) {
    out += fmt::format("Does not fit: {} at once are wanted, and {} fit.\n",
                       grouped(plan.reach->wanted), grouped(plan.reach->sequences));
  }
  if (plan.fixes.empty()) return out;
  TextTable table({kLeft, kLeft, kLeft});
  table.row({"fix", "effect", "cost"});
  for (const Fix& fix : plan.fixes) {
    const std::vector<std::string> lines = wrapped(fix.effect);
    table.row({fix.fix, lines.front(), fix.cost});
    for (std::size_t i = 1; i < lines.size(); ++i) table.row({"", lines[i], ""});
  }
  return out + "What helps, cheapest first:\n" + table.text();
}

}  // namespace

std::string plan_text(const PlanInput& input, const Plan& plan) {
  std::string out;
  for (const std::string& part :
       {layout_text(input, plan), device_text(input), rows_text(input, plan), mix_text(input, plan),
        times_text(input, plan), lengths_text(input, plan), waste_text(input, plan),
        reach_text(input, plan), bill_text(input, plan), fixes_text(input, plan)}) {
    if (part.empty()) continue;
    if (!out.empty()) out += '\n';
    out += part;
  }
  return out;
}

}  // namespace pagewise::planner
