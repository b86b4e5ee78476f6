// SPDX-License-Identifier: Apache-2.0
#include "cli/process.h"

#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "cli/terminal_text.h"

namespace pagewise::cli {

Status flush_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return Status::ok();
  return {ErrorCode::kIo, fmt::format("cannot write to standard output{}{}", errno == 0 ? "" : ": ",
                                      errno == 0 ? "" : std::strerror(errno))};
}

void finish(std::string_view command, const Status& status, int& exit_status) {
  const Status ended = status ? flush_output() : status;
  if (ended) return;
  // A file's or a template's own words may be in it.
  fmt::print(stderr, "pagewise {}: {}\n", command, one_line(ended.error().message, 2000));
  exit_status = 1;
}

std::function<void(double)> progress_line(std::string what) {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [what = std::move(what), shown = -1](double share) mutable {
    const int percent = static_cast<int>(share * 100);
    if (percent == shown) return;
    shown = percent;
    if (percent < 100) {
      fmt::print(stderr, "\r{} {} %", what, percent);
    } else {
      fmt::print(stderr, "\r{:{}}\r", "", what.size() + 6);
    }
    std::fflush(stderr);
  };
}

std::function<void(double)> load_progress() { return progress_line("loading"); }

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // when refused, the old limit stays
}

void return_large_buffers() {
#ifdef __GLIBC__
  constexpr int kLargeBytes = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kLargeBytes);
  mallopt(M_TRIM_THRESHOLD, kLargeBytes);
#endif
}

void guard_standard_streams() {
  std::signal(SIGPIPE, SIG_IGN);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    if (open("/dev/null", O_RDWR) < 0) return;  // takes the lowest free number: this one
  }
}

std::string counted(uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

int64_t unix_time_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

int64_t local_time_s() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm local{};
  localtime_r(&now, &local);
  return static_cast<int64_t>(now) + local.tm_gmtoff;
}

}  // namespace pagewise::cli
