// SPDX-License-Identifier: Apache-2.0
// What a simulation found, for people and for programs. One JSON object holds all figures; the page
// is made from that object, so that its numbers are the same.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "simulate/curve.h"
#include "simulate/simulation.h"
#include "workload/trace.h"

namespace pagewise::simulate {

struct Report {
  std::string trace_name;
  const workload::Trace* trace = nullptr;  // never null
  SimulationOptions options;
  std::optional<Outcome> outcome;
  std::optional<Curve> curve;
};

/// Figures have six significant digits; times are milliseconds where the name says so.
json::object report_json(const Report& report);
std::string report_text(const Report& report);
/// One file without references to anything outside: tables, and charts as inline SVG.
std::string report_html(const Report& report);
/// The chart of the curve. Errors: kInvalidArgument when the report has none.
Result<std::string> report_svg(const Report& report);

}  // namespace pagewise::simulate
