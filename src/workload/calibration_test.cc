// SPDX-License-Identifier: Apache-2.0
#include "workload/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/prng.h"
#include "workload/calibration_fit.h"

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

TEST(Calibration, ReadingTheWeightsHidesBehindMultiplyingThem) {
  Calibration calibration;
  calibration.weights_ns = 3e6;
  calibration.row_ns = 4e6;
  calibration.prompt_token_ns = 2e6;
  EXPECT_EQ(step_time_ns(calibration, {}), 3'000'000);
  EXPECT_EQ(step_time_ns(calibration, {.rows = 1}), 5'000'000);
  EXPECT_EQ(step_time_ns(calibration, {.prompt_tokens = 2}), 5'000'000);
  // Much more of one hides the other.
  EXPECT_NEAR(static_cast<double>(step_time_ns(calibration, {.rows = 100})), 400e6, 0.02e6);
}

TEST(StepWork, CountsWhatEachTokenSees) {
  Prng prng(20);
  for (int round = 0; round < 500; ++round) {
    const uint64_t tokens = 1 + prng.below(40), position = prng.below(80);
    const auto window = static_cast<uint32_t>(prng.below(50));
    const uint64_t sequences = 1 + prng.below(3);
    StepWork work, expected;
    work.add(tokens, position, window, sequences);
    for (uint64_t at = position; at < position + tokens; ++at) {
      if (tokens == 1) {  // of a decoding row, what is before it
        expected.rows += sequences;
        expected.row_positions += sequences * at;
        if (window > 0) {
          expected.row_window_positions += sequences * std::min<uint64_t>(at, window - 1);
        }
      } else {
        expected.prompt_tokens += sequences;
        expected.prompt_positions += sequences * (at + 1);
        if (window > 0) {
          expected.prompt_window_positions += sequences * std::min<uint64_t>(at + 1, window);
        }
      }
    }
    ASSERT_EQ(work, expected) << tokens << " behind " << position << ", window " << window;
  }
}

TEST(Calibration, TheDefaultIsTheMeasuredFile) {
  const Calibration calibration = default_calibration();
  const Calibration file =
      read_calibration(PAGEWISE_SOURCE_DIR "/examples/calibration_smollm2.json").value();
  EXPECT_EQ(calibration.name, file.name);
  EXPECT_EQ(calibration.kv_bytes_per_token, file.kv_bytes_per_token);
  EXPECT_EQ(calibration.window, file.window);
  ASSERT_TRUE(file.measured.has_value());
  ASSERT_GT(file.measured->steps.size(), 20U);
  // Its numbers are what fits its steps, and they are the default's.
  const Calibration fitted = fit_calibration(file.measured->steps, file.window);
  for (const MeasuredStep& step : file.measured->steps) {
    const StepWork work = step.work(0);
    EXPECT_EQ(step_time_exact(file, work), step_time_exact(calibration, work));
    EXPECT_NEAR(step_time_exact(fitted, work) / step_time_exact(file, work), 1, 1e-4);
  }
  EXPECT_NEAR(worst_deviation(file, file.measured->steps), file.measured->deviation, 1e-9);
}

TEST(Calibration, IsReadAsItWasWritten) {
  Calibration calibration = parse_calibration(kGood, "c").value();
  calibration.name = "a \"name\", 2 threads";
  calibration.weights_ns = 1.0 / 3;
  EXPECT_EQ(calibration_text(parse_calibration(calibration_text(calibration), "c").value()),
            calibration_text(calibration));
  calibration.window = 512;
  calibration.prompt_window_position_ns = 0.1;
  calibration.row_window_position_ns = 1e5 + 0.7;
  CalibrationRecord record{.model = "m.gguf",
                           .sha256 = "00ff",
                           .cpu = "c",
                           .isa = "AVX2",
                           .threads = 2,
                           .kv_type = "K q8_0, V f16",
                           .block_tokens = 16,
                           .time = "2026-12-01 04:00",
                           .spread = 0.0123,
                           .deviation = 1.0 / 7};
  for (uint32_t i = 0; i < 3; ++i) {
    MeasuredStep step{{i, 2 * i, 3 * i, 4 * i}};
    step.samples = 5;
    step.median_ns = 1'000'000'007 + i;
    step.low_ns = 999;
    step.high_ns = 2'000'000'000'000;
    record.steps.push_back(step);
  }
  calibration.measured = record;
  const Calibration read = parse_calibration(calibration_text(calibration), "c").value();
  EXPECT_EQ(read.name, calibration.name);
  EXPECT_EQ(read.weights_ns, calibration.weights_ns);
  EXPECT_EQ(read.window, 512U);
  EXPECT_EQ(read.prompt_window_position_ns, 0.1);
  EXPECT_EQ(read.row_window_position_ns, calibration.row_window_position_ns);
  ASSERT_TRUE(read.measured.has_value());
  EXPECT_EQ(*read.measured, record);
}

TEST(Calibration, TheSecondVersionIsAsStrict) {
  Calibration calibration = parse_calibration(kGood, "c").value();
  calibration.window = 8;
  calibration.measured = CalibrationRecord{.threads = 1, .block_tokens = 32};
  calibration.measured->steps.resize(1);
  calibration.measured->steps[0].median_ns = calibration.measured->steps[0].low_ns =
      calibration.measured->steps[0].high_ns = 1;
  const std::string good = calibration_text(calibration);
  ASSERT_TRUE(parse_calibration(good, "c").has_value());
  const auto message = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const Result<Calibration> parsed = parse_calibration(text, "c");
    return parsed.has_value() ? std::string("read") : parsed.error().message;
  };
  EXPECT_EQ(message("\"version\": 2", "\"version\": 3"),
            "c: version: a whole number from 1 to 2 is needed");
  EXPECT_EQ(message("\"version\": 2", "\"version\": 1"),
            "c: weights_ns: no field of a calibration");
  EXPECT_EQ(message("  \"weights_ns\": 0,\n", ""),
            "c: weights_ns: a number from 0 to 1000000000000 is needed");
  EXPECT_EQ(message("  \"window\": 8,\n", ""),
            "c: prompt_window_position_ns: no field of a calibration");
  EXPECT_EQ(message("\"window\": 8", "\"window\": 0"),
            "c: window: a whole number from 1 to 1073741824 is needed");
  EXPECT_EQ(message("\"threads\": 1", "\"threads\": \"1\""),
            "c: measured.threads: a whole number from 1 to 1073741824 is needed");
  EXPECT_EQ(message("\"isa\": \"\"", "\"isa\": 5"), "c: measured.isa: a text is needed");
  EXPECT_EQ(message("\"median_ns\": 1", "\"median_ns\": 0"),
            "c: measured.steps[0].median_ns: a whole number from 1 to 1000000000000000 is needed");
  EXPECT_EQ(message("\"samples\"", "\"sample\""),
            "c: measured.steps[0].sample: no field of a calibration");
  EXPECT_EQ(message("      {\"rows\"", "      7, {\"rows\""),
            "c: measured.steps[0]: a step is a JSON object");
  EXPECT_EQ(message("\"threads\": 1,", "\"threads\": 1, \"threads\": 2,"),
            "c: threads: stands twice in it");
  EXPECT_EQ(message("\"measured\": {", "\"measured\": 5, \"more\": {"),
            "c: more: no field of a calibration");
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
  EXPECT_EQ(message("\"row_ns\": 300,", "\"row_ns\": 300, \"row_ns\": 400,"),
            "c: row_ns: stands twice in it");
  // Whatever it says, no step lasts longer than three hours.
  Calibration slow = parse_calibration(kGood, "c").value();
  slow.prompt_position_ns = 1e6;
  EXPECT_EQ(step_time_ns(slow, {1 << 16, uint64_t{1} << 40, 0, 0}), 10'000'000'000'000);
}

}  // namespace
}  // namespace pagewise::workload
