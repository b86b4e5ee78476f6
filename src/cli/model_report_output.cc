// SPDX-License-Identifier: Apache-2.0
#include "cli/model_report_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/bytes.h"
#include "base/json.h"
#include "cli/json_values.h"
#include "cli/terminal_text.h"

namespace pagewise::cli {
namespace {

constexpr std::size_t kTextShown = 100;    // characters of a text in the metadata
constexpr std::size_t kElementShown = 20;  // of one element of an array
constexpr std::size_t kElementsShown = 6;

/// Lines of "  label   text", the texts in one column.
class Lines {
 public:
  template <typename... A>
  void add(std::string_view label, fmt::format_string<A...> format, A&&... arguments) {
    fmt::format_to(std::back_inserter(text_), "  {:<15}{}\n", label,
                   fmt::format(format, std::forward<A>(arguments)...));
  }
  template <typename... A>
  void plain(fmt::format_string<A...> format, A&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<A>(arguments)...);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string type_name(TensorType type) {
  const TensorTypeInfo* info = tensor_type_info(type);
  return info != nullptr ? std::string(info->name)
                         : fmt::format("number {}", static_cast<uint32_t>(type));
}

std::string attention_text(uint32_t window) {
  return window == 0 ? "full attention" : fmt::format("sliding window of {}", window);
}

std::string tokens_text(const std::vector<SpecialToken>& tokens, bool roles) {
  std::string out;
  for (const SpecialToken& token : tokens) {
    if (!out.empty()) out += ", ";
    if (roles) out += one_line(token.role, kTextShown) + " ";
    out += std::to_string(token.id);
    if (!token.spelling.empty()) out += " " + one_line(token.spelling, kElementShown);
  }
  return out;
}

std::string element_text(const std::string_view text) { return one_line(text, kElementShown); }
std::string element_text(uint64_t number) { return std::to_string(number); }
std::string element_text(int64_t number) { return std::to_string(number); }
std::string element_text(double number) { return fmt::format("{}", number); }
std::string element_text(bool flag) { return flag ? "true" : "false"; }

std::string value_text(const gguf::Value& value) {
  return std::visit(
      [](const auto& held) -> std::string {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return one_line(held, kTextShown);
        } else if constexpr (std::is_same_v<T, std::shared_ptr<const gguf::Array>>) {
          return std::visit(
              [](const auto& elements) {
                std::string out = fmt::format("{} values: ", elements.size());
                for (std::size_t i = 0; i < std::min(elements.size(), kElementsShown); ++i) {
                  if (i > 0) out += ", ";
                  out += element_text(elements[i]);
                }
                return elements.size() > kElementsShown ? out + ", ..." : out;
              },
              held->elements);
        } else {
          return element_text(held);
        }
      },
      value);
}

void add_template(const TemplateReport& report, Lines& lines) {
  constexpr std::string_view kLabel = "chat template";
  if (!report.source) {
    lines.add(kLabel, "none: only text completion");
  } else {
    std::string about = fmt::format("{} bytes", report.source->size());
    if (!report.family.empty()) about += ", " + report.family;
    if (!report.uses.empty()) about += fmt::format("; uses {}", fmt::join(report.uses, ", "));
    lines.add(kLabel, "{}", about);
    if (!report.problem.empty()) {
      lines.add("", "cannot be used: {}", one_line(report.problem, 300));
    } else if (!report.renders) {
      lines.add("", "refuses a plain conversation: {}", one_line(report.render_problem, 300));
    } else {
      lines.add("", "renders; system messages: {}",
                report.system_problem.empty()
                    ? "yes"
                    : "no (" + one_line(report.system_problem, 200) + ")");
    }
  }
  if (!report.names.empty()) {
    std::string names;
    for (const std::string& name : report.names) {
      names += (names.empty() ? "" : ", ") + one_line(name, kElementShown);
    }
    lines.add("", "more in the file, not used: {}", names);
  }
}

void add_kv(const ModelReport& report, Lines& lines) {
  if (!report.kv.problem.empty()) {
    lines.add("KV per token", "not known: {}", one_line(report.kv.problem, 300));
    return;
  }
  lines.add("KV per token", "{} as f16{}", format_size(report.kv.token_bytes),
            report.kv.context_bytes
                ? fmt::format("; {} for a whole context", format_size(*report.kv.context_bytes))
                : "");
  for (const KvGroupReport& group : report.kv.groups) {
    const std::string rows =
        group.key_dim == group.value_dim ? fmt::format("{} values", group.key_dim)
        : group.value_dim == 0           ? fmt::format("{} values, V a part of K", group.key_dim)
                               : fmt::format("{} + {} values", group.key_dim, group.value_dim);
    lines.add("", "{:>3} layers, {}, {} KV heads of {}: {} a token", group.layers,
              attention_text(group.window), group.kv_heads, rows, format_size(group.token_bytes));
  }
}

void add_types(const ModelReport& report, Lines& lines) {
  if (report.types.empty()) {
    lines.add("tensors", "none: metadata only");
    return;
  }
  lines.add("tensors", "{:<9}{:>7}{:>12}{:>8}  {}", "type", "count", "size", "share", "kernels");
  for (const TensorTypeReport& row : report.types) {
    const double share = report.tensor_bytes == 0 ? 0
                                                  : 100.0 * static_cast<double>(row.bytes) /
                                                        static_cast<double>(report.tensor_bytes);
    lines.add("", "{:<9}{:>7}{:>12}{:>6.1f} %  {}", type_name(row.type), row.tensors,
              format_size(row.bytes), share, row.kernels.empty() ? "none" : row.kernels);
  }
}

json::value number_json(double number) {
  if (std::isfinite(number)) return number;
  return json::value(std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
}

json::value element_json(std::string_view text) { return json::value(well_formed(text)); }
json::value element_json(uint64_t number) { return json::value(number); }
json::value element_json(int64_t number) { return json::value(number); }
json::value element_json(double number) { return number_json(number); }
json::value element_json(bool flag) { return json::value(flag); }

json::value value_json(const gguf::Value& value) {
  return std::visit(
      [](const auto& held) -> json::value {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::shared_ptr<const gguf::Array>>) {
          return std::visit(
              [](const auto& elements) -> json::value {
                json::array out;
                out.reserve(elements.size());
                for (std::size_t i = 0; i < elements.size(); ++i) {
                  out.push_back(element_json(elements[i]));
                }
                return out;
              },
              held->elements);
        } else {
          return element_json(held);
        }
      },
      value);
}

json::array tokens_json(const std::vector<SpecialToken>& tokens, bool roles) {
  json::array out;
  for (const SpecialToken& token : tokens) {
    json::object one;
    if (roles) one["role"] = well_formed(token.role);
    one["id"] = token.id;
    one["token"] =
        token.spelling.empty() ? json::value(nullptr) : json::value(well_formed(token.spelling));
    out.push_back(std::move(one));
  }
  return out;
}

json::object tokenizer_json(const TokenizerReport& report) {
  return {{"model", text_or_null(report.model)},
          {"pre", text_or_null(report.pre)},
          {"kind", report.kind},
          {"tokens", report.tokens},
          {"special", tokens_json(report.special, true)},
          {"end_of_generation", tokens_json(report.ends, false)},
          {"adds_bos", report.adds_bos ? json::value(*report.adds_bos) : json::value(nullptr)},
          {"problem", text_or_null(report.problem)}};
}

json::value template_json(const TemplateReport& report) {
  if (!report.source && report.names.empty()) return nullptr;
  const bool compiled = report.source && report.problem.empty();
  return json::object{
      {"source", report.source ? json::value(well_formed(*report.source)) : json::value(nullptr)},
      {"family", text_or_null(report.family)},
      {"uses", strings_json(report.uses)},
      {"renders", compiled && report.renders},
      {"problem", text_or_null(report.problem.empty() ? report.render_problem : report.problem)},
      {"system", compiled && report.system_problem.empty()},
      {"system_problem", text_or_null(report.system_problem)},
      {"other_names", strings_json(report.names)}};
}

json::object kv_json(const KvReport& report) {
  json::array groups;
  for (const KvGroupReport& group : report.groups) {
    groups.push_back(json::object{{"layers", group.layers},
                                  {"window", group.window},
                                  {"kv_heads", group.kv_heads},
                                  {"key_dim", group.key_dim},
                                  {"value_dim", group.value_dim},
                                  {"token_bytes", group.token_bytes}});
  }
  const bool known = report.problem.empty();
  return {{"type", "f16"},
          {"token_bytes", known ? json::value(report.token_bytes) : json::value(nullptr)},
          {"context_bytes", number_or_null(report.context_bytes)},
          {"groups", std::move(groups)},
          {"problem", text_or_null(report.problem)}};
}

json::object tensors_json(const ModelReport& report, const gguf::File& file) {
  json::array types;
  for (const TensorTypeReport& row : report.types) {
    types.push_back(json::object{{"type", type_name(row.type)},
                                 {"tensors", row.tensors},
                                 {"elements", row.elements},
                                 {"bytes", row.bytes},
                                 {"kernels", text_or_null(row.kernels)}});
  }
  json::array list;
  for (const gguf::Tensor& tensor : file.tensors()) {
    list.push_back(json::object{{"name", well_formed(tensor.name)},
                                {"part", tensor.part},
                                {"type", type_name(tensor.type)},
                                {"shape", json::array(tensor.shape.begin(), tensor.shape.end())},
                                {"offset", tensor.file_offset},
                                {"bytes", tensor.bytes}});
  }
  return {{"count", report.tensors},
          {"bytes", report.tensor_bytes},
          {"types", std::move(types)},
          {"list", std::move(list)}};
}

}  // namespace

std::string report_text(const ModelReport& report, const gguf::File& file) {
  Lines lines;
  const auto number = [](const std::optional<uint64_t>& value) {
    return value ? std::to_string(*value) : std::string("not said");
  };
  lines.plain("{}\n", one_line(report.path, 1000));
  lines.add("file", "GGUF version {}, {}{}", report.version, format_size(report.file_bytes),
            report.parts > 1 ? fmt::format(" in {} parts", report.parts) : "");
  lines.add("model", "{}{}", report.name.empty() ? "" : one_line(report.name, kTextShown) + ", ",
            report.architecture.empty()
                ? "no architecture named"
                : "architecture " + one_line(report.architecture, kTextShown));
  if (report.tensors > 0) {
    lines.add("parameters", "{:.1f} M in {} tensors, {}",
              static_cast<double>(report.parameters) / 1e6, report.tensors,
              format_size(report.tensor_bytes));
  }
  lines.add("context", "{}{}", number(report.context), report.context ? " tokens" : "");
  lines.add("layers", "{}", number(report.layers));
  lines.add("width", "embedding {}, feed-forward {}{}", number(report.embedding),
            number(report.ffn), report.experts ? fmt::format(", {} experts", *report.experts) : "");
  lines.add("heads", "{}, for KV {}", number(report.heads), number(report.kv_heads));
  const TokenizerReport& tokenizer = report.tokenizer;
  lines.add("tokenizer", "{}{}, {} tokens{}", tokenizer.kind,
            tokenizer.model.empty()
                ? ""
                : fmt::format(" ({}{})", one_line(tokenizer.model, 40),
                              tokenizer.pre.empty() ? "" : ", " + one_line(tokenizer.pre, 40)),
            tokenizer.tokens,
            !tokenizer.adds_bos   ? ""
            : *tokenizer.adds_bos ? "; puts bos in front"
                                  : "; puts no bos in front");
  if (!tokenizer.special.empty()) {
    lines.add("", "special: {}", tokens_text(tokenizer.special, true));
  }
  if (!tokenizer.ends.empty()) {
    lines.add("", "ends an answer: {}", tokens_text(tokenizer.ends, false));
  }
  add_template(report.chat_template, lines);
  add_kv(report, lines);
  add_types(report, lines);
  if (report.served()) {
    lines.add("served", "yes");
  } else {
    lines.add("served", "no");
    for (const std::string& problem : report.problems)
      lines.add("", "- {}", one_line(problem, 400));
  }
  lines.plain("\nmetadata\n");
  std::size_t width = 0;
  for (const auto& [key, value] : file.metadata()) width = std::max(width, key.size());
  width = std::min<std::size_t>(width, 48);
  for (const auto& [key, value] : file.metadata()) {
    lines.plain("  {:<{}}  {}\n", one_line(key, kTextShown), width, value_text(value));
  }
  return lines.take();
}

std::string report_json(const ModelReport& report, const gguf::File& file) {
  json::object metadata;
  for (const auto& [key, value] : file.metadata()) metadata[well_formed(key)] = value_json(value);
  json::object out{
      {"path", well_formed(report.path)},
      {"version", report.version},
      {"file_bytes", report.file_bytes},
      {"parts", report.parts},
      {"served", report.served()},
      {"problems", strings_json(report.problems)},
      {"architecture", text_or_null(report.architecture)},
      {"name", text_or_null(report.name)},
      {"parameters", report.parameters},
      {"context", number_or_null(report.context)},
      {"layers", number_or_null(report.layers)},
      {"layer_kinds", strings_json(report.layer_kinds)},
      {"embedding", number_or_null(report.embedding)},
      {"feed_forward", number_or_null(report.ffn)},
      {"heads", number_or_null(report.heads)},
      {"kv_heads", number_or_null(report.kv_heads)},
      {"experts", number_or_null(report.experts)},
      {"tokenizer", tokenizer_json(report.tokenizer)},
      {"chat_template", template_json(report.chat_template)},
      {"kv", kv_json(report.kv)},
      {"tensors", tensors_json(report, file)},
      {"metadata", std::move(metadata)},
  };
  return json::serialize(out);
}

}  // namespace pagewise::cli
