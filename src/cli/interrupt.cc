// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"

namespace pagewise::cli {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH};

// What a handler may touch: flags and a descriptor.
volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t resized = 0;
volatile std::sig_atomic_t suspending = 0;
volatile std::sig_atomic_t ending = 0;
volatile std::sig_atomic_t event_of_handler = -1;

void signal_event(int event) {
  const uint64_t one = 1;
  // A full counter already wakes; nothing else can go wrong with our own descriptor.
  (void)!write(event, &one, sizeof one);
}

void on_signal(int signal) {
  const int saved = errno;
  switch (signal) {
    case SIGINT:
      interrupted = 1;
      break;
    case SIGWINCH:
      resized = 1;
      break;
    case SIGTSTP:
      suspending = 1;
      break;
    default:
      ending = signal;
      break;
  }
  signal_event(event_of_handler);
  errno = saved;
}

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // waits end through the event, not through EINTR
  sigaction(signal, &action, nullptr);
}

bool take(volatile std::sig_atomic_t& flag) {
  const bool set = flag != 0;
  flag = 0;
  return set;
}

sigset_t caught_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSignals) sigaddset(&set, signal);
  return set;
}

}  // namespace

Result<std::unique_ptr<Interrupts>> Interrupts::create(bool catch_signals) {
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) {
    return Error{ErrorCode::kIo, std::string("cannot make an event: ") + std::strerror(errno)};
  }
  std::unique_ptr<Interrupts> out(new Interrupts(event));
  if (catch_signals) {
    PW_CHECK(event_of_handler == -1);
    event_of_handler = event;
    out->catching_ = true;
    for (const int signal : kSignals) set_handler(signal, on_signal);
  }
  return out;
}

Interrupts::~Interrupts() {
  if (catching_) {
    for (const int signal : kSignals) set_handler(signal, SIG_DFL);
    event_of_handler = -1;
  }
  close(event_);
}

void Interrupts::wake() const { signal_event(event_); }

void Interrupts::wait(int input) const {
  std::array<pollfd, 2> watched = {pollfd{event_, POLLIN, 0}, pollfd{input, POLLIN, 0}};
  while (poll(watched.data(), input < 0 ? 1 : 2, -1) < 0 && errno == EINTR) {
  }
  uint64_t count = 0;
  (void)!read(event_, &count, sizeof count);  // empty when only `input` was ready
}

bool Interrupts::readable(int input) {
  pollfd watched{input, POLLIN, 0};
  return poll(&watched, 1, 0) > 0;
}

bool Interrupts::take_interrupt() { return take(interrupted); }
bool Interrupts::take_resize() { return take(resized); }
bool Interrupts::take_suspend() { return take(suspending); }
int Interrupts::leaving() const { return ending; }

void Interrupts::suspend() {
  set_handler(SIGTSTP, SIG_DFL);
  raise(SIGTSTP);
  set_handler(SIGTSTP, on_signal);
}

struct SignalsForMainThread::Saved {
  sigset_t mask;
};

SignalsForMainThread::SignalsForMainThread() : saved_(std::make_unique<Saved>()) {
  const sigset_t caught = caught_signals();
  pthread_sigmask(SIG_BLOCK, &caught, &saved_->mask);
}

SignalsForMainThread::~SignalsForMainThread() {
  pthread_sigmask(SIG_SETMASK, &saved_->mask, nullptr);
}

}  // namespace pagewise::cli
