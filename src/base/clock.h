// SPDX-License-Identifier: Apache-2.0
// Time as an argument: kv, engine and sampling never read the real clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace pagewise {

/// Nanoseconds since an arbitrary start; never goes back.
using TimeNs = int64_t;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeNs now() const = 0;
};

class SystemClock final : public Clock {
 public:
  TimeNs now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

/// A clock that only moves when told to. Thread: whoever owns it.
class SimClock final : public Clock {
 public:
  TimeNs now() const override { return now_; }
  void advance(TimeNs by) { now_ += by; }
  void set(TimeNs to) { now_ = to; }

 private:
  TimeNs now_ = 0;
};

}  // namespace pagewise
