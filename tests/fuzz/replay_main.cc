// SPDX-License-Identifier: Apache-2.0
// Feeds files to a fuzz target without libFuzzer, so that every compiler and every `./dev test`
// replays the corpus and all finds. A file that stops the target is named.
//
// usage: fuzz_NAME FILE|FOLDER...
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"

namespace {

std::string current;  // the file that is being replayed

void name_file(int signal) {
  // Only what a signal handler may call.
  const auto say = [](const std::string& text) { (void)!write(2, text.data(), text.size()); };
  static const std::string kIntro = "\nfuzz: stopped by ";
  static const std::string kEnd = "\n";
  say(kIntro);
  say(current);
  say(kEnd);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

std::vector<std::filesystem::path> files_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::signal(signal, name_file);
  std::size_t replayed = 0;
  for (int i = 1; i < argc; ++i) {
    std::error_code missing;
    if (!std::filesystem::exists(argv[i], missing))
      continue;  // a target without finds has no folder
    for (const auto& path : files_of(argv[i])) {
      std::ifstream file(path, std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      if (!file.good() && !file.eof()) {
        std::fprintf(stderr, "fuzz: %s cannot be read\n", path.c_str());
        return 1;
      }
      current = path.string();
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      ++replayed;
    }
  }
  if (replayed == 0) {
    std::fprintf(stderr, "fuzz: nothing to replay: name files or folders of inputs\n");
    return 1;
  }
  std::printf("%zu inputs replayed\n", replayed);
  return 0;
}
