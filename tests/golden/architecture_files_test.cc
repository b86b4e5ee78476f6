// SPDX-License-Identifier: Apache-2.0
// The files of tests/golden/architectures with one number or one tensor's name changed: an adaptor
// refuses them in words or reads a model that computes. No number of a file reaches a PW_CHECK.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "gguf/test_writer.h"
#include "golden/real_model.h"
#include "model/batch_driver.h"

namespace pagewise::golden {
namespace {

/// GGUF's numbers for the types of values that are changed.
constexpr uint32_t kTypeU32 = 4;
constexpr uint32_t kTypeF32 = 6;

std::vector<std::filesystem::path> files() {
  std::vector<std::filesystem::path> out;
  for (const auto& entry :
       std::filesystem::directory_iterator(PAGEWISE_SOURCE_DIR "/tests/golden/architectures")) {
    if (entry.path().extension() == ".gguf") out.push_back(entry.path());
  }
  return out;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

bool is_one_line(const std::string& message) {
  return !message.empty() && message.find('\n') == std::string::npos;
}

/// Whether the file is served: then a few tokens were computed with it.
bool computes(const std::string& path) {
  RealModel model;
  auto file = gguf::File::open(path);
  EXPECT_TRUE(file.has_value()) << file.error().message;
  model.file = std::move(*file);
  auto spec = model::spec_from_gguf(*model.file);
  if (!spec) {
    EXPECT_TRUE(is_one_line(spec.error().message)) << spec.error().message;
    EXPECT_TRUE(spec.error().code == ErrorCode::kMalformed ||
                spec.error().code == ErrorCode::kUnsupported)
        << spec.error().message;
    return false;
  }
  model.spec = std::move(*spec);
  model.spec.context = std::min(model.spec.context, 64U);  // a table of 2^30 positions is slow
  const auto executor = make_executor(model, {.block_tokens = 16, .threads = 1, .positions = 64});
  if (!executor) {
    EXPECT_TRUE(is_one_line(executor.error().message)) << executor.error().message;
    return false;
  }
  const uint32_t tokens = std::min(5U, model.spec.context);
  model::testing::BatchDriver driver(**executor, 1);
  uint32_t seen = 0;
  std::vector<TokenId> ids;
  for (uint32_t i = 0; i < tokens; ++i) ids.emplace_back(static_cast<int32_t>(7 * i));
  driver.finish(driver.add(ids), 3, [&](auto, auto, auto) { seen++; });
  EXPECT_EQ(seen, tokens);
  return true;
}

TEST(ArchitectureFiles, WithAnOddNumberAreRefusedInWordsOrComputeC17) {
  const uint32_t odd[] = {0,
                          1,
                          2,
                          3,
                          7,
                          255,
                          65536,
                          0x7fffffff,
                          0x80000000,
                          0xffffffff,
                          std::bit_cast<uint32_t>(0.5F),
                          std::bit_cast<uint32_t>(-1.0F),
                          std::bit_cast<uint32_t>(1e30F)};
  constexpr std::size_t kNumbersPerKey = 3;  // in turn: each number meets every key in some file
  const gguf::testing::TempFile temporary("");
  std::size_t changed = 0, served = 0;
  for (const auto& path : files()) {
    const auto file = gguf::File::open(path);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    const std::string prefix = *(*file)->require_string("general.architecture") + ".";
    const std::string bytes = read(path);
    for (const auto& [key, value] : (*file)->metadata()) {
      if (!key.starts_with(prefix)) continue;
      const std::size_t at = bytes.find(key) + key.size();
      uint32_t type;
      std::memcpy(&type, bytes.data() + at, sizeof type);
      if (type != kTypeU32 && type != kTypeF32) continue;
      for (std::size_t i = 0; i < kNumbersPerKey; ++i) {
        const uint32_t number = odd[changed++ % std::size(odd)];
        SCOPED_TRACE(path.filename().string() + ": " + key + " = " + std::to_string(number));
        std::string with = bytes;
        std::memcpy(with.data() + at + sizeof type, &number, sizeof number);
        temporary.rewrite(with);
        served += computes(temporary.path()) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(changed, 700U);
  EXPECT_GT(served, 30U);
  EXPECT_LT(served, changed / 2);
}

TEST(ArchitectureFiles, WithATensorOfAnotherNameAreRefusedWithItsName) {
  const gguf::testing::TempFile temporary("");
  for (const auto& path : files()) {
    const auto file = gguf::File::open(path, {.header_only = true});
    ASSERT_TRUE(file.has_value()) << file.error().message;
    std::string bytes = read(path);
    for (const gguf::Tensor& tensor : (*file)->tensors()) {
      const std::size_t at = bytes.find(tensor.name);
      bytes[at] = 'x';
      temporary.rewrite(bytes);
      bytes[at] = tensor.name[0];
      const auto other = gguf::File::open(temporary.path(), {.header_only = true});
      ASSERT_TRUE(other.has_value()) << other.error().message;
      const auto spec = model::spec_from_gguf(**other);
      ASSERT_FALSE(spec.has_value()) << path << " without " << tensor.name;
      EXPECT_TRUE(is_one_line(spec.error().message));
      // Without the fused tensor of the first layer the three that it stands for are looked for.
      const std::string tail =
          tensor.name == "blk.0.attn_qkv.weight" ? "lk.0.attn_q.weight" : tensor.name.substr(1);
      EXPECT_NE(spec.error().message.find(tail), std::string::npos) << spec.error().message;
    }
  }
}

}  // namespace
}  // namespace pagewise::golden
