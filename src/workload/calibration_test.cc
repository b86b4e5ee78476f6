// SPDX-License-Identifier: Apache-2.0
#include "workload/calibration.h"

#include <gtest/gtest.h>

#include <string>

namespace pagewise::workload {
namespace {

constexpr std::string_view kGood =
    R"({"name": "m", "kv_bytes_per_token": 8, "step_ns": 1, "prompt_token_ns": 20,
        "prompt_position_ns": 0.5, "row_ns": 300, "row_position_ns": 4000})";

TEST(Calibration, AStepTakesTheSumOfItsParts) {
  const Calibration calibration = parse_calibration(kGood, "c").value();
  EXPECT_EQ(calibration.name, "m");
  EXPECT_EQ(calibration.kv_bytes_per_token, 8U);
  EXPECT_EQ(step_time_ns(calibration, {}), 1);
  EXPECT_EQ(step_time_ns(calibration, {2, 10, 3, 4}), 1 + 40 + 5 + 900 + 16000);
}

TEST(Calibration, TheDefaultGivesBackWhatWasMeasured) {
  const Calibration calibration = default_calibration();
  const auto ms = [&](const StepWork& work) {
    return static_cast<double>(step_time_ns(calibration, work)) / 1e6;
  };
  EXPECT_NEAR(ms({0, 0, 1, 100}), 3.71, 0.1);           // 269 tokens a second
  EXPECT_NEAR(ms({0, 0, 1, 4096}), 6.97, 0.1);          // 143.5
  EXPECT_NEAR(ms({0, 0, 32, 32 * 144}), 26.5, 0.5);     // 1,207 with 32 sequences
  EXPECT_NEAR(ms({512, 512 * 513 / 2, 0, 0}), 308, 5);  // 1,663
  double cold = 0;                                      // 4,112 tokens in steps of 512
  for (uint64_t at = 0; at < 4112; at += 512) {
    const uint64_t n = std::min<uint64_t>(512, 4112 - at);
    cold += ms({n, n * at + n * (n + 1) / 2, 0, 0});
  }
  EXPECT_NEAR(cold, 5350, 50);
}

TEST(Calibration, NamesTheFieldThatIsWrong) {
  const auto message = [](std::string_view from, std::string_view to) {
    std::string text(kGood);
    text.replace(text.find(from), from.size(), to);
    const Result<Calibration> parsed = parse_calibration(text, "c");
    return parsed.has_value() ? std::string("read") : parsed.error().message;
  };
  EXPECT_EQ(message("\"m\"", "5"), "c: name: a text is needed");
  EXPECT_EQ(message(": 8", ": 7"),
            "c: kv_bytes_per_token: an even whole number from 2 to 1073741824 is needed");
  EXPECT_EQ(message(": 1,", ": -1,"), "c: step_ns: a number from 0 to 1000000000000 is needed");
  EXPECT_EQ(message("\"row_ns\"", "\"rows_ns\""), "c: rows_ns: no field of a calibration");
  EXPECT_EQ(message("\"row_ns\": 300,", ""), "c: row_ns: a number from 0 to 10000000000 is needed");
  EXPECT_TRUE(message("{", "[").starts_with("c: not valid JSON"));
  EXPECT_EQ(parse_calibration("[]", "c").error().message, "c: not a JSON object");
  // Whatever it says, no step lasts longer than three hours.
  Calibration slow = parse_calibration(kGood, "c").value();
  slow.prompt_position_ns = 1e6;
  EXPECT_EQ(step_time_ns(slow, {1 << 16, uint64_t{1} << 40, 0, 0}), 10'000'000'000'000);
}

}  // namespace
}  // namespace pagewise::workload
