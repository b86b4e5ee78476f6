// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file: the reader, and what server and planner read out of it (model spec,
// layout, tokenizer, chat template).
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <variant>

#include "fuzz/fuzz.h"
#include "gguf/gguf.h"
#include "model/spec.h"
#include "planner/layout.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pagewise::fuzz {
namespace {

/// One file in memory, rewritten for each input.
class MemoryFile {
 public:
  MemoryFile()
      : fd_(memfd_create("fuzz", MFD_CLOEXEC)), path_(fmt::format("/proc/self/fd/{}", fd_)) {
    FUZZ_CHECK(fd_ >= 0, "no memory file");
  }
  void write(std::string_view bytes) const {
    FUZZ_CHECK(ftruncate(fd_, static_cast<off_t>(bytes.size())) == 0 &&
                   pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
               "the memory file cannot be written");
  }
  const std::string& path() const { return path_; }

 private:
  const int fd_;
  const std::string path_;
};

void check_error(const Error& error) {
  FUZZ_CHECK(error.code == ErrorCode::kMalformed || error.code == ErrorCode::kUnsupported, "{}: {}",
             error_code_name(error.code), error.message);
  FUZZ_CHECK(is_one_line(error.message), "{}", error.message);
}

template <typename T>
void check_result(const Result<T>& result) {
  if (!result) check_error(result.error());
}

void check_metadata(const gguf::File& file) {
  for (const auto& [key, value] : file.metadata()) {
    FUZZ_CHECK(file.find(key) == &value, "key {}", key);
    // Every typed look-up of every key: a value or an error in words.
    check_result(file.find_uint(key));
    check_result(file.find_float(key));
    check_result(file.find_bool(key));
    check_result(file.find_string(key));
    check_result(file.require_uint(key));
    check_result(file.string_array(key));
    check_result(file.int_array(key));
    check_result(file.float_array(key));
    const int matches =
        int{file.find_uint(key).has_value()} + int{file.find_bool(key).has_value()} +
        int{file.find_string(key).has_value()} + int{file.string_array(key).has_value()} +
        int{file.float_array(key).has_value()} + int{file.int_array(key).has_value()} +
        int{file.find_float(key).has_value()};
    FUZZ_CHECK(matches >= 1 || std::holds_alternative<int64_t>(value) ||
                   std::holds_alternative<std::shared_ptr<const gguf::Array>>(value),
               "no look-up takes key {}", key);
  }
  FUZZ_CHECK(file.find("no such key") == nullptr, "a key that is not there was found");
  FUZZ_CHECK(!file.require_uint("no such key").has_value(), "the same");
}

/// Returns the end of the last tensor's data, or 0.
uint64_t check_tensors(const gguf::File& file, bool with_data) {
  uint64_t end = 0;
  for (const gguf::Tensor& tensor : file.tensors()) {
    FUZZ_CHECK(file.find_tensor(tensor.name) == &tensor, "tensor {}", tensor.name);
    const TensorTypeInfo* type = tensor_type_info(tensor.type);
    FUZZ_CHECK(type != nullptr, "tensor {}", tensor.name);
    FUZZ_CHECK(tensor.columns() % type->block_elements == 0, "tensor {}", tensor.name);
    const unsigned __int128 bytes = static_cast<unsigned __int128>(tensor.columns()) /
                                    type->block_elements * type->block_bytes * tensor.rows();
    FUZZ_CHECK(bytes == tensor.bytes, "tensor {}: {} bytes", tensor.name, tensor.bytes);
    check_error(file.bad_tensor(tensor, "odd"));
    if (!with_data) continue;
    const std::span<const std::byte> data = file.data(tensor);
    FUZZ_CHECK(data.size() == tensor.bytes, "tensor {}", tensor.name);
    // Touches both ends: outside the mapping this faults.
    [[maybe_unused]] volatile std::byte touched{};
    if (!data.empty()) {
      touched = data.front();
      touched = data.back();
    }
    FUZZ_CHECK(tensor.file_offset + tensor.bytes <= file.file_bytes(), "tensor {}", tensor.name);
    end = std::max(end, tensor.file_offset + tensor.bytes);
  }
  return end;
}

void check_tokenizer(const gguf::File& file) {
  const auto tokenizer = text::Tokenizer::from_gguf(file);
  if (!tokenizer) return check_error(tokenizer.error());
  const text::Tokenizer& t = **tokenizer;
  FUZZ_CHECK(t.vocab_size() > 0, "an empty vocabulary");
  for (const TokenId token : t.eog_tokens()) {
    FUZZ_CHECK(token.value >= 0 && static_cast<uint32_t>(token.value) < t.vocab_size(), "end {}",
               token.value);
  }
  for (const std::string_view text : {std::string_view("Hello  world\n\x01\xff<s></s> 12345"),
                                      std::string_view("\xe2\x96\x81 x"), std::string_view()}) {
    for (const bool special : {false, true}) {
      for (const TokenId token : t.encode(text, special)) {
        FUZZ_CHECK(token.value >= 0 && static_cast<uint32_t>(token.value) < t.vocab_size(),
                   "token {}", token.value);
        FUZZ_CHECK(special || !t.is_control(token), "control token {} from plain text",
                   token.value);
      }
    }
  }
}

void check_spec(const gguf::File& file) {
  const auto layout = planner::layout_from_gguf(file);
  check_result(layout);
  const auto spec = model::spec_from_gguf(file);
  if (!spec) return check_error(spec.error());
  FUZZ_CHECK(!spec->layers.empty() && spec->vocab_size > 0 && spec->embedding > 0, "{}",
             spec->architecture);
  for (const model::LayerSpec& layer : spec->layers) {
    FUZZ_CHECK(layer.kv_heads > 0 && layer.heads % layer.kv_heads == 0, "{} of {} heads",
               layer.kv_heads, layer.heads);
    FUZZ_CHECK(layer.key_dim > 0 && layer.value_dim > 0 && layer.ffn > 0, "a width of 0");
    FUZZ_CHECK((layer.window != 0) == (layer.attention == model::AttentionKind::kSliding),
               "window {}", layer.window);
    FUZZ_CHECK(spec->rope_of(layer).dims % 2 == 0 && spec->rope_of(layer).dims <= layer.key_dim,
               "rope over {} of {}", spec->rope_of(layer).dims, layer.key_dim);
  }
  for (const KvType type : {KvType::kF16, KvType::kF32, KvType::kQ8_0}) {
    const auto geometry = model::make_geometry(*spec, 32, type, type);
    if (!geometry) {
      FUZZ_CHECK(is_one_line(geometry.error().message), "{}", geometry.error().message);
    }
  }
}

}  // namespace
}  // namespace pagewise::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace pagewise;
  using namespace pagewise::fuzz;
  static const MemoryFile memory;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  memory.write(bytes);
  uint64_t data_end = 0;
  {
    const auto header = gguf::File::open(memory.path(), {.header_only = true});
    const auto whole = gguf::File::open(memory.path());
    if (!header) {
      check_error(header.error());
      FUZZ_CHECK(!whole.has_value(), "opens whole, but not its header");
      FUZZ_CHECK(header.error().message.starts_with(memory.path()), "{}", header.error().message);
      return 0;
    }
    check_metadata(**header);
    check_tensors(**header, false);
    check_spec(**header);
    check_tokenizer(**header);
    if (const auto source = (*header)->find_string("tokenizer.chat_template");
        source.has_value() && source->has_value()) {
      check_result(text::ChatTemplate::compile(**source));
    }
    if (!whole) {
      check_error(whole.error());
      return 0;
    }
    data_end = check_tensors(**whole, true);
    FUZZ_CHECK((*whole)->metadata().size() == (*header)->metadata().size(), "keys differ");
  }
  // Cut off inside its last tensor it is no longer whole, and the planner can still read it.
  if (data_end == 0) return 0;
  memory.write(bytes.substr(0, data_end - 1));
  const auto cut = gguf::File::open(memory.path());
  FUZZ_CHECK(!cut.has_value() && cut.error().code == ErrorCode::kMalformed, "a cut file opens");
  return 0;
}
