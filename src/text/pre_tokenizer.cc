// SPDX-License-Identifier: Apache-2.0
#include "text/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <span>

#include "gguf/gguf.h"
#include "text/utf8.h"

namespace pagewise::text {

namespace {

// White space is spelled out, because PCRE2's \s also takes U+180E, which has not been white space
// since Unicode 6.3 and is not in the tokenizers that the vocabularies were trained with.
#define PW_SPACE "\\t-\\r\\x{85}\\p{Z}"
#define PW_WORDS_AND_SIGNS \
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" PW_SPACE "\\p{L}\\p{N}]+|"
// Spaces before a word leave it the last one; the lone one that remains is a piece.
#define PW_SPACES "[" PW_SPACE "]+(?![^" PW_SPACE "])|[" PW_SPACE "]+"
#define PW_GPT2 PW_WORDS_AND_SIGNS PW_SPACES
#define PW_CASELESS_CONTRACTIONS "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])|"
#define PW_LLAMA3_BEFORE_NUMBER PW_CASELESS_CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define PW_LLAMA3_AFTER_NUMBER \
  " ?[^" PW_SPACE "\\p{L}\\p{N}]+[\\r\\n]*|[" PW_SPACE "]*[\\r\\n]+|" PW_SPACES

constexpr const char* kGpt2[] = {PW_GPT2};
// Digits stand alone, then as GPT-2.
constexpr const char* kSmollm[] = {"\\p{N}", PW_GPT2};
constexpr const char* kLlamaBpe[] = {PW_LLAMA3_BEFORE_NUMBER "\\p{N}{1,3}|" PW_LLAMA3_AFTER_NUMBER};
constexpr const char* kQwen2[] = {PW_LLAMA3_BEFORE_NUMBER "\\p{N}|" PW_LLAMA3_AFTER_NUMBER};
constexpr const char* kDefault[] = {"[\\p{P}$+<=>^~|]+", PW_GPT2, "\\p{N}+", "[0-9][0-9][0-9]"};
constexpr const char* kFalcon[] = {"[\\p{P}$+<=>^~|`]+", PW_GPT2, "[0-9][0-9][0-9]"};
// A word is its capitals, then its small letters; one of the two may be missing.
#define PW_CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define PW_SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define PW_CASED_WORDS(behind)                                 \
  "[^\\r\\n\\p{L}\\p{N}]?" PW_CAPITALS "*" PW_SMALL "+" behind \
  "|[^\\r\\n\\p{L}\\p{N}]?" PW_CAPITALS "+" PW_SMALL "*" behind "|"
#define PW_CASED_AFTER_NUMBER \
  " ?[^" PW_SPACE "\\p{L}\\p{N}]+[\\r\\n/]*|[" PW_SPACE "]*[\\r\\n]+|" PW_SPACES
constexpr const char* kTekken[] = {PW_CASED_WORDS("") "\\p{N}|" PW_CASED_AFTER_NUMBER};
constexpr const char* kGpt4o[] = {
    PW_CASED_WORDS("(?:'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD]))?") "\\p{N}{1,3}|" PW_CASED_AFTER_NUMBER};

#undef PW_CASED_AFTER_NUMBER
#undef PW_CASED_WORDS
#undef PW_SMALL
#undef PW_CAPITALS
#undef PW_LLAMA3_AFTER_NUMBER
#undef PW_LLAMA3_BEFORE_NUMBER
#undef PW_CASELESS_CONTRACTIONS
#undef PW_GPT2
#undef PW_SPACES
#undef PW_WORDS_AND_SIGNS
#undef PW_SPACE

struct Definition {
  std::string_view name;
  std::span<const char* const> expressions;
  bool composes = false;
  bool ignore_merges = false;
  bool add_bos = false;
};

// Source: the published definitions of these names in the GGUF ecosystem, and the `normalizer`,
// `pre_tokenizer` and `model` sections of the models' own tokenizer.json.
constexpr Definition kDefinitions[] = {
    {"smollm", kSmollm},
    {"gpt-2", kGpt2},
    {.name = "llama-bpe", .expressions = kLlamaBpe, .ignore_merges = true, .add_bos = true},
    {.name = "qwen2", .expressions = kQwen2, .composes = true},
    {"default", kDefault},
    {"falcon", kFalcon},
    // Mistral Nemo and later.
    {.name = "tekken", .expressions = kTekken, .ignore_merges = true, .add_bos = true},
    {"gpt-4o", kGpt4o},   // Phi 4 mini
    {"dbrx", kLlamaBpe},  // Phi 4, OLMo 2
    // Llama 3's vocabulary without its BOS: SmolLM 3.
    {.name = "smaug-bpe", .expressions = kLlamaBpe, .ignore_merges = true},
    {.name = "llama3", .expressions = kLlamaBpe, .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .expressions = kLlamaBpe, .ignore_merges = true, .add_bos = true},
    {.name = "falcon3", .expressions = kLlamaBpe, .ignore_merges = true, .add_bos = true},
    {.name = "deepseek-r1-qwen", .expressions = kQwen2, .composes = true},
    {.name = "olmo", .expressions = kGpt2, .composes = true},
    {.name = "command-r", .expressions = kSmollm, .composes = true},
    {"refact", kSmollm},  // Granite 3
    {"starcoder", kSmollm},
};

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

struct Expression {
  std::unique_ptr<pcre2_code, CodeDeleter> code;
  bool jit = false;
};

Result<Expression> compile(const char* pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Expression expression;
  expression.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                                      PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
  if (!expression.code) {
    return Error{ErrorCode::kInternal,
                 fmt::format("pre-tokenizer expression: PCRE2 error {} at {}", error, offset)};
  }
  // Without JIT (a kernel that forbids writable code, say) the interpreter gives the same matches.
  expression.jit = pcre2_jit_compile(expression.code.get(), PCRE2_JIT_COMPLETE) == 0;
  return expression;
}

/// Appends the ends of the pieces that `expression` cuts `piece` into, shifted by `base`.
void cut(const Expression& expression, pcre2_match_data* match, std::string_view piece,
         uint32_t base, std::vector<uint32_t>& ends) {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
  std::size_t at = 0;
  while (at < piece.size()) {
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (expression.jit) {
      found = pcre2_jit_match(expression.code.get(), subject, piece.size(), at, PCRE2_NO_UTF_CHECK,
                              match, nullptr);
    }
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(expression.code.get(), subject, piece.size(), at,
                          PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, nullptr);
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match);
    // No match, or a limit of the engine (none of our expressions reaches one): the rest is a
    // piece.
    if (found < 0 || bounds[1] <= bounds[0]) {
      ends.push_back(base + static_cast<uint32_t>(piece.size()));
      return;
    }
    if (bounds[0] > at) ends.push_back(base + static_cast<uint32_t>(bounds[0]));
    ends.push_back(base + static_cast<uint32_t>(bounds[1]));
    at = bounds[1];
  }
}

/// Runs of well-formed characters, and every other byte by itself.
void cut_at_ill_formed(std::string_view text, std::vector<uint32_t>& ends) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t valid = utf8_valid_prefix(text.substr(at));
    if (valid > 0) ends.push_back(static_cast<uint32_t>(at + valid));
    at += valid;
    if (at == text.size()) break;
    const std::size_t stop = at + utf8_unit(text.substr(at)).length;
    while (at < stop) ends.push_back(static_cast<uint32_t>(++at));
  }
}

}  // namespace

struct PreTokenizer::Impl {
  const Definition* definition = nullptr;
  std::vector<Expression> expressions;
};

PreTokenizer::PreTokenizer() : impl_(std::make_unique<Impl>()) {}
PreTokenizer::~PreTokenizer() = default;

Result<std::unique_ptr<PreTokenizer>> PreTokenizer::create(std::string_view name) {
  std::string offered;
  for (const Definition& definition : kDefinitions) {
    if (definition.name != name) {
      offered += offered.empty() ? "" : ", ";
      offered += definition.name;
      continue;
    }
    std::unique_ptr<PreTokenizer> result(new PreTokenizer());
    result->impl_->definition = &definition;
    for (const char* pattern : definition.expressions) {
      PW_ASSIGN_OR_RETURN(Expression expression, compile(pattern));
      result->impl_->expressions.push_back(std::move(expression));
    }
    return result;
  }
  return Error{
      ErrorCode::kUnsupported,
      fmt::format("tokenizer.ggml.pre: pre-tokenizer '{}' is not supported; supported are {}",
                  gguf::printable(name), offered)};
}

bool PreTokenizer::composes() const { return impl_->definition->composes; }
bool PreTokenizer::ignore_merges() const { return impl_->definition->ignore_merges; }
bool PreTokenizer::add_bos_by_default() const { return impl_->definition->add_bos; }

void PreTokenizer::split(std::string_view text, std::vector<uint32_t>& ends) const {
  ends.clear();
  cut_at_ill_formed(text, ends);
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> match(
      pcre2_match_data_create(1, nullptr));
  std::vector<uint32_t> next;
  for (const Expression& expression : impl_->expressions) {
    next.clear();
    next.reserve(ends.size() + text.size() / 4);
    uint32_t begin = 0;
    for (const uint32_t end : ends) {
      const std::string_view piece = text.substr(begin, end - begin);
      if (piece.size() == 1) {
        next.push_back(end);  // one byte cannot be cut, and an ill-formed one may not reach PCRE2
      } else {
        cut(expression, match.get(), piece, begin, next);
      }
      begin = end;
    }
    ends.swap(next);
  }
}

}  // namespace pagewise::text
