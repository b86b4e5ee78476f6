// SPDX-License-Identifier: Apache-2.0
#include "simulate/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "kv/pool_split.h"
#include "workload/generators.h"

namespace pagewise::simulate {
namespace {

/// Simulated and as a curve, on two replicas.
struct Case {
  workload::Trace trace = workload::generate("chat", {200, 1, 1}).value();
  Report report;

  Case() {
    report.trace_name = "a <trace> & more";
    report.trace = &trace;
    report.options.replica.geometry = plain_geometry(23'040, 32);
    report.options.replica.blocks = {5000};
    report.options.replicas = 2;
    report.outcome = simulate(trace, report.options).value();
    report.curve = hit_rate_curve(trace, {});
  }
};

void expect_numbers(const json::value& value, const std::string& page) {
  if (const json::object* object = value.if_object()) {
    for (const auto& member : *object) expect_numbers(member.value(), page);
  } else if (const json::array* array = value.if_array()) {
    for (const json::value& element : *array) expect_numbers(element, page);
  } else if (value.is_double()) {
    const std::string cell = fmt::format("<td>{}</td>", value.get_double());
    EXPECT_TRUE(page.find(cell) != std::string::npos ||
                page.find(fmt::format(": {}</p>", value.get_double())) != std::string::npos)
        << cell;
  } else if (value.is_number()) {
    const std::string cell = fmt::format("<td>{}</td>", json::serialize(value));
    EXPECT_NE(page.find(cell), std::string::npos) << cell;
  }
}

TEST(Report, ThePageHasEveryFigureOfTheObject) {
  const Case made;
  expect_numbers(report_json(made.report), report_html(made.report));
}

TEST(Report, ThePageNeedsNothingFromOutsideAndIsEscaped) {
  const Case made;
  const std::string page = report_html(made.report);
  for (const std::string_view outside : {"src=", "href=", "url(", "@import", "<script"}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_NE(page.find("a &lt;trace&gt; &amp; more"), std::string::npos);
  EXPECT_NE(page.find("<polyline"), std::string::npos);
  EXPECT_NE(page.find("<rect"), std::string::npos);
}

TEST(Report, TheObjectAddsUp) {
  const Case made;
  const json::object report = report_json(made.report);
  const json::object& result = report.at("result").as_object();
  EXPECT_EQ(result.at("offered").to_number<uint64_t>(), 200U);
  EXPECT_EQ(report.at("trace").at("requests").to_number<uint64_t>(), 200U);
  const double hit_rate = result.at("cached_tokens").to_number<double>() /
                          result.at("prompt_tokens").to_number<double>();
  EXPECT_NEAR(result.at("hit_rate").to_number<double>(), hit_rate, 1e-5);
  EXPECT_EQ(report.at("replicas").as_array().size(), 2U);
  const json::object& point = report.at("curve").at("points").as_array()[0].as_object();
  EXPECT_EQ(point.at("bytes").to_number<uint64_t>(),
            point.at("tokens").to_number<uint64_t>() * 23'040);
}

TEST(Report, ACurveWithWindowsIsOverTheMemoryThatServeWouldDivide) {
  Case made;
  ReplicaOptions& replica = made.report.options.replica;
  const auto group = [](uint32_t layers, uint32_t window) {
    return kv::GroupGeometry{
        .layers = layers, .kv_heads = 1, .key_dim = 256, .value_dim = 256, .window = window};
  };
  replica.geometry = {32, {group(3, 0), group(15, 512)}};
  replica.engine.context_max = 32'768;
  replica.split_sequences = 64;
  made.report.outcome.reset();
  const json::array points = report_json(made.report).at("curve").at("points").as_array();
  ASSERT_GT(points.size(), 3U);
  for (const json::value& point : points) {
    const auto tokens = point.at("tokens").to_number<uint64_t>();
    const auto bytes = point.at("bytes").to_number<uint64_t>();
    const kv::PoolSplit split =
        kv::split_pool(replica.geometry, {bytes, 32'768, replica.engine.step_tokens, 64});
    EXPECT_GE(kv::tokens_held(replica.geometry, split.blocks), tokens);
    EXPECT_LT(bytes, tokens * replica.geometry.token_bytes()) << "windows forget";
  }
  EXPECT_NE(report_text(made.report).find("memory as serve divides it"), std::string::npos);
}

TEST(Report, TheTextTellsTheMainFigures) {
  const Case made;
  const std::string text = report_text(made.report);
  for (const std::string_view part :
       {"200 requests", "hit rate", "first token", "preemptions", "replica 2", "tokens"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

}  // namespace
}  // namespace pagewise::simulate
