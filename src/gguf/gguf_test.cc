// SPDX-License-Identifier: Apache-2.0
#include "gguf/gguf.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>

#include "base/bytes.h"
#include "base/prng.h"
#include "gguf/test_writer.h"

namespace pagewise::gguf {
namespace {

using testing::TempFile;
using testing::Writer;

std::string error_of(const std::string& bytes, OpenOptions options = {}) {
  const TempFile file(bytes);
  const auto opened = File::open(file.path(), options);
  if (opened.has_value()) return "(opened)";
  // The path is random; the rest is what is promised.
  const std::string& message = opened.error().message;
  EXPECT_EQ(message.find(file.path() + ": "), 0u) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message.substr(file.path().size() + 2);
}

ErrorCode code_of(const std::string& bytes) {
  const TempFile file(bytes);
  const auto opened = File::open(file.path());
  return opened.has_value() ? ErrorCode::kOk : opened.error().code;
}

std::unique_ptr<File> open_or_fail(const TempFile& file, OpenOptions options = {}) {
  auto opened = File::open(file.path(), options);
  EXPECT_TRUE(opened.has_value()) << opened.error().message;
  return std::move(opened).value();
}

// A little of everything, with two tensors.
Writer sample() {
  Writer writer;
  writer.string("general.architecture", "llama")
      .u32("llama.block_count", 2)
      .u8("a.u8", 200)
      .i32("a.i32", -7)
      .u64("a.u64", uint64_t{1} << 63)
      .f32("a.f32", 0.5f)
      .boolean("a.bool", true)
      .raw_value("a.i8", Writer::kI8, Writer::raw<int8_t>(-1))
      .raw_value("a.u16", Writer::kU16, Writer::raw<uint16_t>(65535))
      .raw_value("a.i16", Writer::kI16, Writer::raw<int16_t>(-32768))
      .raw_value("a.i64", Writer::kI64, Writer::raw<int64_t>(-5))
      .raw_value("a.f64", Writer::kF64, Writer::raw<double>(1e300))
      .strings("a.strings", {"one", "", "three"})
      .array<int32_t>("a.ints", Writer::kI32, {-1, 2, 3})
      .array<uint16_t>("a.shorts", Writer::kU16, {1, 65535})
      .array<float>("a.floats", Writer::kF32, {0.25f, -1.0f})
      .array<uint8_t>("a.bools", Writer::kBool, {1, 0, 1})
      .array<uint64_t>("a.wide", Writer::kU64, {uint64_t{1} << 63})
      .tensor("norm", {3}, TensorType::kF32,
              Writer::raw(1.0f) + Writer::raw(2.0f) + Writer::raw(3.0f))
      .tensor("weight", {64, 5}, TensorType::kQ8_0);
  return writer;
}

TEST(GgufFile, ReadsEveryValueTypeAndWidensIt) {
  const TempFile file(sample().bytes());
  const auto opened = open_or_fail(file);
  const File& gguf = *opened;
  EXPECT_EQ(gguf.path(), file.path());
  EXPECT_EQ(gguf.file_bytes(), sample().bytes().size());
  EXPECT_EQ(gguf.metadata().size(), 18u);
  EXPECT_EQ(gguf.metadata()[0].first, "general.architecture");
  EXPECT_EQ(*gguf.require_string("general.architecture"), "llama");
  EXPECT_EQ(*gguf.require_uint("llama.block_count"), 2u);
  EXPECT_EQ(*gguf.require_uint("a.u8"), 200u);
  EXPECT_EQ(*gguf.require_uint("a.u16"), 65535u);
  EXPECT_EQ(*gguf.require_uint("a.u64"), uint64_t{1} << 63);
  EXPECT_EQ(std::get<int64_t>(*gguf.find("a.i8")), -1);
  EXPECT_EQ(std::get<int64_t>(*gguf.find("a.i16")), -32768);
  EXPECT_EQ(std::get<int64_t>(*gguf.find("a.i32")), -7);
  EXPECT_EQ(std::get<int64_t>(*gguf.find("a.i64")), -5);
  EXPECT_EQ(**gguf.find_float("a.f32"), 0.5);
  EXPECT_EQ(**gguf.find_float("a.f64"), 1e300);
  EXPECT_EQ(**gguf.find_float("a.u8"), 200.0);
  EXPECT_EQ(**gguf.find_float("a.i64"), -5.0);
  EXPECT_EQ(**gguf.find_bool("a.bool"), true);
  const auto strings = *gguf.string_array("a.strings");
  ASSERT_EQ(strings.size(), 3u);
  EXPECT_EQ(strings[0], "one");
  EXPECT_EQ(strings[1], "");
  EXPECT_EQ(strings[2], "three");
  EXPECT_EQ(*gguf.int_array("a.ints"), (std::vector<int64_t>{-1, 2, 3}));
  EXPECT_EQ(*gguf.int_array("a.shorts"), (std::vector<int64_t>{1, 65535}));
  EXPECT_EQ(*gguf.int_array("a.bools"), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(*gguf.float_array("a.floats"), (std::vector<double>{0.25, -1.0}));
  EXPECT_EQ(*gguf.float_array("a.ints"), (std::vector<double>{-1, 2, 3}));
  EXPECT_EQ(*gguf.float_array("a.shorts"), (std::vector<double>{1, 65535}));
  EXPECT_EQ(std::get<std::shared_ptr<const Array>>(*gguf.find("a.bools"))->size(), 3u);
}

TEST(GgufFile, GivesNothingForAbsentKeysAndAnErrorForRequiredOnes) {
  const TempFile file(sample().bytes());
  const auto gguf = open_or_fail(file);
  EXPECT_EQ(gguf->find("nothing"), nullptr);
  EXPECT_FALSE(gguf->find_uint("nothing")->has_value());
  EXPECT_FALSE(gguf->find_float("nothing")->has_value());
  EXPECT_FALSE(gguf->find_bool("nothing")->has_value());
  EXPECT_FALSE(gguf->find_string("nothing")->has_value());
  EXPECT_TRUE(gguf->string_array("nothing")->empty());
  EXPECT_TRUE(gguf->int_array("nothing")->empty());
  EXPECT_TRUE(gguf->float_array("nothing")->empty());
  EXPECT_EQ(gguf->require_uint("nothing").error().message, file.path() + ": nothing: missing");
  EXPECT_EQ(gguf->require_string("nothing").error().message, file.path() + ": nothing: missing");
}

TEST(GgufFile, NamesKeyOffsetAndBothTypesWhenAValueHasAnotherType) {
  const TempFile file(Writer().string("k", "v").i32("n", -3).strings("s", {"x"}).bytes());
  const auto gguf = open_or_fail(file);
  const std::string prefix = file.path() + ": ";
  // 24 bytes of preamble, 9 of key: the value's type stands at 33.
  EXPECT_EQ(gguf->find_uint("k").error().message,
            prefix + "k at offset 33: expected an integer, found a string");
  EXPECT_EQ(gguf->find_uint("k").error().code, ErrorCode::kMalformed);
  EXPECT_EQ(gguf->find_uint("n").error().message,
            prefix + "n at offset 55: expected a number of at least 0, found -3");
  EXPECT_EQ(gguf->find_bool("k").error().message,
            prefix + "k at offset 33: expected a boolean, found a string");
  EXPECT_EQ(gguf->find_string("n").error().message,
            prefix + "n at offset 55: expected a string, found a signed integer");
  EXPECT_EQ(gguf->find_float("s").error().message,
            prefix + "s at offset 72: expected a number, found an array of strings");
  EXPECT_EQ(gguf->int_array("s").error().message,
            prefix + "s at offset 72: expected an array of integers, found an array of strings");
  EXPECT_EQ(gguf->string_array("k").error().message,
            prefix + "k at offset 33: expected an array of strings, found a string");
  EXPECT_FALSE(gguf->float_array("s").has_value());
  EXPECT_EQ(gguf->bad_value("n", "nonsense").message, prefix + "n at offset 55: nonsense");
}

TEST(GgufFile, RefusesToNarrowAnArrayElementBeyondInt64) {
  const TempFile file(sample().bytes());
  const auto gguf = open_or_fail(file);
  EXPECT_NE(gguf->int_array("a.wide").error().message.find("9223372036854775808 is beyond"),
            std::string::npos);
}

TEST(GgufFile, GivesTensorsWithTheirBytes) {
  const TempFile file(sample().bytes());
  const auto gguf = open_or_fail(file);
  ASSERT_EQ(gguf->tensors().size(), 2u);
  const Tensor* norm = gguf->find_tensor("norm");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->shape, std::vector<uint64_t>{3});
  EXPECT_EQ(norm->columns(), 3u);
  EXPECT_EQ(norm->rows(), 1u);
  EXPECT_EQ(norm->bytes, 12u);
  const auto data = gguf->data(*norm);
  ASSERT_EQ(data.size(), 12u);
  float values[3];
  std::memcpy(values, data.data(), 12);
  EXPECT_EQ(values[2], 3.0f);
  const Tensor* weight = gguf->find_tensor("weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->rows(), 5u);
  EXPECT_EQ(weight->bytes, 64u / 32 * 34 * 5);
  EXPECT_EQ(weight->file_offset % 32, 0u);
  EXPECT_EQ(gguf->find_tensor("nothing"), nullptr);
  EXPECT_NE(gguf->bad_tensor(*weight, "odd").message.find(": tensor 'weight' at offset "),
            std::string::npos);
}

TEST(GgufFile, KeepsTensorBytesReadableAfterDroppingPages) {
  std::string data(256 * kKiB, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 31);
  const TempFile file(
      Writer().string("a", "b").tensor("t", {data.size()}, TensorType::kI8, data).bytes());
  const auto gguf = open_or_fail(file);
  gguf->drop_pages();
  const auto bytes = gguf->data(*gguf->find_tensor("t"));
  EXPECT_EQ(std::memcmp(bytes.data(), data.data(), data.size()), 0);
}

TEST(GgufFile, DropsOneTensorsWholePagesAndLeavesItsNeighboursReadable) {
  // Tensors that begin and end within pages, and one smaller than a page.
  std::vector<std::string> contents;
  Writer writer;
  for (const std::size_t size : {100, 5000, 20000, 40000, 300}) {
    std::string data(size, '\0');
    for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<char>(i * 13 + size);
    writer.tensor(fmt::format("t{}", contents.size()), {size}, TensorType::kI8, data);
    contents.push_back(data);
  }
  const TempFile file(writer.bytes());
  const auto gguf = open_or_fail(file);
  for (const Tensor& dropped : gguf->tensors()) {
    gguf->drop_pages(dropped);
    for (std::size_t t = 0; t < contents.size(); ++t) {
      const auto bytes = gguf->data(*gguf->find_tensor(fmt::format("t{}", t)));
      EXPECT_EQ(std::memcmp(bytes.data(), contents[t].data(), bytes.size()), 0) << t;
    }
  }
}

TEST(GgufFile, ReadsVersion2LikeVersion3) {
  const TempFile file(sample().version(2).bytes());
  EXPECT_EQ(open_or_fail(file)->tensors().size(), 2u);
}

TEST(GgufFile, HonoursTheAlignmentTheFileAsksFor) {
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    const TempFile file(Writer()
                            .alignment(alignment)
                            .tensor("a", {1}, TensorType::kI8, "A")
                            .tensor("b", {1}, TensorType::kI8, "B")
                            .bytes());
    const auto gguf = open_or_fail(file);
    const auto data = gguf->data(*gguf->find_tensor("b"));
    EXPECT_EQ(static_cast<char>(data[0]), 'B') << alignment;
    EXPECT_EQ(gguf->find_tensor("b")->file_offset % alignment, 0u);
  }
}

TEST(GgufFile, OpensAHeaderWhoseDataIsMissingWhenOnlyTheHeaderIsAskedFor) {
  const TempFile file(sample().header());
  EXPECT_EQ(open_or_fail(file, {.header_only = true})->tensors().size(), 2u);
  EXPECT_FALSE(File::open(file.path()).has_value());
}

TEST(GgufFile, OpensAFileWithNeitherKeysNorTensors) {
  const TempFile file(Writer().bytes());
  const auto gguf = open_or_fail(file);
  EXPECT_TRUE(gguf->metadata().empty());
  gguf->drop_pages();
}

TEST(GgufFile, ReportsWhatTheSystemSaysAboutAPathThatCannotBeRead) {
  const auto absent = File::open("/nonexistent/model.gguf");
  EXPECT_EQ(absent.error().code, ErrorCode::kIo);
  EXPECT_EQ(absent.error().message, "/nonexistent/model.gguf: No such file or directory");
  EXPECT_EQ(File::open("/").error().message, "/: not a regular file");

  // A named pipe that nobody writes to must not make us wait.
  const std::string pipe = fmt::format("/tmp/pagewise-test-pipe-{}", getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(File::open(pipe).error().message, pipe + ": not a regular file");
  unlink(pipe.c_str());
}

// --- C17: headers that lie. The letters are the field case's. ---

TEST(GgufFile, C17aRefusesAStringOfLength2To62) {
  const std::string bytes =
      Writer().raw_value("general.name", Writer::kString, Writer::raw(uint64_t{1} << 62)).bytes();
  EXPECT_EQ(
      error_of(bytes),
      "general.name at offset 48: a string of 4611686018427387904 bytes, but only 0 are left in "
      "the file");
}

TEST(GgufFile, C17bRefusesAnArrayOf2To61Elements) {
  for (const uint32_t type : {Writer::kU8, Writer::kString, Writer::kF64, Writer::kBool}) {
    const std::string bytes =
        Writer().raw_array("tokenizer.ggml.tokens", type, uint64_t{1} << 61, "12345678").bytes();
    EXPECT_EQ(
        error_of(bytes),
        "tokenizer.ggml.tokens at offset 61: an array of 2305843009213693952 elements, but only 8 "
        "bytes are left in the file");
  }
}

TEST(GgufFile, C17cRefusesCountsOf2To63) {
  EXPECT_EQ(error_of(Writer().claim_tensors(uint64_t{1} << 63).bytes()),
            "tensor count at offset 8: 9223372036854775808 tensors, but only 0 bytes follow");
  EXPECT_EQ(error_of(Writer().claim_keys(uint64_t{1} << 63).bytes()),
            "key count at offset 16: 9223372036854775808 keys, but only 0 bytes follow");
  EXPECT_EQ(error_of(sample().claim_keys(1000000).bytes()).find("key count at offset 16: "), 0u);
}

TEST(GgufFile, C17dRefusesADimensionOfZero) {
  Writer writer;
  writer.string("general.architecture", "llama").raw_tensor("token_embd.weight", {0}, 0, 0);
  EXPECT_EQ(error_of(writer.bytes()), "tensor 'token_embd.weight' at offset 98: dimension 0 is 0");
  EXPECT_EQ(error_of(Writer().raw_tensor("t", {32, 0, 4}, 0, 0).bytes()),
            "tensor 't' at offset 45: dimension 1 is 0");
}

TEST(GgufFile, C17eAndC17fRefuseAlignmentsThatAreNoSmallPowerOfTwo) {
  for (const uint32_t alignment : {0u, 1u, 3u, 4u, 33u, 1u << 21, 1u << 31, 0xffffffffu}) {
    const std::string expected = fmt::format(
        "general.alignment at offset 49: {} is not a power of two from 8 to 1048576", alignment);
    EXPECT_EQ(error_of(Writer().u32("general.alignment", alignment).bytes()), expected);
    EXPECT_EQ(
        error_of(Writer().u32("general.alignment", alignment).raw_tensor("t", {1}, 0, 0).bytes()),
        expected);
  }
  EXPECT_EQ(error_of(Writer().string("general.alignment", "32").bytes()),
            "general.alignment at offset 49: expected an unsigned integer, found a string");
}

TEST(GgufFile, C17gNamesTheVersionItCannotRead) {
  EXPECT_EQ(error_of(sample().version(1).bytes()),
            "version at offset 4: version 1 is not supported, only 2 and 3 are");
  EXPECT_EQ(error_of(sample().version(4).bytes()),
            "version at offset 4: version 4 is not supported, only 2 and 3 are");
  EXPECT_EQ(error_of(sample().version(0).bytes()),
            "version at offset 4: version 0 is not supported, only 2 and 3 are");
  EXPECT_EQ(error_of(sample().version(0x03000000).bytes()),
            "version at offset 4: the file is byte-swapped (big-endian), which is not supported");
  EXPECT_EQ(code_of(sample().version(4).bytes()), ErrorCode::kUnsupported);
  std::string swapped = sample().bytes();
  swapped.replace(0, 4, "FUGG");
  EXPECT_EQ(error_of(swapped),
            "magic at offset 0: the file is byte-swapped (big-endian), which is not supported");
  EXPECT_EQ(error_of("PK\x03\x04 something else"), "magic at offset 0: this is not a GGUF file");
}

TEST(GgufFile, C17hRefusesAnEmptyKeyAndAKeyThatIsThereTwice) {
  EXPECT_EQ(error_of(Writer().string("a", "b").u32("", 1).bytes()),
            "key 1 at offset 46: the key is empty");
  EXPECT_EQ(error_of(Writer().u32("a", 1).u32("b", 2).u32("a", 1).bytes()),
            "a at offset 58: the key is there twice");
  EXPECT_EQ(error_of(Writer().u32(std::string_view("a\nb", 3), 1).bytes()),
            "key 0 at offset 24: 'a\\x0ab' is not printable ASCII");
}

TEST(GgufFile, C17iRefusesAFileCutAtAnyByte) {
  const std::string whole = sample().bytes();
  const std::size_t header = sample().header().size();
  const TempFile file(whole);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    file.rewrite(whole.substr(0, length));
    const auto opened = File::open(file.path());
    ASSERT_FALSE(opened.has_value()) << length;
    EXPECT_EQ(opened.error().code, ErrorCode::kMalformed) << length;
    EXPECT_NE(opened.error().message.find(" at offset "), std::string::npos) << length;
    const auto planned = File::open(file.path(), {.header_only = true});
    EXPECT_EQ(planned.has_value(), length >= header) << length;
  }
  file.rewrite(whole);
  EXPECT_TRUE(File::open(file.path()).has_value());
}

TEST(GgufFile, ShowsTextFromAFileOnOneLine) {
  EXPECT_EQ(printable("llama.block_count"), "llama.block_count");
  EXPECT_EQ(printable(std::string_view("a\n\0\xff", 4)), "a\\x0a\\x00\\xff");
  EXPECT_EQ(printable(std::string(65, 'x')), std::string(64, 'x') + "...");
}

TEST(GgufFile, RefusesWhatTheFormatDoesNotKnow) {
  EXPECT_EQ(error_of(Writer().raw_value("k", 13, "12345678").bytes()),
            "k at offset 33: 13 is no value type");
  EXPECT_EQ(error_of(Writer().raw_array("k", 99, 1, "12345678").bytes()),
            "k at offset 37: 99 is no element type");
  EXPECT_EQ(error_of(Writer().raw_array("k", Writer::kArray, 1, Writer::raw(Writer::kU8)).bytes()),
            "k at offset 37: an array of arrays is not supported");
  EXPECT_EQ(error_of(Writer().raw_value("k", Writer::kBool, "\x02").bytes()),
            "k at offset 37: a boolean is 0 or 1, not 2");
  EXPECT_EQ(error_of(Writer().raw_array("k", Writer::kBool, 3, std::string("\0\1\7", 3)).bytes()),
            "k at offset 51: a boolean is 0 or 1, not 7");
  EXPECT_EQ(error_of(Writer().raw_tensor("t", {32}, 4, 0).bytes()),
            "tensor 't' at offset 45: tensor type 4 is not known");
  EXPECT_EQ(error_of(Writer().raw_tensor("t", {1, 1, 1, 1, 1}, 0, 0).bytes()),
            "tensor 't' at offset 33: 5 dimensions, 4 are allowed");
  EXPECT_EQ(error_of(Writer().raw_tensor("", {1}, 0, 0).bytes()),
            "tensor 0 at offset 24: the name is empty");
  EXPECT_EQ(error_of(Writer().raw_tensor(std::string(256, 'n'), {1}, 0, 0).bytes()),
            "tensor 0 at offset 24: a name of 256 bytes, 255 are allowed");
  EXPECT_EQ(error_of(Writer().u32(std::string(65536, 'k'), 1).bytes()),
            "key 0 at offset 24: a key of 65536 bytes, 65535 are allowed");
}

TEST(GgufFile, RefusesTensorsWhoseSizeOverflows) {
  const uint64_t big = uint64_t{1} << 32;
  EXPECT_EQ(error_of(Writer().raw_tensor("t", {big, big}, 0, 0).bytes()),
            "tensor 't' at offset 45: dimension 1 of 4294967296 makes more than 2^63 elements");
  EXPECT_EQ(
      error_of(Writer().raw_tensor("t", {UINT64_MAX}, 0, 0).bytes()),
      "tensor 't' at offset 37: dimension 0 of 18446744073709551615 makes more than 2^63 elements");
  // 2^62 doubles are 2^65 bytes; 2^61 floats are 2^63.
  EXPECT_EQ(error_of(Writer().raw_tensor("t", {uint64_t{1} << 62}, 28, 0).bytes()),
            "tensor 't' at offset 45: the size in bytes exceeds 2^64");
  EXPECT_EQ(
      error_of(Writer().raw_tensor("t", {uint64_t{1} << 61}, 0, 0).bytes(), {.header_only = true}),
      "tensor 't' at offset 24: the data would end beyond 2^63 bytes");
  EXPECT_EQ(error_of(Writer().raw_tensor("t", {1}, 0, UINT64_MAX - 31).bytes()),
            "tensor 't' at offset 24: the data would end beyond 2^63 bytes");
}

TEST(GgufFile, RefusesTensorsThatAreNotWhereTheySay) {
  EXPECT_EQ(error_of(Writer().raw_tensor("t", {32}, 0, 0).bytes()),
            "tensor 't' at offset 24: the data ends at 192, but the file has only 57 bytes");
  EXPECT_EQ(error_of(Writer().raw_tensor("t", {32}, 0, 33).bytes()),
            "tensor 't' at offset 49: data offset 33 is not a multiple of the alignment 32");
  EXPECT_EQ(error_of(Writer().raw_tensor("t", {33}, 8, 0).bytes()),
            "tensor 't' at offset 45: rows of 33 values cannot be Q8_0, whose blocks hold 32");
  // No dimensions at all is one value, which has no block type.
  EXPECT_EQ(error_of(Writer().raw_tensor("t", {}, 8, 0).bytes()),
            "tensor 't' at offset 37: rows of 1 values cannot be Q8_0, whose blocks hold 32");
  Writer overlapping;
  overlapping.tensor("first", {16}, TensorType::kF32).raw_tensor("second", {1}, 0, 32);
  EXPECT_EQ(error_of(overlapping.bytes()),
            "tensor 'second' at offset 61: the data overlaps that of tensor 'first'");
  Writer twice;
  twice.tensor("t", {1}, TensorType::kF32).tensor("t", {1}, TensorType::kF32);
  EXPECT_EQ(error_of(twice.bytes()), "tensor 't' at offset 57: the name is there twice");
}

// Opens in a child process, so that its peak memory is its own. Returns the peak in bytes.
uint64_t peak_bytes_of_refusing(const std::string& path) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(File::open(path, {.header_only = true}).has_value() ? 1 : 0);
  }
  int status = 0;
  struct rusage usage;
  EXPECT_EQ(wait4(child, &status, 0, &usage), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

// The file really has the bytes it claims (they are a hole), so only the budget can refuse it.
TEST(GgufFile, C17StaysUnder200MiBWhenTheFileIsAsLargeAsItsHeaderClaims) {
  struct Case {
    std::string name;
    std::string head;
  };
  const uint64_t many = uint64_t{1} << 30;
  const std::vector<Case> cases = {
      {"bytes", Writer().raw_array("k", Writer::kU8, many, "").header()},
      {"empty strings", Writer().raw_array("k", Writer::kString, many / 8, "").header()},
      {"doubles", Writer().raw_array("k", Writer::kF64, many / 8, "").header()},
      {"flags", Writer().raw_array("k", Writer::kBool, many, "").header()},
      {"a string", Writer().raw_value("k", Writer::kString, Writer::raw(many)).header()},
      {"keys", Writer().claim_keys(many / 64).header()},
      {"tensors", Writer().claim_tensors(many / 64).header()},
  };
  for (const Case& c : cases) {
    const TempFile file(c.head);
    ASSERT_EQ(truncate(file.path().c_str(), static_cast<off_t>(c.head.size() + many)), 0);
    const auto opened = File::open(file.path(), {.header_only = true});
    ASSERT_FALSE(opened.has_value()) << c.name;
    EXPECT_NE(opened.error().message.find("more than the 128.0 MiB"), std::string::npos)
        << c.name << ": " << opened.error().message;
    EXPECT_LT(peak_bytes_of_refusing(file.path()), 200 * kMiB) << c.name;
  }
}

// A sanitizer's own allocator ends the process instead of throwing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PAGEWISE_SANITIZER_ALLOCATES
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PAGEWISE_SANITIZER_ALLOCATES
#endif
#endif
#if !defined(PAGEWISE_SANITIZER_ALLOCATES)
TEST(GgufFile, ReportsThatMemoryDoesNotSufficeForAHeader) {
  const std::size_t count = 2 << 20;
  const TempFile file(
      Writer().raw_array("k", Writer::kString, count, std::string(8 * count, '\0')).bytes());
  const pid_t child = fork();
  if (child == 0) {
    // Room for the mapping (16 MiB), not for the 32 MiB of string views.
    uint64_t pages = 0;
    std::FILE* statm = std::fopen("/proc/self/statm", "r");
    if (statm == nullptr || std::fscanf(statm, "%lu", &pages) != 1) _exit(2);
    const rlim_t limit = pages * 4096 + 24 * kMiB;
    const struct rlimit limits = {limit, limit};
    if (setrlimit(RLIMIT_AS, &limits) != 0) _exit(3);
    const auto opened = File::open(file.path());
    const bool told = !opened.has_value() && opened.error().code == ErrorCode::kIo &&
                      opened.error().message == file.path() + ": not enough memory for its header";
    _exit(told ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

TEST(GgufFile, OpensAVocabularyOfAMillionTokens) {
  std::vector<std::string> tokens(1 << 20);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = fmt::format("token{}", i);
  const TempFile file(
      Writer()
          .strings("tokenizer.ggml.tokens", tokens)
          .array("tokenizer.ggml.scores", Writer::kF32, std::vector<float>(1 << 20))
          .array("tokenizer.ggml.token_type", Writer::kI32, std::vector<int32_t>(1 << 20))
          .bytes());
  const auto gguf = open_or_fail(file);
  EXPECT_EQ((*gguf->string_array("tokenizer.ggml.tokens"))[1048575], "token1048575");
}

// What was opened must be safe to use, whatever the bytes were.
void expect_safe(const Result<std::unique_ptr<File>>& opened, bool header_only) {
  if (!opened.has_value()) {
    const std::string& message = opened.error().message;
    EXPECT_NE(message.find(" at offset "), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return;
  }
  const File& gguf = **opened;
  for (const auto& [key, value] : gguf.metadata()) {
    EXPECT_EQ(gguf.find(key), &value);
    (void)gguf.find_uint(key).has_value();
    (void)gguf.find_float(key).has_value();
    (void)gguf.find_bool(key).has_value();
    (void)gguf.find_string(key).has_value();
    (void)gguf.int_array(key).has_value();
    (void)gguf.float_array(key).has_value();
    if (const auto strings = gguf.string_array(key); strings.has_value()) {
      std::size_t bytes = 0;
      for (const std::string_view text : *strings) bytes += std::string(text).size();
      EXPECT_LE(bytes, gguf.file_bytes());
    }
  }
  for (const Tensor& tensor : gguf.tensors()) {
    EXPECT_EQ(gguf.find_tensor(tensor.name), &tensor);
    if (header_only) continue;
    unsigned sum = 0;
    for (const std::byte byte : gguf.data(tensor)) sum += static_cast<unsigned>(byte);
    EXPECT_LE(sum, 255 * tensor.bytes);
  }
}

class RandomDamage : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomDamage, NeverDoesMoreThanAnError) {
  const uint64_t seed = GetParam();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Prng prng(seed);
  const std::string whole = sample().bytes();
  const std::size_t header = sample().header().size();
  const TempFile file(whole);
  for (int round = 0; round < 500; ++round) {
    std::string bytes = whole;
    const uint64_t changes = 1 + prng.below(4);
    for (uint64_t i = 0; i < changes; ++i) {
      const std::size_t at = prng.below(header);
      switch (prng.below(4)) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << prng.below(8)));
          break;
        case 1:
          bytes[at] = static_cast<char>(prng.next());
          break;
        case 2: {  // a number that sizes and offsets dislike
          constexpr uint64_t kNasty[] = {0,          1,          7,
                                         0x7fffffff, 0xffffffff, uint64_t{1} << 61,
                                         UINT64_MAX, INT64_MAX,  uint64_t{1} << 63};
          const std::string raw = Writer::raw(kNasty[prng.below(std::size(kNasty))]);
          const std::size_t room = std::min<std::size_t>(8, bytes.size() - at);
          bytes.replace(at, room, raw.substr(0, room));
          break;
        }
        default:
          bytes.erase(at, 1 + prng.below(8));
          break;
      }
    }
    file.rewrite(bytes);
    const bool header_only = prng.below(2) == 0;
    expect_safe(File::open(file.path(), {.header_only = header_only}), header_only);
    if (HasFailure()) {
      FAIL() << "round " << round << " of seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(GgufFile, RandomDamage, ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8));

TEST(GgufFile, SurvivesAFreshSeedEachRun) {
  const uint64_t seed =
      static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Prng prng(seed);
  const std::string whole = sample().bytes();
  const TempFile file(whole);
  for (int round = 0; round < 1000; ++round) {
    std::string bytes = whole;
    bytes[prng.below(bytes.size())] = static_cast<char>(prng.next());
    file.rewrite(bytes);
    expect_safe(File::open(file.path()), false);
    ASSERT_FALSE(HasFailure()) << "seed " << seed << " round " << round;
  }
}

TEST(GgufFile, OpensTheModelThatThisProjectIsTestedWith) {
  const auto opened = File::open(PAGEWISE_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  const File& gguf = **opened;
  EXPECT_EQ(*gguf.require_string("general.architecture"), "llama");
  EXPECT_EQ(*gguf.require_uint("llama.block_count"), 30u);
  EXPECT_EQ(gguf.string_array("tokenizer.ggml.tokens")->size(), 49152u);
  EXPECT_EQ(gguf.tensors().size(), 272u);
  const Tensor* embedding = gguf.find_tensor("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->type, TensorType::kQ8_0);
  EXPECT_EQ(embedding->shape, (std::vector<uint64_t>{576, 49152}));
  EXPECT_EQ(gguf.data(*embedding).size(), 576u / 32 * 34 * 49152);
}

}  // namespace
}  // namespace pagewise::gguf
