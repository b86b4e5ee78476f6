// SPDX-License-Identifier: Apache-2.0
// Models in several files: their names, and what is wrong with parts that do not belong together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/temp_folder_testing.h"
#include "gguf/gguf.h"
#include "gguf/split_name.h"
#include "gguf/test_writer.h"

namespace pagewise::gguf {
namespace {

using pagewise::testing::TempFolder;
using testing::Writer;

TEST(SplitName, IsReadFromTheEndOfAPathAndGivesThePathsOfTheOthers) {
  const auto name = parse_split_name("/m/org/big-Q4_K_M-00002-of-00003.gguf");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->stem, "/m/org/big-Q4_K_M");
  EXPECT_EQ(name->number, 2U);
  EXPECT_EQ(name->count, 3U);
  EXPECT_EQ(name->path_of(1), "/m/org/big-Q4_K_M-00001-of-00003.gguf");
  EXPECT_EQ(name->path_of(3), "/m/org/big-Q4_K_M-00003-of-00003.gguf");
}

TEST(SplitName, IsNothingWhereTheNumbersMakeNoSense) {
  for (const char* path :
       {"big.gguf", "big-00000-of-00003.gguf", "big-00004-of-00003.gguf", "big-0001-of-0003.gguf",
        "big-00001-of-00003.bin", "-00001-of-00003.gguf", "big-00001-of-0000x.gguf",
        "big-00001_of-00003.gguf", "big-+0001-of-00003.gguf", ""}) {
    EXPECT_FALSE(parse_split_name(path).has_value()) << path;
  }
}

/// One tensor a part, of as many values as the part's number, each that number.
class Parts {
 public:
  explicit Parts(uint32_t count) : count_(count) {
    for (uint32_t number = 1; number <= count; ++number) write(number, whole(number));
  }

  Writer head(uint16_t number, uint16_t count, int32_t tensors) const {
    Writer writer;
    if (number == 0) writer.string("general.architecture", "llama").u32("llama.block_count", 2);
    writer.raw_value("split.no", Writer::kU16, Writer::raw(number))
        .raw_value("split.count", Writer::kU16, Writer::raw(count))
        .i32("split.tensors.count", tensors);
    return writer;
  }
  static Writer& body(Writer& writer, uint32_t number, const std::string& name) {
    std::string data;
    for (uint32_t i = 0; i < number; ++i) data += Writer::raw(static_cast<float>(number));
    return writer.tensor(name, {number}, TensorType::kF32, data);
  }
  std::string whole(uint32_t number) const {
    Writer writer = head(static_cast<uint16_t>(number - 1), static_cast<uint16_t>(count_),
                         static_cast<int32_t>(count_));
    return body(writer, number, fmt::format("t{}", number)).bytes();
  }
  std::string path(uint32_t number) const {
    return folder_.path(fmt::format("m-{:05}-of-{:05}.gguf", number, count_));
  }
  void write(uint32_t number, const std::string& bytes) const {
    folder_.write(fmt::format("m-{:05}-of-{:05}.gguf", number, count_), bytes);
  }
  const TempFolder& folder() const { return folder_; }

 private:
  TempFolder folder_;
  uint32_t count_;
};

TEST(SplitFile, EveryPartOpensTheWholeModel) {
  const Parts parts(3);
  for (uint32_t number = 1; number <= 3; ++number) {
    const auto file = File::open(parts.path(number));
    ASSERT_TRUE(file.has_value()) << file.error().message;
    EXPECT_EQ((*file)->path(), parts.path(1));
    EXPECT_EQ((*file)->require_uint("llama.block_count").value(), 2U);
    ASSERT_EQ((*file)->tensors().size(), 3U);
    ASSERT_EQ((*file)->parts().size(), 3U);
    uint64_t bytes = 0;
    for (uint32_t i = 1; i <= 3; ++i) {
      const Tensor* tensor = (*file)->find_tensor(fmt::format("t{}", i));
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(tensor->part, i - 1);
      const std::span<const std::byte> data = (*file)->data(*tensor);
      ASSERT_EQ(data.size(), i * sizeof(float));
      float last = 0;
      std::memcpy(&last, data.data() + data.size() - sizeof last, sizeof last);
      EXPECT_EQ(last, static_cast<float>(i));
      (*file)->drop_pages(*tensor);
      std::memcpy(&last, data.data(), sizeof last);  // comes back from the file
      EXPECT_EQ(last, static_cast<float>(i));
      const Part& part = (*file)->parts()[i - 1];
      EXPECT_EQ(part.path, parts.path(i));
      EXPECT_EQ(part.file_bytes, std::filesystem::file_size(part.path));
      EXPECT_EQ(part.bytes_described, part.file_bytes);
      bytes += part.file_bytes;
    }
    (*file)->drop_pages();
    EXPECT_EQ((*file)->file_bytes(), bytes);
  }
}

TEST(SplitFile, PartsMayBeLinksToFilesOfAnyName) {
  const Parts parts(2);
  const TempFolder links;
  for (uint32_t i = 1; i <= 2; ++i) {
    const std::string blob = links.path(fmt::format("blobs/{}", i));
    links.folder("blobs");
    std::filesystem::rename(parts.path(i), blob);
    links.link(fmt::format("snapshot/m-{:05}-of-00002.gguf", i), fmt::format("../blobs/{}", i));
  }
  const auto file = File::open(links.path("snapshot/m-00002-of-00002.gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ((*file)->tensors().size(), 2U);
}

TEST(SplitFile, OnePartCanBeOpenedByItself) {
  const Parts parts(3);
  const auto file = File::open(parts.path(2), {.one_part = true});
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ((*file)->path(), parts.path(2));
  EXPECT_EQ((*file)->tensors().size(), 1U);
  EXPECT_EQ((*file)->find("general.architecture"), nullptr);
}

TEST(SplitFile, AHeaderIsEnoughWhereNoDataIsAskedFor) {
  const Parts parts(3);
  std::filesystem::resize_file(parts.path(3), std::filesystem::file_size(parts.path(3)) - 4);
  const auto header = File::open(parts.path(1), {.header_only = true});
  ASSERT_TRUE(header.has_value()) << header.error().message;
  EXPECT_EQ((*header)->tensors().size(), 3U);
  EXPECT_GT((*header)->parts()[2].bytes_described, (*header)->parts()[2].file_bytes);
  const auto whole = File::open(parts.path(1));
  ASSERT_FALSE(whole.has_value());
  EXPECT_EQ(whole.error().code, ErrorCode::kMalformed);
  EXPECT_NE(whole.error().message.find("m-00003-of-00003.gguf"), std::string::npos)
      << whole.error().message;
}

struct Mistake {
  const char* name;
  std::function<void(const Parts&)> make;
  const char* words;  // of the error
};

TEST(SplitFile, PartsThatDoNotBelongTogetherAreRefusedWithOneLine) {
  const std::vector<Mistake> mistakes = {
      {"a part is missing", [](const Parts& p) { std::filesystem::remove(p.path(2)); },
       "00002-of-00003.gguf: No such file or directory (part 2 of 3)"},
      {"the first part is missing", [](const Parts& p) { std::filesystem::remove(p.path(1)); },
       "00001-of-00003.gguf: No such file or directory (part 1 of 3)"},
      {"a part is a folder",
       [](const Parts& p) {
         std::filesystem::remove(p.path(2));
         std::filesystem::create_directory(p.path(2));
       },
       "not a regular file (part 2 of 3)"},
      {"a part is no GGUF file", [](const Parts& p) { p.write(2, "GGML, or so"); },
       "this is not a GGUF file (part 2 of 3)"},
      {"a part is cut off in its header",
       [](const Parts& p) { p.write(2, p.whole(2).substr(0, 60)); }, "(part 2 of 3)"},
      {"a part stands in another's place", [](const Parts& p) { p.write(2, p.whole(1)); },
       "split.no at offset"},
      {"a part of another model of more parts",
       [](const Parts& p) {
         Writer writer = p.head(1, 7, 3);
         p.write(2, Parts::body(writer, 2, "t2").bytes());
       },
       "7 parts, but the name says 3"},
      {"a part that says nothing of parts",
       [](const Parts& p) {
         Writer writer;
         p.write(2, Parts::body(writer, 2, "t2").bytes());
       },
       "split.no: missing"},
      {"a part with the numbers of a text",
       [](const Parts& p) {
         Writer writer;
         writer.string("split.no", "1").string("split.count", "3");
         p.write(2, writer.bytes());
       },
       "split.no at offset"},
      {"a tensor in two parts",
       [](const Parts& p) {
         Writer writer = p.head(1, 3, 3);
         p.write(2, Parts::body(writer, 2, "t1").bytes());
       },
       "tensor 't1' at offset"},
      {"a tensor too few", [](const Parts& p) { p.write(2, p.head(1, 3, 3).bytes()); },
       "split.tensors.count at offset"},
      {"a count below nothing",
       [](const Parts& p) {
         Writer writer = p.head(0, 3, -1);
         p.write(1, Parts::body(writer, 1, "t1").bytes());
       },
       "-1 tensors, but the 3 parts have 3"},
      {"a count that is a text",
       [](const Parts& p) {
         Writer writer;
         writer.raw_value("split.no", Writer::kU16, Writer::raw<uint16_t>(0))
             .raw_value("split.count", Writer::kU16, Writer::raw<uint16_t>(3))
             .string("split.tensors.count", "3");
         p.write(1, Parts::body(writer, 1, "t1").bytes());
       },
       "expected an integer, found a string"},
  };
  for (const Mistake& mistake : mistakes) {
    const Parts parts(3);
    mistake.make(parts);
    for (const uint32_t number : {1U, 3U}) {
      if (!std::filesystem::exists(parts.path(number))) continue;
      for (const bool header_only : {false, true}) {
        const auto file = File::open(parts.path(number), {.header_only = header_only});
        ASSERT_FALSE(file.has_value()) << mistake.name;
        EXPECT_NE(file.error().message.find(mistake.words), std::string::npos)
            << mistake.name << ": " << file.error().message;
        EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
        EXPECT_EQ(file.error().message.find(parts.folder().path()), 0U) << file.error().message;
      }
    }
  }
}

TEST(SplitFile, APartWhoseNameSaysNothingIsRefused) {
  const Parts parts(2);
  std::filesystem::rename(parts.path(1), parts.folder().path("model.gguf"));
  const auto file = File::open(parts.folder().path("model.gguf"));
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, ErrorCode::kMalformed);
  EXPECT_NE(file.error().message.find("split.count at offset"), std::string::npos)
      << file.error().message;
  EXPECT_TRUE(File::open(parts.folder().path("model.gguf"), {.one_part = true}).has_value());
}

TEST(SplitFile, MorePartsThanAProcessCanMapAreRefusedBeforeTheyAreLookedFor) {
  const TempFolder folder;
  Writer writer;
  writer.raw_value("split.no", Writer::kU16, Writer::raw<uint16_t>(0))
      .raw_value("split.count", Writer::kU16, Writer::raw<uint16_t>(60000));
  const auto file = File::open(folder.write("m-00001-of-60000.gguf", writer.bytes()));
  ASSERT_FALSE(file.has_value());
  EXPECT_NE(file.error().message.find("60000 parts, 4096 are allowed"), std::string::npos)
      << file.error().message;
}

TEST(SplitFile, AllHeadersTogetherShareOneBudget) {
  // Each would do alone; the pages are holes in files and cost nothing until they are read.
  const Parts parts(3);
  for (uint32_t number = 2; number <= 3; ++number) {
    Writer writer = parts.head(static_cast<uint16_t>(number - 1), 3, 3);
    writer.raw_array("a.padding", Writer::kU8, 10 << 20, std::string(10 << 20, '\1'));
    parts.write(number, Parts::body(writer, number, fmt::format("t{}", number)).bytes());
  }
  const auto file = File::open(parts.path(1));
  ASSERT_FALSE(file.has_value());
  EXPECT_NE(file.error().message.find("m-00003-of-00003.gguf: a.padding"), std::string::npos)
      << file.error().message;
  EXPECT_NE(file.error().message.find("the header needs more than"), std::string::npos)
      << file.error().message;
  EXPECT_TRUE(File::open(parts.path(3), {.one_part = true}).has_value());
}

}  // namespace
}  // namespace pagewise::gguf
