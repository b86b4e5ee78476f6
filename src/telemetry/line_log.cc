// SPDX-License-Identifier: Apache-2.0
#include "telemetry/line_log.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/thread_name.h"

namespace pagewise::telemetry {

struct LineLog::State {
  const int fd;
  const std::size_t queue_bytes;
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex:
  std::string queue;
  uint64_t dropped = 0;
  bool stopping = false;
  bool gone = false;  // nobody will ever read
  bool done = false;  // the thread has nothing left to do

  State(int f, std::size_t bytes) : fd(f), queue_bytes(bytes) {}
};

LineLog::LineLog(int fd, std::size_t queue_bytes)
    : state_(std::make_shared<State>(fd, queue_bytes)),
      thread_([state = state_] { run(*state); }) {}

LineLog::~LineLog() {
  bool done = false;
  {
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
    done = state_->changed.wait_for(lock, kGrace, [this] { return state_->done; });
  }
  if (done) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void LineLog::write(std::string_view text) {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->gone) return;
    if (state_->queue.size() + text.size() + 1 > state_->queue_bytes) {
      ++state_->dropped;
      return;
    }
    state_->queue += text;
    state_->queue += '\n';
  }
  state_->changed.notify_all();
}

void LineLog::run(State& state) {
  name_this_thread("log");
  std::string batch;
  std::unique_lock lock(state.mutex);
  while (!state.gone) {
    state.changed.wait(
        lock, [&] { return state.stopping || !state.queue.empty() || state.dropped != 0; });
    if (state.queue.empty() && state.dropped == 0) break;
    batch.clear();
    batch.swap(state.queue);
    // What was dropped came behind what was queued.
    if (state.dropped != 0) {
      batch +=
          fmt::format("log: {} lines were dropped here because nobody read them\n", state.dropped);
      state.dropped = 0;
    }
    lock.unlock();
    put(state, batch);
    lock.lock();
  }
  state.done = true;
  state.changed.notify_all();
}

void LineLog::put(State& state, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(state.fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {  // somebody else made the descriptor non-blocking
      pollfd room{state.fd, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (errno != EINTR) {
      std::lock_guard lock(state.mutex);
      if (errno == EPIPE || errno == EBADF) {
        state.gone = true;
        state.queue.clear();
      } else {  // a full disk may have room again
        state.dropped += static_cast<uint64_t>(std::count(bytes.begin(), bytes.end(), '\n'));
      }
      return;
    }
  }
}

}  // namespace pagewise::telemetry
