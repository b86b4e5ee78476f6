// SPDX-License-Identifier: Apache-2.0
// `pagewise plan SOURCE --live URL`: the plan of a file beside what a server that runs it says of
// itself, row by row.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/metrics_text.h"
#include "planner/plan.h"
#include "planner/server_memory.h"

namespace pagewise::cli {

/// One figure. Bytes, but for rows of counts.
struct LiveRow {
  std::string name;
  double planned = 0;
  double running = 0;
  double percent_max = 0;  // by how much they may differ, of what runs
  bool bytes = true;

  double percent_apart() const;
  bool holds() const { return percent_apart() <= percent_max; }
};

/// What is compared: blocks, a token's KV, each group's block, what the blocks in use take, the
/// weights and the process. `input` has the layout and the KV types that the server is taken to run
/// with; `planned` is its process without KV. Errors: kInvalidArgument when the numbers are not a
/// Pagewise server's, or of a model with other groups of layers, or of other KV types.
Result<std::vector<LiveRow>> compare_live(const planner::PlanInput& input,
                                          const planner::ServerMemory& planned,
                                          const MetricsText& metrics);

/// Asks the server at `url` for its numbers. Errors: kInvalidArgument for the URL; kIo when nobody
/// answers or the answer is a refusal.
Result<MetricsText> fetch_metrics(const std::string& url, const std::string& key);

std::string live_text(const std::vector<LiveRow>& rows);
/// One object: `live`, a row each, and `holds`.
std::string live_json(const std::vector<LiveRow>& rows);

}  // namespace pagewise::cli
