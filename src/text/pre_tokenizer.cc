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

// Ideographs, and with them what their authors took for Hangul.
#define PW_CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
// Letters with case, as the published expression lists them: not Georgian's small ones, nor
// Armenian's. Signs take the letters of ASCII in once more: `[:-~]`.
#define PW_CASED_LETTERS                                                                 \
  "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"         \
  "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}-\\x{377}"                 \
  "\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}"          \
  "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}"                 \
  "\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}"         \
  "\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}"         \
  "\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}"         \
  "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}" \
  "\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}"                   \
  "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}"         \
  "\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}" \
  "\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}"           \
  "\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}-\\x{2184}"                   \
  "\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}-\\x{2cf3}"         \
  "\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}"         \
  "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}"         \
  "\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}"     \
  "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}" \
  "\\x{1e900}-\\x{1e943}"
constexpr const char* kDeepseekLlm[] = {
    "[\\r\\n]", "[" PW_SPACE "]?[" PW_CASED_LETTERS "]+",
    "[" PW_SPACE
    "]?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
    // Spaces at the end of a piece; the look behind keeps a long run in the middle from being tried
    // from each of its characters.
    "(?<![" PW_SPACE "])[" PW_SPACE "]++\\z", PW_CJK, "\\p{N}+"};
constexpr const char* kDeepseekCoder[] = {"[\\r\\n]", "[" PW_SPACE "]?\\p{L}+",
                                          "[" PW_SPACE "]?\\p{P}+", PW_CJK, "\\p{N}"};
constexpr const char* kDeepseekV3[] = {
    "\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|"
    "[" PW_SPACE "]*[\\r\\n]+|" PW_SPACES};

#undef PW_CASED_LETTERS
#undef PW_CJK
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
    {"deepseek-llm", kDeepseekLlm},
    {"deepseek-v3", kDeepseekV3},
    {"deepseek-coder", kDeepseekCoder},
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
