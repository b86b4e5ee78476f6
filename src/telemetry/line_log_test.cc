// SPDX-License-Identifier: Apache-2.0
// A log over a real pipe: read, not read, closed.
#include "telemetry/line_log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace pagewise::telemetry {
namespace {

class LineLogTest : public testing::Test {
 protected:
  LineLogTest() {
    std::signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(pipe(pipe_), 0);
  }
  ~LineLogTest() override {
    close_end(0);
    close_end(1);
  }
  void close_end(int end) {
    if (pipe_[end] >= 0) ::close(pipe_[end]);
    pipe_[end] = -1;
  }
  /// Reads until `text` has been seen, or the end.
  std::string read_until(const std::string& text) {
    std::string out;
    char piece[4096];
    while (out.find(text) == std::string::npos) {
      const ssize_t got = ::read(pipe_[0], piece, sizeof piece);
      if (got <= 0) break;
      out.append(piece, static_cast<std::size_t>(got));
    }
    return out;
  }

  int pipe_[2] = {-1, -1};
};

TEST_F(LineLogTest, WritesLinesInOrderAndAllOfThemBeforeItEnds) {
  {
    LineLog log(pipe_[1]);
    for (int i = 0; i < 100; ++i) log.write(fmt::format("line {}", i));
  }
  close_end(1);
  std::string expected;
  for (int i = 0; i < 100; ++i) expected += fmt::format("line {}\n", i);
  EXPECT_EQ(read_until("never"), expected);
}

TEST_F(LineLogTest, DropsLinesThatNobodyReadsAndSaysLaterHowMany) {
  LineLog log(pipe_[1], 10'000);
  const std::string line(99, 'x');
  constexpr int kLines = 5000;  // 500 kB: far beyond what pipe, queue and writer hold
  for (int i = 0; i < kLines; ++i) log.write(line);  // returns although nobody reads
  const std::string text = read_until(" lines were dropped here");
  const std::size_t at = text.find("log: ");
  ASSERT_NE(at, std::string::npos);
  int whole = 0;
  for (std::size_t i = 0; i + 100 <= at; i += 100) whole += text.substr(i, 100) == line + "\n";
  const int dropped = std::stoi(text.substr(at + 5));
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(whole * 100, static_cast<int>(at));
  EXPECT_LE(whole + dropped, kLines);
}

TEST_F(LineLogTest, EndsThoughItsReaderIsStuck) {
  {
    LineLog log(pipe_[1]);
    for (int i = 0; i < 5000; ++i) log.write(std::string(99, 'x'));
  }               // the test hangs here if the log waits for its reader
  close_end(0);   // the write that was left behind returns
  pipe_[1] = -1;  // its thread, which nobody can wait for, may still hold this end
}

TEST_F(LineLogTest, ForgetsLinesOnceItsReaderIsGone) {
  close_end(0);
  LineLog log(pipe_[1], 1000);
  for (int i = 0; i < 1000; ++i) log.write(std::string(99, 'x'));
  SUCCEED();  // neither a signal nor a wait ended the test
}

}  // namespace
}  // namespace pagewise::telemetry
