// SPDX-License-Identifier: Apache-2.0
#include "cli/model_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "cli/process.h"
#include "kernels/linear/linear.h"
#include "kernels/to_float.h"
#include "model/spec.h"
#include "planner/kv_cost.h"
#include "planner/kv_format.h"
#include "planner/layout.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pagewise::cli {
namespace {

constexpr uint32_t kBlockTokens = 32;  // the server's default

/// A value where the file has one of that kind.
std::optional<uint64_t> number_of(const gguf::File& file, std::string_view key) {
  const auto value = file.find_uint(key);
  return value.has_value() ? *value : std::nullopt;
}

std::optional<std::string> text_of(const gguf::File& file, std::string_view key) {
  const auto value = file.find_string(key);
  return value.has_value() ? *value : std::nullopt;
}

/// Errors begin with the path, which the report already says.
std::string without_path(const std::string& message, const gguf::File& file) {
  const std::string prefix = file.path() + ": ";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

std::string tokenizer_kind(std::string_view model) {
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"gpt2", "byte-level BPE"}, {"llama", "SentencePiece BPE with byte fallback"},
      {"bert", "WordPiece"},      {"t5", "SentencePiece unigram"},
      {"rwkv", "RWKV"},           {"none", "none"},
  };
  for (const auto& [name, kind] : kKinds) {
    if (name == model) return std::string(kind);
  }
  return model.empty() ? "none" : "not known";
}

TokenizerReport report_tokenizer(const gguf::File& file) {
  TokenizerReport out;
  out.model = text_of(file, "tokenizer.ggml.model").value_or("");
  out.pre = text_of(file, "tokenizer.ggml.pre").value_or("");
  out.kind = tokenizer_kind(out.model);
  const auto tokens = file.string_array("tokenizer.ggml.tokens");
  const std::span<const std::string_view> vocabulary =
      tokens.has_value() ? *tokens : std::span<const std::string_view>();
  out.tokens = vocabulary.size();
  const auto special = [&](std::string role, uint64_t id) {
    return SpecialToken{std::move(role), id,
                        id < vocabulary.size() ? std::string(vocabulary[id]) : std::string()};
  };
  constexpr std::string_view kPrefix = "tokenizer.ggml.", kSuffix = "_token_id";
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(kPrefix) || !key.ends_with(kSuffix) ||
        key.size() <= kPrefix.size() + kSuffix.size()) {
      continue;
    }
    if (const auto id = number_of(file, key)) {
      out.special.push_back(
          special(key.substr(kPrefix.size(), key.size() - kPrefix.size() - kSuffix.size()), *id));
    }
  }
  const auto tokenizer = text::Tokenizer::from_gguf(file);
  if (!tokenizer.has_value()) {
    out.problem = without_path(tokenizer.error().message, file);
    return out;
  }
  out.adds_bos = (*tokenizer)->add_bos();
  for (const TokenId token : (*tokenizer)->eog_tokens()) {
    out.ends.push_back(special("end", static_cast<uint64_t>(token.value)));
  }
  return out;
}

/// The statements and expressions of a template, without the text around them.
std::string template_code(std::string_view source) {
  std::string out;
  for (std::size_t at = 0; (at = source.find('{', at)) != std::string_view::npos; ++at) {
    if (at + 1 >= source.size() || (source[at + 1] != '{' && source[at + 1] != '%')) continue;
    const std::string_view closing = source[at + 1] == '{' ? "}}" : "%}";
    const std::size_t end = source.find(closing, at);
    if (end == std::string_view::npos) break;
    out.append(source.substr(at + 2, end - at - 2)).push_back(' ');
    at = end;
  }
  return out;
}

bool names(std::string_view code, std::string_view word) {
  const auto part = [&](std::size_t at) {
    return at < code.size() &&
           (std::isalnum(static_cast<unsigned char>(code[at])) != 0 || code[at] == '_');
  };
  for (std::size_t at = 0; (at = code.find(word, at)) != std::string_view::npos; ++at) {
    if ((at == 0 || !part(at - 1)) && !part(at + word.size())) return true;
  }
  return false;
}

/// By the marks that the model was trained on.
std::string template_family(std::string_view source) {
  constexpr std::pair<std::string_view, std::string_view> kMarks[] = {
      {"<|im_start|>", "ChatML"},
      {"<|start_header_id|>", "Llama 3"},
      {"<|header_start|>", "Llama 4"},
      {"<start_of_turn>", "Gemma"},
      {"<|start|>", "Harmony (gpt-oss)"},
      {"<|START_OF_TURN_TOKEN|>", "Command R"},
      {"<\xEF\xBD\x9C"
       "User\xEF\xBD\x9C>",
       "DeepSeek"},
      {"<|start_of_role|>", "Granite"},
      {"[INST]", "Mistral"},
      {"<|assistant|>", "Phi or Zephyr"},
      {"### Instruction", "Alpaca"},
  };
  for (const auto& [mark, family] : kMarks) {
    if (source.find(mark) != std::string_view::npos) return std::string(family);
  }
  return "";
}

text::ChatInput conversation(std::initializer_list<std::pair<const char*, const char*>> turns) {
  text::ChatInput input;
  int32_t origin = 0;
  for (const auto& [role, text] : turns) input.messages.push_back({role, {{text, origin++}}});
  return input;
}

TemplateReport report_template(const gguf::File& file, const TokenizerReport& tokenizer) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  TemplateReport out;
  for (const auto& [key, value] : file.metadata()) {
    if (key.starts_with(std::string(kKey) + ".")) out.names.push_back(key.substr(kKey.size() + 1));
  }
  out.source = text_of(file, kKey);
  if (!out.source) return out;
  out.family = template_family(*out.source);
  const std::string code = template_code(*out.source);
  for (const std::string_view word : {"tools", "tool_calls", "documents", "enable_thinking",
                                      "reasoning_content", "strftime_now", "raise_exception"}) {
    if (names(code, word)) out.uses.emplace_back(word);
  }
  const auto compiled = text::ChatTemplate::compile(*out.source);
  if (!compiled.has_value()) {
    out.problem = compiled.error().message;
    return out;
  }
  const auto render = [&](text::ChatInput input) {
    for (const SpecialToken& token : tokenizer.special) {
      if (token.role == "bos") input.bos_token = token.spelling;
      if (token.role == "eos") input.eos_token = token.spelling;
    }
    if ((*compiled)->needs_time()) input.now = local_time_s();
    return (*compiled)->render(input);
  };
  const auto plain =
      render(conversation({{"user", "Hello"}, {"assistant", "Good day"}, {"user", "Thanks"}}));
  out.renders = plain.has_value();
  if (!plain.has_value()) out.render_problem = plain.error().message;
  const auto system = render(conversation({{"system", "Be brief"}, {"user", "Hello"}}));
  if (!system.has_value()) {
    out.system_problem = system.error().message;
  } else if (system->text.find("Be brief") == std::string::npos) {
    out.system_problem = "it is left out";
  }
  return out;
}

std::string kernels_of(TensorType type) {
  if (kernels::linear_family(type) == kernels::LinearFamily::kInteger) return "integer";
  if (kernels::own_to_float(type) != nullptr) return "f32";
  if (kernels::ggml_to_float(type) != nullptr) return "f32 through ggml";
  return "";
}

std::vector<TensorTypeReport> report_types(const gguf::File& file) {
  std::map<TensorType, TensorTypeReport> by_type;
  for (const gguf::Tensor& tensor : file.tensors()) {
    TensorTypeReport& row = by_type[tensor.type];
    row.type = tensor.type;
    ++row.tensors;
    row.elements += tensor.columns() * tensor.rows();
    row.bytes += tensor.bytes;
  }
  std::vector<TensorTypeReport> out;
  for (auto& [type, row] : by_type) {
    row.kernels = kernels_of(type);
    out.push_back(std::move(row));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return out;
}

KvReport report_kv(const gguf::File& file, std::optional<uint64_t> context) {
  KvReport out;
  const auto layout = planner::layout_from_gguf(file);
  if (!layout.has_value()) {
    out.problem = without_path(layout.error().message, file);
    return out;
  }
  const planner::KvFormat& format = *planner::find_kv_format("f16");
  for (const planner::LayoutGroup& group : layout->groups) {
    planner::Layout alone;
    alone.groups = {group};
    const auto cost = planner::KvCost::of_layout(alone, format, format, kBlockTokens);
    if (!cost.has_value()) {
      out.groups.clear();
      out.problem = cost.error().message;
      return out;
    }
    out.groups.push_back({group.layers, group.kv_heads, group.key_dim, group.value_dim,
                          group.window, cost->token_bytes()});
    out.token_bytes += cost->token_bytes();
  }
  const auto whole = planner::KvCost::of_layout(*layout, format, format, kBlockTokens);
  if (whole.has_value() && context && *context > 0 && *context <= planner::kTokensMax) {
    out.context_bytes = whole->exact(*context);
  }
  return out;
}

/// Everything that would keep `pagewise serve` from starting, whatever the machine.
std::vector<std::string> find_problems(const gguf::File& file, ModelReport& report) {
  std::vector<std::string> out;
  const auto spec = model::spec_from_gguf(file);
  if (!spec.has_value()) {
    std::string problem = without_path(spec.error().message, file);
    const std::vector<std::string_view> known = model::supported_architectures();
    if (std::find(known.begin(), known.end(), report.architecture) == known.end()) {
      problem += fmt::format("; served are {}", fmt::join(known, ", "));
    }
    out.push_back(std::move(problem));
  } else {
    for (const model::LayerSpec& layer : spec->layers) {
      report.layer_kinds.push_back(layer.window == 0 ? "full"
                                                     : fmt::format("sliding {}", layer.window));
    }
    if (report.tokenizer.problem.empty() && spec->vocab_size != report.tokenizer.tokens) {
      out.push_back(fmt::format("the tokenizer has {} tokens and the model {}",
                                report.tokenizer.tokens, spec->vocab_size));
    }
    const auto geometry = model::make_geometry(*spec, kBlockTokens, KvType::kF16, KvType::kF16);
    if (!geometry.has_value()) out.push_back(geometry.error().message);
  }
  if (!report.tokenizer.problem.empty()) out.push_back(report.tokenizer.problem);
  for (const TensorTypeReport& row : report.types) {
    if (!row.kernels.empty()) continue;
    if (const auto decoder = kernels::find_to_float(row.type); !decoder.has_value()) {
      out.push_back(decoder.error().message);
    }
  }
  for (const gguf::Part& part : file.parts()) {
    if (part.bytes_described <= part.file_bytes) continue;
    out.push_back(fmt::format("the file is cut off: {} of {} bytes are there{}", part.file_bytes,
                              part.bytes_described,
                              file.parts().size() > 1 ? " in " + part.path : ""));
  }
  return out;
}

}  // namespace

ModelReport report_on(const gguf::File& file) {
  ModelReport out;
  out.path = file.path();
  out.file_bytes = file.file_bytes();
  out.parts = file.parts().size();
  out.version = file.version();
  out.architecture = text_of(file, "general.architecture").value_or("");
  out.name = text_of(file, "general.name").value_or("");
  out.tensors = file.tensors().size();
  for (const gguf::Tensor& tensor : file.tensors()) {
    out.parameters += tensor.columns() * tensor.rows();
    out.tensor_bytes += tensor.bytes;
  }
  const auto hyper = [&](std::string_view key) {
    return number_of(file, fmt::format("{}.{}", out.architecture, key));
  };
  out.layers = hyper("block_count");
  out.context = hyper("context_length");
  out.embedding = hyper("embedding_length");
  out.ffn = hyper("feed_forward_length");
  out.heads = hyper("attention.head_count");
  out.kv_heads = hyper("attention.head_count_kv");
  out.experts = hyper("expert_count");
  out.tokenizer = report_tokenizer(file);
  out.chat_template = report_template(file, out.tokenizer);
  out.types = report_types(file);
  out.kv = report_kv(file, out.context);
  out.problems = find_problems(file, out);
  return out;
}

}  // namespace pagewise::cli
