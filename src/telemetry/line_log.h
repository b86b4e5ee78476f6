// SPDX-License-Identifier: Apache-2.0
// The log's way out of the process. Whoever writes a line never waits for whoever reads it: a
// reader that stopped reading costs lines, one that went away costs the log, neither an answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string_view>
#include <thread>

namespace pagewise::telemetry {

/// A bounded queue of lines and a thread that writes them to a file descriptor.
/// Requires: SIGPIPE is ignored. Thread: write() from any.
class LineLog {
 public:
  static constexpr std::size_t kQueueBytes = 1 << 20;
  static constexpr std::chrono::milliseconds kGrace{500};

  /// `fd` stays the caller's. `queue_bytes`: what may wait; lines beyond it are dropped, counted,
  /// and the number is written as a line of its own as soon as the reader goes on.
  explicit LineLog(int fd, std::size_t queue_bytes = kQueueBytes);
  /// Writes what waits, for at most kGrace. A write that hangs longer is left behind.
  ~LineLog();
  LineLog(const LineLog&) = delete;
  LineLog& operator=(const LineLog&) = delete;

  /// Queues `text` and a line end. Does nothing once the reader has gone away.
  void write(std::string_view text);

 private:
  struct State;
  static void run(State& state);
  static void put(State& state, std::string_view bytes);

  std::shared_ptr<State> state_;  // shared with a thread that may have to be left behind
  std::thread thread_;
};

}  // namespace pagewise::telemetry
