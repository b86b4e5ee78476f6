// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and its kin as events that a loop can wait for, together with news from other threads.
#pragma once

#include <memory>

#include "base/result.h"

namespace pagewise::cli {

/// Thread: wake from any; the rest from the main thread.
class Interrupts {
 public:
  /// Without `catch_signals` nothing changes for the process; wake() and wait() work all the same.
  /// With it, SIGINT, SIGTERM, SIGHUP, SIGTSTP and SIGWINCH become events until destruction. One at
  /// a time may exist with it. Errors: kIo when the system gives no descriptor.
  static Result<std::unique_ptr<Interrupts>> create(bool catch_signals);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  void wake() const;
  /// Until wake(), a signal or, where `input` is not negative, something to read there.
  void wait(int input = -1) const;

  /// Whether `input` can be read without waiting (its end can).
  static bool readable(int input);

  // What has come since it was last asked for.
  bool take_interrupt();  // Ctrl-C
  bool take_resize();     // the terminal has another size
  bool take_suspend();    // Ctrl-Z: the caller tidies up, then calls suspend()
  /// SIGTERM or SIGHUP: stays true.
  int leaving() const;

  /// Stops the process as Ctrl-Z does; returns when it goes on.
  void suspend();

 private:
  explicit Interrupts(int event) : event_(event) {}
  int event_;
  bool catching_ = false;
};

/// Threads that are started while this lives get none of those signals: they come to the main
/// thread, whose waits they end.
class SignalsForMainThread {
 public:
  SignalsForMainThread();
  ~SignalsForMainThread();
  SignalsForMainThread(const SignalsForMainThread&) = delete;
  SignalsForMainThread& operator=(const SignalsForMainThread&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

}  // namespace pagewise::cli
