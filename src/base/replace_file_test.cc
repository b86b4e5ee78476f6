// SPDX-License-Identifier: Apache-2.0
#include "base/replace_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "base/file_hash.h"
#include "base/temp_folder_testing.h"
#include "base/text_file.h"

namespace pagewise {
namespace {

std::size_t entries(const std::string& folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(ReplaceFile, WritesANewFileAndReplacesAnOldOne) {
  const testing::TempFolder folder;
  const std::string path = folder.path("file");
  EXPECT_TRUE(check_replaceable(path).has_value());
  EXPECT_EQ(entries(folder.path()), 0U);
  ASSERT_TRUE(replace_file(path, "one").has_value());
  EXPECT_EQ(*read_text_file(path, "it"), "one");
  const std::string link = folder.link("link", path);
  ASSERT_TRUE(replace_file(link, std::string(100'000, 'x')).has_value());
  EXPECT_EQ(read_text_file(path, "it")->size(), 100'000U);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(entries(folder.path()), 2U);
}

TEST(ReplaceFile, IsNotStoppedByWhatAKilledOneLeft) {
  const testing::TempFolder folder;
  const std::string path = folder.path("file");
  ASSERT_TRUE(write_text_file(path + "." + std::to_string(getpid()) + ".new", "half"));
  ASSERT_TRUE(replace_file(path, "whole").has_value());
  EXPECT_EQ(*read_text_file(path, "it"), "whole");
  EXPECT_EQ(entries(folder.path()), 1U);
}

TEST(ReplaceFile, TellsWhatCannotBeWrittenAndLeavesNothingBehind) {
  const testing::TempFolder folder;
  for (const auto& write : {+[](const std::string& path) { return check_replaceable(path); },
                            +[](const std::string& path) { return replace_file(path, "text"); }}) {
    EXPECT_EQ(write(folder.path()).error().message,
              folder.path() + ": a directory; give a file to write");
    EXPECT_EQ(write("/dev/null").error().message, "/dev/null: no file; give a file to write");
    const std::string lost = folder.path("no/file");
    EXPECT_EQ(write(lost).error().message, lost + ": cannot be written: No such file or directory");
    EXPECT_EQ(write(lost).error().code, ErrorCode::kIo);
  }
  const std::string link = folder.link("link", folder.path("gone"));
  EXPECT_EQ(replace_file(link, "text").error().message, link + ": a link that leads nowhere");
  EXPECT_EQ(entries(folder.path()), 1U);
}

TEST(ReplaceFile, WhatDoesNotFitLeavesTheOldFile) {
  const testing::TempFolder folder;
  const std::string path = folder.write("file", "old");
  // A limit on the size of files stands for a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = replace_file(path, std::string(5000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(status.error().message, path + ": cannot be written: File too large");
  EXPECT_EQ(*read_text_file(path, "it"), "old");
  EXPECT_EQ(entries(folder.path()), 1U);
}

TEST(FileHash, IsOfTheBytesOfAllFiles) {
  const testing::TempFolder folder;
  std::string text;
  for (int i = 0; i < 3'000'000; ++i) text += static_cast<char>(i * 7);
  const std::string whole = folder.write("whole", text);
  const std::string first = folder.write("first", text.substr(0, 1'048'576));
  const std::string second = folder.write("second", text.substr(1'048'576));
  const std::string empty = folder.write("empty", "");
  EXPECT_EQ(*sha256_of_files({&whole, 1}), sha256(text));
  EXPECT_EQ(*sha256_of_files(std::vector{first, empty, second}), sha256(text));
  EXPECT_EQ(*sha256_of_files({&empty, 1}), sha256(std::string_view()));
  const std::string gone = folder.path("gone");
  EXPECT_EQ(sha256_of_files({&gone, 1}).error().message, gone + ": No such file or directory");
  EXPECT_FALSE(sha256_of_files({&folder.path(), 1}).has_value());
}

}  // namespace
}  // namespace pagewise
