// SPDX-License-Identifier: Apache-2.0
#include "base/text_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace pagewise {
namespace {

TEST(TextFile, IsReadWholeOrUpToTheBound) {
  const std::string path =
      (std::filesystem::temp_directory_path() / "pagewise_text_file_test").string();
  std::string written;
  for (int i = 0; i < 50'000; ++i) written += static_cast<char>(i % 256);
  std::ofstream(path, std::ios::binary) << written;
  EXPECT_EQ(*read_text_file(path, "it"), written);
  EXPECT_EQ(*read_text_file(path, "it", 20'000), written.substr(0, 20'000));
  EXPECT_EQ(*read_text_file(path, "it", 0), "");
  std::filesystem::remove(path);
  const auto gone = read_text_file(path, "it");
  ASSERT_FALSE(gone.has_value());
  EXPECT_EQ(gone.error().code, ErrorCode::kIo);
  EXPECT_EQ(gone.error().message, path + ": No such file or directory");
}

TEST(TextFile, ADirectoryIsToldWhatIsWanted) {
  const std::string path = std::filesystem::temp_directory_path().string();
  const auto read = read_text_file(path, "a file with one key a line");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(read.error().message, path + ": a directory; give a file with one key a line");
}

TEST(TextFile, AnEndlessFileEndsAtTheBound) {
  EXPECT_EQ(read_text_file("/dev/zero", "it", 100'000)->size(), 100'000U);
}

}  // namespace
}  // namespace pagewise
