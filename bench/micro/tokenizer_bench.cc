// SPDX-License-Identifier: Apache-2.0
// Tokenizer speed on one thread: MB/s (10^6 bytes of text) on English prose, source code and mixed
// text, and on long words without a space. Each figure is the median of repeated whole passes.
//
//   pagewise_bench_tokenizer [--model FILE.gguf] [--text FILE] [--seconds 2] [--json]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/prng.h"
#include "gguf/gguf.h"
#include "micro/rows.h"
#include "text/tokenizer.h"

namespace pagewise::bench {
namespace {

bool print_json = false;

constexpr std::size_t kTextBytes = std::size_t{4} << 20;

std::string source_path(const std::string& path) {
  return std::string(PAGEWISE_SOURCE_DIR) + "/" + path;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string repeated(const std::string& text) {
  std::string out;
  while (!text.empty() && out.size() < kTextBytes) out += text;
  return out;
}

/// The texts of the tokenizer's golden cases: 20 scripts, emoji, code, punctuation.
std::string mixed_text() {
  std::string text;
  auto golden = parse_json(read_file(source_path("tests/golden/smollm2-135m-q4_1.json")));
  if (!golden) return text;
  for (const json::value& c : golden->at("tokenize").as_array()) {
    text += c.at("text").as_string();
    text += '\n';
  }
  return text;
}

std::string source_code() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("src/text"))) {
    if (entry.path().extension() == ".cc") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const std::string& path : paths) text += read_file(path);
  return text;
}

std::string random_word() {
  Prng prng(1);
  std::string text;
  while (text.size() < kTextBytes / 4) text.push_back(static_cast<char>('a' + prng.below(26)));
  return text;
}

void measure(const text::Tokenizer& tokenizer, const char* name, const std::string& text,
             double seconds) {
  if (text.empty()) {
    std::fprintf(stderr, "%s: no text\n", name);
    return;
  }
  using Clock = std::chrono::steady_clock;
  std::vector<double> rates;
  std::size_t tokens = 0;
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    tokens = tokenizer.encode(text, false).size();
    const std::chrono::duration<double> took = Clock::now() - start;
    rates.push_back(static_cast<double>(text.size()) / took.count() / 1e6);
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds ||
           rates.size() < 3);
  std::sort(rates.begin(), rates.end());
  const double token_bytes = static_cast<double>(text.size()) / static_cast<double>(tokens);
  print_row(
      print_json, "tokenizer",
      {{"text", name},
       {"mb_per_s", rates[rates.size() / 2]},
       {"mb_per_s_min", rates.front()},
       {"mb_per_s_max", rates.back()},
       {"token_bytes", token_bytes}},
      fmt::format("{:<22} {:7.2f} MB/s  ({:.2f} to {:.2f}, {} runs; {:.2f} bytes a token)", name,
                  rates[rates.size() / 2], rates.front(), rates.back(), rates.size(), token_bytes));
}

int run(int argc, char** argv) {
  std::string model = source_path("models/SmolLM2-135M-Instruct.Q4_1.gguf");
  std::string text_path;
  double seconds = 2;
  CLI::App app("Tokenizer speed on one thread");
  app.add_option("--model", model, "a GGUF file with a gpt2 tokenizer");
  app.add_option("--text", text_path, "also measure this file");
  app.add_option("--seconds", seconds, "at least so long for each text");
  app.add_flag("--json", print_json, "one JSON object a measurement");
  CLI11_PARSE(app, argc, argv);
#ifndef NDEBUG
  std::fprintf(stderr, "this is a debug build; its figures would mean nothing\n");
  return 1;
#endif
  const auto file = gguf::File::open(model, {.header_only = true});
  if (!file) {
    std::fprintf(stderr, "%s\n", file.error().message.c_str());
    return 1;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto tokenizer = text::Tokenizer::from_gguf(**file);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  const std::chrono::duration<double, std::milli> load = std::chrono::steady_clock::now() - start;
  print_row(print_json, "tokenizer load",
            {{"tokens", static_cast<double>((*tokenizer)->vocab_size())}, {"ms", load.count()}},
            fmt::format("{}: {} tokens, loaded in {:.0f} ms", model, (*tokenizer)->vocab_size(),
                        load.count()));
  measure(**tokenizer, "English prose",
          repeated(read_file(source_path("examples/policy_manual.txt"))), seconds);
  measure(**tokenizer, "source code", repeated(source_code()), seconds);
  measure(**tokenizer, "mixed scripts", repeated(mixed_text()), seconds);
  measure(**tokenizer, "1 MiB random word", random_word(), seconds);
  measure(**tokenizer, "1 MiB of one letter", std::string(kTextBytes / 4, 'a'), seconds);
  measure(**tokenizer, "1 MiB of spaces", std::string(kTextBytes / 4, ' '), seconds);
  if (!text_path.empty()) {
    measure(**tokenizer, "--text", repeated(read_file(text_path)), seconds);
  }
  return 0;
}

}  // namespace
}  // namespace pagewise::bench

int main(int argc, char** argv) { return pagewise::bench::run(argc, argv); }
