// SPDX-License-Identifier: Apache-2.0
#include "planner/plan_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/json.h"
#include "planner/numbers.h"

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

// Cells in columns: numbers to the right, words to the left.
class Table {
 public:
  enum class Align { kLeft, kRight };
  explicit Table(std::vector<Align> columns) : columns_(std::move(columns)) {}

  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  std::string text() const {
    std::vector<std::size_t> widths(columns_.size(), 0);
    for (const auto& cells : rows_) {
      for (std::size_t c = 0; c < cells.size(); ++c)
        widths[c] = std::max(widths[c], cells[c].size());
    }
    std::string out;
    for (const auto& cells : rows_) {
      std::string line;
      for (std::size_t c = 0; c < cells.size(); ++c) {
        line += "  ";
        line += columns_[c] == Align::kRight ? fmt::format("{:>{}}", cells[c], widths[c])
                                             : fmt::format("{:<{}}", cells[c], widths[c]);
        if (c + 1 < cells.size()) line += ' ';
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + '\n';
    }
    return out;
  }

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};
constexpr auto kLeft = Table::Align::kLeft;
constexpr auto kRight = Table::Align::kRight;

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
    dims += " (K, of which V is a part)";
  } else if (group.value_dim != group.key_dim) {
    dims = fmt::format("{} (K) and {} (V)", group.key_dim, group.value_dim);
  }
  return fmt::format(
      "{} {} x {} KV {} x {}{}", group.layers, group.layers == 1 ? "layer" : "layers",
      group.kv_heads, group.kv_heads == 1 ? "head" : "heads", dims,
      group.window == 0 ? std::string()
                        : fmt::format(", the last {} positions", grouped(group.window)));
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
    for (const LayoutGroup& group : groups) out += "  " + group_text(group) + '\n';
    out += fmt::format("  K {}, V {}", input.key_format->name, input.value_format->name);
    for (const KvFormat* format : {input.key_format, input.value_format}) {
      if (format->served) continue;
      out += fmt::format(" ({} can be planned but is not served yet)", format->name);
      break;
    }
    out += '\n';
  }
  const uint64_t token = plan.cost->token_bytes();
  out += fmt::format("  {} bytes of KV a token ({}); blocks of {} tokens, {} each\n",
                     grouped(token), format_size(token), plan.cost->block_tokens(),
                     format_size(plan.cost->block_bytes()));
  if (plan.weight_bytes) {
    out += fmt::format("  weights {}", format_size(*plan.weight_bytes));
    if (plan.crossover_tokens) {
      out += fmt::format("; from {} tokens on KV is larger", grouped(*plan.crossover_tokens));
    }
    out += '\n';
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
  std::vector<Table::Align> columns = {kRight, kRight, kRight};
  std::vector<std::string> head = {"tokens", "batch", "KV"};
  const auto add_column = [&](std::string name) {
    columns.push_back(kRight);
    head.push_back(std::move(name));
  };
  if (show_gib) add_column("");
  if (show_paged) add_column("in whole blocks");
  if (input.memory) {
    add_column(fmt::format("at once in {}", format_size(*input.memory)));
    add_column("batch fits");
  }
  Table table(columns);
  table.row(head);
  for (const PlanRow& row : plan.rows) {
    std::vector<std::string> cells = {grouped(row.tokens), grouped(row.batch), mib(row.kv_bytes)};
    if (show_gib) cells.push_back(gib(row.kv_bytes));
    if (show_paged) cells.push_back(mib(row.paged_bytes));
    if (input.memory) {
      cells.push_back(grouped(*row.sequences_max));
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
  const MixPlan& mix = *plan.mix;
  std::string out = fmt::format("{} requests at the same time\n", grouped(input.requests.size()));
  Table table({kLeft, kRight, kLeft});
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
  if (plan.fixes.empty()) return out;
  Table table({kLeft, kLeft, kLeft});
  table.row({"fix", "effect", "cost"});
  for (const Fix& fix : plan.fixes) {
    const std::vector<std::string> lines = wrapped(fix.effect);
    table.row({fix.fix, lines.front(), fix.cost});
    for (std::size_t i = 1; i < lines.size(); ++i) table.row({"", lines[i], ""});
  }
  return out + "What helps, cheapest first:\n" + table.text();
}

json::object row_json(const PlanRow& row) {
  json::object out;
  out["tokens"] = row.tokens;
  out["batch"] = row.batch;
  out["kv_bytes"] = row.kv_bytes;
  if (row.paged_bytes != row.kv_bytes) out["paged_bytes"] = row.paged_bytes;
  if (row.sequences_max) out["max_sequences"] = *row.sequences_max;
  return out;
}

}  // namespace

std::string plan_text(const PlanInput& input, const Plan& plan) {
  std::string out;
  for (const std::string& part :
       {layout_text(input, plan), rows_text(input, plan), mix_text(input, plan),
        bill_text(input, plan), fixes_text(input, plan)}) {
    if (part.empty()) continue;
    if (!out.empty()) out += '\n';
    out += part;
  }
  return out;
}

std::string plan_json(const Plan& plan) {
  json::object out;
  if (!plan.rows.empty()) {
    json::array rows;
    for (const PlanRow& row : plan.rows) rows.push_back(row_json(row));
    out["rows"] = std::move(rows);
  }
  if (plan.rows.size() == 1) {
    for (const auto& field : row_json(plan.rows.front())) out[field.key()] = field.value();
  }
  if (plan.cost) out["kv_bytes_per_token"] = plan.cost->token_bytes();
  if (plan.mix) {
    out["naive_bytes"] = plan.mix->naive_bytes;
    out["used_bytes"] = plan.mix->used_bytes;
    out["wasted_bytes"] = plan.mix->wasted_bytes;
    out["paged_bytes"] = plan.mix->paged_bytes;
    if (plan.mix->sequences_naive) out["max_requests_naive"] = *plan.mix->sequences_naive;
    if (plan.mix->sequences_paged) out["max_requests_paged"] = *plan.mix->sequences_paged;
  }
  if (plan.bill) {
    out["uncached_tokens"] = plan.bill->uncached_tokens;
    out["billed_tokens"] = plan.bill->billed_tokens;
    if (plan.bill->break_even_calls) out["break_even_calls"] = *plan.bill->break_even_calls;
  }
  if (plan.weight_bytes) out["weight_bytes"] = *plan.weight_bytes;
  if (plan.crossover_tokens) out["crossover_tokens"] = *plan.crossover_tokens;
  if (plan.fits) out["fits"] = *plan.fits;
  if (plan.fits && !*plan.fits) {
    json::array fixes;
    for (const Fix& fix : plan.fixes) {
      fixes.push_back(json::object{{"fix", fix.fix}, {"effect", fix.effect}, {"cost", fix.cost}});
    }
    out["fixes"] = std::move(fixes);
  }
  return json::serialize(out);
}

}  // namespace pagewise::planner
