// SPDX-License-Identifier: Apache-2.0
// Feeds files to a fuzz target without libFuzzer, so that every compiler and every `./dev test`
// replays the corpus and all finds. A file that stops the target is named.
//
// It can also change them at random first. That sees no coverage, but runs at full speed with any
// compiler: a quick look, not a replacement. What stopped the target is then left in a file.
//
// usage: fuzz_NAME [--mutate N [--seed S]] FILE|FOLDER...
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/prng.h"
#include "fuzz/fuzz.h"

extern "C" std::size_t LLVMFuzzerCustomMutator(uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned int seed)
    __attribute__((weak));

namespace {

using pagewise::Prng;

constexpr std::size_t kMutatedBytesMax = 8192;

std::string current;  // where the input that runs comes from
std::string mutated;  // the input itself, when it was changed
std::string left_in;  // the file for it
Prng prng(0);

void name_input(int) {
  // Only what a signal handler may call.
  const auto say = [](int to, const std::string& text) {
    (void)!write(to, text.data(), text.size());
  };
  static const std::string kIntro = "\nfuzz: stopped by ";
  static const std::string kLeft = ", changed; it is now in ";
  static const std::string kEnd = "\n";
  say(2, kIntro);
  say(2, current);
  if (!left_in.empty()) {
    const int file = open(left_in.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    say(file, mutated);
    say(2, kLeft);
    say(2, left_in);
  }
  say(2, kEnd);
  _exit(1);
}

struct Sample {
  std::string path;
  std::string bytes;
};

bool read(const std::filesystem::path& path, std::vector<Sample>& out) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    if (in.bad() || !in.is_open()) {
      std::fprintf(stderr, "fuzz: %s cannot be read\n", file.c_str());
      return false;
    }
    out.push_back({file.string(), std::move(bytes)});
  }
  return true;
}

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

/// Replays `count` changed samples.
void mutate(const std::vector<Sample>& samples, uint64_t count, const std::string& file) {
  left_in = file;
  std::vector<uint8_t> buffer(kMutatedBytesMax);
  for (uint64_t i = 0; i < count; ++i) {
    const Sample& sample = samples[prng.below(samples.size())];
    current = sample.path;
    std::size_t size = std::min(sample.bytes.size(), buffer.size());
    std::memcpy(buffer.data(), sample.bytes.data(), size);
    for (uint64_t changes = 1 + prng.below(4); changes > 0; --changes) {
      if (LLVMFuzzerCustomMutator != nullptr) {
        size = LLVMFuzzerCustomMutator(buffer.data(), size, buffer.size(),
                                       static_cast<unsigned>(prng.next()));
      } else {
        size = LLVMFuzzerMutate(buffer.data(), size, buffer.size());
      }
      // Now and then the end of another sample behind the beginning of this one.
      if (prng.below(8) != 0) continue;
      const std::string& other = samples[prng.below(samples.size())].bytes;
      const std::size_t from = prng.below(other.size() + 1);
      const std::size_t at = prng.below(size + 1);
      const std::size_t length = std::min(other.size() - from, buffer.size() - at);
      std::memcpy(buffer.data() + at, other.data() + from, length);
      size = at + length;
    }
    mutated.assign(reinterpret_cast<const char*>(buffer.data()), size);
    run(mutated);
  }
}

bool parse_number(const char* text, uint64_t& out) {
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), out);
  return error == std::errc() && *end == '\0';
}

}  // namespace

/// One change of bytes, as libFuzzer's function of this name makes them.
extern "C" std::size_t LLVMFuzzerMutate(uint8_t* data, std::size_t size, std::size_t size_max) {
  const std::size_t at = prng.below(size + 1);
  const std::size_t length = std::min<std::size_t>(1 + prng.below(8), size - std::min(at, size));
  switch (prng.below(5)) {
    case 0:
      if (at < size) data[at] ^= static_cast<uint8_t>(1u << prng.below(8));
      return size;
    case 1:
      if (at < size) data[at] = static_cast<uint8_t>(prng.next());
      return size;
    case 2:  // a piece goes
      std::memmove(data + at, data + at + length, size - at - length);
      return size - length;
    case 3: {  // a byte more
      if (size == size_max) return size;
      std::memmove(data + at + 1, data + at, size - at);
      data[at] = static_cast<uint8_t>(prng.next());
      return size + 1;
    }
    default: {  // a piece of the same input at another place
      if (size == 0) return size;
      const std::size_t from = prng.below(size);
      const std::size_t taken = std::min({1 + prng.below(32), size - from, size_max - size});
      const std::vector<uint8_t> piece(data + from, data + from + taken);
      std::memmove(data + at + taken, data + at, size - at);
      std::memcpy(data + at, piece.data(), taken);
      return size + taken;
    }
  }
}

int main(int argc, char** argv) {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::signal(signal, name_input);
  std::vector<Sample> samples;
  uint64_t changed = 0;
  uint64_t seed = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--mutate" || argument == "--seed") {
      if (i + 1 == argc || !parse_number(argv[i + 1], argument == "--seed" ? seed : changed)) {
        std::fprintf(stderr, "fuzz: %s needs a number\n", argument.c_str());
        return 2;
      }
      ++i;
      continue;
    }
    std::error_code missing;
    if (!std::filesystem::exists(argument, missing)) continue;  // no finds, no folder
    if (!read(argument, samples)) return 1;
  }
  if (samples.empty()) {
    std::fprintf(stderr, "fuzz: nothing to replay: name files or folders of inputs\n");
    return 1;
  }
  for (const Sample& sample : samples) {
    current = sample.path;
    run(sample.bytes);
  }
  if (changed > 0) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    prng = Prng(seed);
    mutate(samples, changed, std::filesystem::path(argv[0]).filename().string() + ".find");
  }
  std::printf("%zu inputs replayed, %llu changed ones\n", samples.size(),
              static_cast<unsigned long long>(changed));
  return 0;
}
