// SPDX-License-Identifier: Apache-2.0
// `./dev sim`: many seeds of the simulation, on all cores, each worker in a process of its own: a
// broken invariant stops only that one. The first seed that fails is named, its crowd is made as
// small as it can be while it still fails, and the command that replays it is printed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "sim/shrink.h"
#include "sim/simulation.h"

namespace pagewise::engine::sim {
namespace {

/// Of computing, however busy the machine is. No seed takes longer than a few seconds, also under
/// sanitizers; one that does is stopped by a signal and counts as failing.
constexpr int kSeedSecondsMax = 120;
constexpr int kShrinkSecondsMax = 20;
constexpr uint32_t kShrinkTries = 200;
/// From so many runs on, each kind of event must have been met.
constexpr uint64_t kRunsForCoverage = 2000;

using Crowd = std::optional<std::vector<uint32_t>>;

/// What a worker tells: which seed it begins, or (at the end) what it met.
struct Report {
  uint64_t seed = 0;
  bool last = false;
  Coverage coverage;  // of the last
};

struct Worker {
  pid_t pid = 0;
  int pipe = -1;
  uint64_t seed = 0;  // that it runs
  bool done = false;
};

std::string numbered(const std::vector<uint32_t>& crowd) {
  std::string text;
  for (const uint32_t i : crowd) text += (text.empty() ? "" : ",") + std::to_string(i);
  return text;
}

void print_failures(uint64_t seed, const std::vector<std::string>& failures) {
  for (std::size_t i = 0; i < failures.size() && i < 5; ++i)
    std::fprintf(stderr, "seed %llu: %s\n", static_cast<unsigned long long>(seed),
                 failures[i].c_str());
  if (failures.size() > 5) std::fprintf(stderr, "... and %zu more\n", failures.size() - 5);
}

void limit_computing(int seconds) {
  itimerval limit{};
  limit.it_value.tv_sec = seconds;
  PW_CHECK(setitimer(ITIMER_PROF, &limit, nullptr) == 0);
}

[[noreturn]] void work(int pipe, uint64_t first, uint64_t end, uint64_t stride) {
  Report report;
  const auto send = [&] { PW_CHECK(write(pipe, &report, sizeof report) == sizeof report); };
  Coverage coverage;
  for (report.seed = first; report.seed < end; report.seed += stride) {
    send();
    limit_computing(kSeedSecondsMax);
    const Outcome outcome = run(report.seed, coverage);
    if (outcome.failures.empty()) continue;
    print_failures(report.seed, outcome.failures);
    std::_Exit(1);
  }
  report.last = true;
  report.coverage = coverage;
  send();
  std::_Exit(0);
}

Worker start_worker(uint64_t first, uint64_t end, uint64_t stride) {
  int ends[2];
  PW_CHECK(pipe(ends) == 0);
  std::fflush(nullptr);
  Worker worker;
  worker.seed = first;
  worker.pid = fork();
  PW_CHECK(worker.pid >= 0);
  if (worker.pid == 0) {
    close(ends[0]);
    work(ends[1], first, end, stride);
  }
  close(ends[1]);
  worker.pipe = ends[0];
  return worker;
}

void stop(Worker& worker) {
  kill(worker.pid, SIGKILL);
  int status = 0;
  waitpid(worker.pid, &status, 0);
  close(worker.pipe);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF) {
    std::fprintf(stderr, "seed %llu did not end within %d s of computing\n",
                 static_cast<unsigned long long>(worker.seed), kSeedSecondsMax);
  }
}

/// Whether this crowd of the seed fails, tried in a process of its own that says nothing.
bool fails(uint64_t seed, const std::vector<uint32_t>& crowd) {
  const pid_t pid = fork();
  PW_CHECK(pid >= 0);
  if (pid == 0) {
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    limit_computing(kShrinkSecondsMax);
    Coverage coverage;
    std::_Exit(run(seed, coverage, crowd).failures.empty() ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

void report_failure(uint64_t seed, bool with_shrinking) {
  if (!with_shrinking) {
    std::fprintf(stderr, "seed %llu fails. Replay with: ./dev sim --seed %llu\n",
                 static_cast<unsigned long long>(seed), static_cast<unsigned long long>(seed));
    return;
  }
  std::vector<uint32_t> crowd(requests_of(seed));
  std::iota(crowd.begin(), crowd.end(), 0U);
  const std::size_t all = crowd.size();
  std::fprintf(stderr, "seed %llu fails; looking for the smallest crowd that does\n",
               static_cast<unsigned long long>(seed));
  crowd = shrink(
      std::move(crowd), [&](const auto& some) { return fails(seed, some); }, kShrinkTries);
  std::fprintf(stderr, "%zu of its %zu requests are enough. Replay with:\n", crowd.size(), all);
  std::fprintf(stderr, "  ./dev sim --seed %llu --requests %s\n  ./dev sim --seed %llu\n",
               static_cast<unsigned long long>(seed), numbered(crowd).c_str(),
               static_cast<unsigned long long>(seed));
}

int replay(uint64_t seed, const Crowd& crowd) {
  std::printf("%s\n", describe(seed, crowd).c_str());
  std::fflush(stdout);
  Coverage coverage;
  const Outcome outcome = run(seed, coverage, crowd);
  coverage.print();
  print_failures(seed, outcome.failures);
  std::printf("seed %llu: %s, trace %016llx\n", static_cast<unsigned long long>(seed),
              outcome.failures.empty() ? "passed" : "failed",
              static_cast<unsigned long long>(outcome.trace));
  return outcome.failures.empty() ? 0 : 1;
}

/// Exit status: 0 passed, 1 a seed failed or something was never met.
int run_all(uint64_t first, uint64_t count, uint64_t jobs, bool with_shrinking) {
  std::vector<Worker> workers;
  jobs = std::min(jobs, count);
  for (uint64_t i = 0; i < jobs; ++i)
    workers.push_back(start_worker(first + i, first + count, jobs));
  Coverage coverage;
  uint64_t begun = 0, shown = 0;
  std::optional<uint64_t> failed;
  const auto running = [](const Worker& worker) { return !worker.done; };
  while (!failed && std::any_of(workers.begin(), workers.end(), running)) {
    std::vector<pollfd> waits;
    for (const Worker& worker : workers)
      waits.push_back({worker.done ? -1 : worker.pipe, POLLIN, 0});
    PW_CHECK(poll(waits.data(), waits.size(), -1) > 0);
    for (std::size_t i = 0; i < workers.size() && !failed; ++i) {
      if (waits[i].revents == 0) continue;
      Worker& worker = workers[i];
      Report report;  // shorter than PIPE_BUF, so it comes in one piece
      if (read(worker.pipe, &report, sizeof report) != sizeof report) {
        failed = worker.seed;
      } else if (report.last) {
        worker.done = true;
        coverage.add(report.coverage);
      } else {
        worker.seed = report.seed;
        ++begun;
      }
    }
    if (begun * 10 / count > shown) {
      shown = begun * 10 / count;
      std::printf("%llu of %llu seeds\n", static_cast<unsigned long long>(begun),
                  static_cast<unsigned long long>(count));
      std::fflush(stdout);
    }
  }
  for (Worker& worker : workers) stop(worker);
  if (failed) {
    report_failure(*failed, with_shrinking);
    return 1;
  }
  coverage.print();
  std::printf("seeds %llu to %llu passed\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(first + count - 1));
  if (count < kRunsForCoverage) return 0;
  const std::vector<std::string> missed = coverage.missed();
  for (const std::string& name : missed) std::fprintf(stderr, "never met: %s\n", name.c_str());
  return missed.empty() ? 0 : 1;
}

int main_of(int argc, char** argv) {
  ::testing::InitGoogleTest();
  CLI::App app(
      "Serves random crowds on a simulated machine; every answer must equal the same "
      "request's alone without a cache.",
      "sim");
  uint64_t first = 1, count = 20'000, jobs = static_cast<uint64_t>(sysconf(_SC_NPROCESSORS_ONLN));
  std::optional<uint64_t> seed;
  std::vector<uint32_t> requests;
  auto* one = app.add_option("--seed", seed, "Replay this seed alone");
  app.add_option("--requests", requests, "Of its crowd, only these (0,2,5)")
      ->delimiter(',')
      ->needs(one);
  app.add_option("--first", first, "First seed")->capture_default_str();
  app.add_option("--count", count, "Number of seeds")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--jobs", jobs, "Processes at once")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  bool plain = false;
  app.add_flag("--no-shrink", plain, "Name the failing seed, and do not look for a smaller crowd");
  CLI11_PARSE(app, argc, argv);
  if (!seed) return run_all(first, count, jobs, !plain);
  std::sort(requests.begin(), requests.end());
  const uint32_t crowd = requests_of(*seed);
  if (!requests.empty() && requests.back() >= crowd) {
    std::fprintf(stderr, "sim: --requests %u: seed %llu has requests 0 to %u\n", requests.back(),
                 static_cast<unsigned long long>(*seed), crowd - 1);
    return 2;
  }
  return replay(*seed, requests.empty() ? Crowd() : Crowd(requests));
}

}  // namespace
}  // namespace pagewise::engine::sim

int main(int argc, char** argv) { return pagewise::engine::sim::main_of(argc, argv); }
