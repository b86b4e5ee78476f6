// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/json.h"

namespace pagewise::text {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

const gguf::File& model_file() {
  static const auto file = [] {
    auto opened = gguf::File::open(
        std::string(PAGEWISE_SOURCE_DIR) + "/models/SmolLM2-135M-Instruct.Q4_1.gguf",
        {.header_only = true});
    if (!opened) ADD_FAILURE() << opened.error().message;
    return std::move(opened).value();
  }();
  return *file;
}

const Tokenizer& smollm2() {
  static const auto tokenizer = [] {
    auto created = Tokenizer::from_gguf(model_file());
    if (!created) ADD_FAILURE() << created.error().message;
    return std::move(created).value();
  }();
  return *tokenizer;
}

std::vector<int64_t> numbers(const json::value& array) {
  std::vector<int64_t> out;
  for (const json::value& id : array.as_array()) out.push_back(id.to_number<int64_t>());
  return out;
}

std::vector<int64_t> numbers(const std::vector<TokenId>& tokens) {
  std::vector<int64_t> out;
  for (const TokenId token : tokens) out.push_back(token.value);
  return out;
}

TEST(Tokenizer, GivesTheReferenceIdsOfEveryGoldenTextAndDecodesThemBack) {
  auto golden = parse_json(
      read_file(std::string(PAGEWISE_SOURCE_DIR) + "/tests/golden/smollm2-135m-q4_1.json"));
  ASSERT_TRUE(golden) << golden.error().message;
  const json::array& cases = golden->at("tokenize").as_array();
  ASSERT_GE(cases.size(), 100u);
  for (const json::value& c : cases) {
    const std::string text(c.at("text").as_string());
    const auto plain = smollm2().encode(text, false);
    EXPECT_EQ(numbers(plain), numbers(c.at("ids_plain"))) << text;
    EXPECT_EQ(smollm2().decode(plain, true), text);
    const auto special = smollm2().encode(text, true);
    EXPECT_EQ(numbers(special), numbers(c.at("ids_special"))) << text;
    EXPECT_EQ(smollm2().decode(special, true), text);
  }
}

}  // namespace
}  // namespace pagewise::text
