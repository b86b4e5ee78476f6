// SPDX-License-Identifier: Apache-2.0
#include "base/text_file.h"

#include <gtest/gtest.h>

#include <string>

#include "base/temp_folder_testing.h"

namespace pagewise {
namespace {

TEST(TextFile, IsReadWholeOrUpToTheBound) {
  const testing::TempFolder folder;
  std::string written;
  for (int i = 0; i < 50'000; ++i) written += static_cast<char>(i % 256);
  const std::string path = folder.write("file", written);
  EXPECT_EQ(*read_text_file(path, "it"), written);
  EXPECT_EQ(*read_text_file(path, "it", 20'000), written.substr(0, 20'000));
  EXPECT_EQ(*read_text_file(path, "it", 0), "");
  const auto gone = read_text_file(folder.path("gone"), "it");
  ASSERT_FALSE(gone.has_value());
  EXPECT_EQ(gone.error().code, ErrorCode::kIo);
  EXPECT_EQ(gone.error().message, folder.path("gone") + ": No such file or directory");
}

TEST(TextFile, ADirectoryIsToldWhatIsWanted) {
  const testing::TempFolder folder;
  const std::string& path = folder.path();
  const auto read = read_text_file(path, "a file with one key a line");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(read.error().message, path + ": a directory; give a file with one key a line");
}

TEST(TextFile, AFailureIsNotItsEnd) {
  const auto read = read_text_file("/proc/self/mem", "it");  // nothing is mapped at 0
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::kIo);
  EXPECT_EQ(read.error().message, "/proc/self/mem: Input/output error");
}

TEST(TextFile, AnEndlessFileEndsAtTheBound) {
  EXPECT_EQ(read_text_file("/dev/zero", "it", 100'000)->size(), 100'000U);
}

TEST(TextFile, IsWrittenInPlaceOfWhatWasThere) {
  const testing::TempFolder folder;
  const std::string path = folder.write("file", "much longer than what follows");
  ASSERT_TRUE(write_text_file(path, std::string("new\0text", 8)).has_value());
  EXPECT_EQ(*read_text_file(path, "it"), std::string("new\0text", 8));
  const Status refused = write_text_file(folder.path("no/such"), "x");
  EXPECT_EQ(refused.code(), ErrorCode::kIo);
  EXPECT_EQ(refused.error().message, folder.path("no/such") + ": No such file or directory");
  EXPECT_FALSE(write_text_file("/dev/full", std::string(1 << 20, 'x')).has_value());
}

}  // namespace
}  // namespace pagewise
