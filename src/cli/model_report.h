// SPDX-License-Identifier: Apache-2.0
// What a model file is, as far as its header tells: gathered here, printed by
// model_report_output.h. Nothing that the file says can make this fail: what is missing or makes no
// sense is left out, and said where it keeps the file from being served.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "gguf/gguf.h"

namespace pagewise::cli {

struct SpecialToken {
  std::string role;  // "bos", "eos", ...: the middle of tokenizer.ggml.ROLE_token_id
  uint64_t id = 0;
  std::string spelling;  // empty when the vocabulary has no such id
};

struct TokenizerReport {
  std::string model;  // tokenizer.ggml.model; empty: none
  std::string pre;    // tokenizer.ggml.pre
  std::string kind;   // in words
  uint64_t tokens = 0;
  std::vector<SpecialToken> special;
  std::vector<SpecialToken> ends;  // that end an answer; empty when the tokenizer is not supported
  std::optional<bool> adds_bos;    // likewise
  std::string problem;             // why it is not supported; empty: it is
};

struct TemplateReport {
  std::optional<std::string> source;
  std::string family;              // "ChatML", ...; empty: none that is known
  std::vector<std::string> uses;   // of the variables and functions that requests can fill
  std::string problem;             // why it cannot be compiled; empty: it can
  std::string system_problem;      // what it says to a system message; empty: it takes one
  bool renders = false;            // a question and its answer
  std::string render_problem;      // what it says to those
  std::vector<std::string> names;  // of further templates in the file
};

struct TensorTypeReport {
  TensorType type;
  uint64_t tensors = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
  /// Which kernels read it: "integer", "f32", "f32 through ggml"; empty: none.
  std::string kernels;
};

struct KvGroupReport {
  uint32_t layers = 0, kv_heads = 0, key_dim = 0, value_dim = 0;
  uint32_t window = 0;  // 0: full attention
  uint64_t token_bytes = 0;
};

/// KV rows as f16, the server's default.
struct KvReport {
  std::vector<KvGroupReport> groups;
  uint64_t token_bytes = 0;
  std::optional<uint64_t> context_bytes;  // of one sequence as long as the context
  std::string problem;                    // why it is not known; empty: it is
};

struct ModelReport {
  std::string path;
  uint64_t file_bytes = 0;  // of all parts
  uint64_t parts = 1;
  uint32_t version = 0;
  std::string architecture;  // empty: the file does not say
  std::string name;
  uint64_t parameters = 0;  // elements of all tensors
  uint64_t tensors = 0;
  uint64_t tensor_bytes = 0;
  std::optional<uint64_t> layers, context, embedding, ffn, heads, kv_heads, experts;
  std::vector<std::string> layer_kinds;  // of each layer: "full", "sliding 512"; empty: not known
  TokenizerReport tokenizer;
  TemplateReport chat_template;
  std::vector<TensorTypeReport> types;  // by bytes, largest first
  KvReport kv;
  std::vector<std::string> problems;  // why Pagewise cannot serve it; empty: it can

  bool served() const { return problems.empty(); }
};

/// `file` may be opened header_only. Cost: the tokenizer's tables are built, under a second.
ModelReport report_on(const gguf::File& file);

}  // namespace pagewise::cli
