// SPDX-License-Identifier: Apache-2.0
// Writes the seeds of fuzz_gguf: small files that are right, for the fuzzer to break.
//
// usage: fuzz_make_seeds FOLDER
#include <fstream>
#include <string>

#include "gguf/test_writer.h"
#include "model/test_gguf.h"
#include "text/test_vocabulary.h"

namespace {

using namespace pagewise;
using gguf::testing::Writer;

void write(const std::string& folder, const std::string& name, const std::string& bytes) {
  std::ofstream(folder + "/" + name, std::ios::binary) << bytes;
}

std::string small_model(bool gemma3) {
  model::testing::LlamaShape shape;
  shape.vocab = 4;
  shape.embedding = 8;
  shape.layers = 1;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = 4;
  shape.rope_dims = 4;
  shape.ffn = 8;
  shape.gemma3 = gemma3;
  shape.sliding_window = gemma3 ? 4 : 0;
  shape.rope_factors = !gemma3;
  shape.bias = !gemma3;
  shape.tied = gemma3;
  return model::testing::llama_model(shape).bytes();
}

std::string every_type() {
  Writer out;
  out.u8("u8", 1).u32("u32", 2).u64("u64", 3).i32("i32", -4).f32("f32", 5).boolean("bool", true);
  out.string("string", "six").strings("strings", {"a", "b"});
  out.array("i8s", Writer::kI8, std::vector<int8_t>{-1, 2});
  out.array("u16s", Writer::kU16, std::vector<uint16_t>{1, 2});
  out.array("f64s", Writer::kF64, std::vector<double>{1, 2});
  out.array("bools", Writer::kBool, std::vector<uint8_t>{0, 1});
  out.alignment(64).tensor("t", {4, 2}, TensorType::kF16).tensor("u", {32}, TensorType::kQ8_0);
  return out.bytes();
}

std::string bpe() {
  Writer out;
  out.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "gpt-2");
  out.strings("tokenizer.ggml.tokens", {"a", "b", "ab", "\xc4\xa0", "<s>", "</s>"});
  out.array("tokenizer.ggml.token_type", Writer::kI32, std::vector<int32_t>{1, 1, 1, 1, 3, 3});
  out.strings("tokenizer.ggml.merges", {"a b"});
  out.u32("tokenizer.ggml.bos_token_id", 4).u32("tokenizer.ggml.eos_token_id", 5);
  out.boolean("tokenizer.ggml.add_bos_token", true);
  out.string("tokenizer.chat_template", "{{ messages[0].content }}");
  return out.bytes();
}

std::string spm() {
  Writer out;
  out.string("tokenizer.ggml.model", "llama");
  out.strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "<0x0A>", "\xe2\x96\x81", "a",
                                        "\xe2\x96\x81"
                                        "a"});
  out.array("tokenizer.ggml.token_type", Writer::kI32, std::vector<int32_t>{2, 3, 6, 1, 1, 1});
  out.array("tokenizer.ggml.scores", Writer::kF32, std::vector<float>{0, 0, 0, -1, -2, -3});
  out.boolean("tokenizer.ggml.add_space_prefix", false);
  return out.bytes();
}

/// Of an architecture that only the planner reads.
std::string planned() {
  Writer out;
  out.string("general.architecture", "qwen2").u32("qwen2.block_count", 2);
  out.u32("qwen2.attention.head_count", 4).u32("qwen2.attention.head_count_kv", 2);
  out.u32("qwen2.embedding_length", 64).u32("qwen2.context_length", 128);
  return out.bytes();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  write(folder, "llama", small_model(false));
  write(folder, "gemma3", small_model(true));
  write(folder, "every_type", every_type());
  write(folder, "bpe", bpe());
  write(folder, "spm", spm());
  write(folder, "planned", planned());
  return 0;
}
