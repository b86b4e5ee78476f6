// SPDX-License-Identifier: Apache-2.0
#include "text/vocabulary_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/contains.h"
#include "text/utf8.h"

namespace pagewise::text {

namespace {

/// Spellings that end a turn or an answer in published models. Files often mark only one of theirs.
constexpr std::string_view kEogSpellings[] = {
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "</s>",
    "<eos>",
    "<end_of_turn>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end▁of▁sentence|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
};

/// Those that keep the white space behind them where the others drop it.
/// Source: `rstrip` of the added tokens in Phi 3's tokenizer.json.
constexpr std::string_view kKeepsWhiteSpace[] = {"<unk>", "<s>", "<|endoftext|>"};

/// Unicode's White_Space.
constexpr uint32_t kSpaces[] = {0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};

bool is_white_space(uint32_t character) {
  return (character >= 0x09 && character <= 0x0D) || (character >= 0x2000 && character <= 0x200A) ||
         contains(kSpaces, character);
}

bool all_white_space(std::string_view text) {
  return text.find_first_not_of(" \t\n\r\v\f") == std::string_view::npos;
}

}  // namespace

Status VocabularyTokenizer::load_types(const Vocabulary& vocabulary) {
  const std::size_t count = vocabulary.tokens.size();
  if (count == 0 || count > INT32_MAX) {
    return {ErrorCode::kMalformed, "tokenizer.ggml.tokens: missing, empty or too long"};
  }
  if (!vocabulary.types.empty() && vocabulary.types.size() != count) {
    return {ErrorCode::kMalformed,
            fmt::format("tokenizer.ggml.token_type: {} entries for {} tokens",
                        vocabulary.types.size(), count)};
  }
  types_ = vocabulary.types;
  types_.resize(count, TokenType::kNormal);
  std::size_t total = 0;
  for (const std::string_view token : vocabulary.tokens) total += token.size();
  if (total > UINT32_MAX) return {ErrorCode::kMalformed, "tokenizer.ggml.tokens: over 4 GiB"};
  bytes_.reserve(total);  // decoding only shortens, so views of token bytes stay valid
  offsets_.reserve(count + 1);
  return Status::ok();
}

void VocabularyTokenizer::add_bytes(std::string_view bytes) {
  bytes_ += bytes;
  offsets_.push_back(static_cast<uint32_t>(bytes_.size()));
}

Status VocabularyTokenizer::load_special(const Vocabulary& vocabulary, bool add_bos_by_default) {
  const auto in_range = [&](TokenId token) {
    return token.value >= 0 && static_cast<std::size_t>(token.value) < types_.size();
  };
  for (const auto& [token, key] : {std::pair{vocabulary.bos, "bos"}, {vocabulary.eos, "eos"}}) {
    if (token && !in_range(*token)) {
      return {ErrorCode::kMalformed, fmt::format("tokenizer.ggml.{}_token_id: {} is not in the "
                                                 "vocabulary of {} tokens",
                                                 key, token->value, types_.size())};
    }
  }
  bos_ = vocabulary.bos;
  eos_ = vocabulary.eos;
  add_bos_ = vocabulary.add_bos.value_or(add_bos_by_default);
  if (eos_) eog_.push_back(*eos_);
  for (const TokenId token : vocabulary.more_eog) {
    if (!in_range(token)) {
      return {
          ErrorCode::kMalformed,
          fmt::format("tokenizer.ggml.eot_token_id or eom_token_id: {} is not in the vocabulary",
                      token.value)};
    }
    eog_.push_back(token);
  }
  std::optional<TokenId> message_end;
  bool has_return = false;
  for (std::size_t i = 0; i < types_.size(); ++i) {
    if (!is_special(types_[i])) continue;
    const TokenId token(static_cast<int32_t>(i));
    const std::string_view spelling = token_bytes(token);
    if (spelling.empty()) continue;
    Trust trust_min = Trust::kTemplate;
    if (types_[i] == TokenType::kUserDefined) {
      trust_min = all_white_space(spelling) ? Trust::kContent : Trust::kPlain;
    }
    special_.add(std::string(spelling), token, trust_min);
    if (vocabulary.strips_behind_special && !contains(kKeepsWhiteSpace, spelling)) {
      strips_.resize(types_.size());
      strips_[i] = true;
    }
    if (contains(kEogSpellings, spelling)) eog_.push_back(token);
    if (spelling == "<|end|>") message_end = token;
    has_return = has_return || spelling == "<|return|>";
  }
  // Beside a token that ends the answer (gpt-oss) this one ends each of its messages.
  if (message_end && has_return) std::erase(eog_, *message_end);
  special_.build();
  std::sort(eog_.begin(), eog_.end());
  eog_.erase(std::unique(eog_.begin(), eog_.end()), eog_.end());
  return Status::ok();
}

/// Where the token drops what follows it, the match ends behind that.
void VocabularyTokenizer::strip(SpecialTokens::Match& match, std::string_view text) const {
  if (strips_.empty() || !strips_[static_cast<std::size_t>(match.token.value)]) return;
  while (match.end < text.size()) {
    const std::string_view rest = text.substr(match.end);
    const Utf8Unit unit = utf8_unit(rest);
    if (unit.kind != Utf8Kind::kCharacter ||
        !is_white_space(utf8_decode(rest.substr(0, unit.length)))) {
      return;
    }
    match.end += unit.length;
  }
}

std::vector<TokenId> VocabularyTokenizer::encode(std::string_view text, bool parse_special) const {
  const std::unique_ptr<Output> out = make_output();
  out->tokens.reserve(text.size() / 3);
  const Trust trust = parse_special ? Trust::kTemplate : Trust::kPlain;
  std::size_t at = 0;
  while (at < text.size()) {
    auto match = special_.find(text, at, trust);
    if (match) strip(*match, text);
    const std::size_t stop = match ? match->begin : text.size();
    if (stop > at) {
      // Whatever stands in front of a stretch is a special token or nothing.
      encode_ordinary(text.substr(at, stop - at), static_cast<uint32_t>(at), true, *out);
    }
    if (!match) break;
    out->add(match->token, static_cast<uint32_t>(match->end));
    at = match->end;
  }
  return std::move(out->tokens);
}

EncodedText VocabularyTokenizer::encode(const ProvenancedText& input) const {
  // First where text must be cut: around each special token that its own stretch of one trust
  // spells, and at the breaks. Between two cuts provenance no longer matters: pieces and merges see
  // plain text, as in the reference tokenizers.
  const std::string_view text = input.text;
  std::vector<SpecialTokens::Match> matches;
  std::size_t done = 0;  // behind the last match
  for (std::size_t i = 0; i < input.spans.size();) {
    const bool trusted = input.spans[i].origin == kTemplateOrigin;
    const std::size_t begin = std::min<std::size_t>(input.spans[i].begin, text.size());
    std::size_t end = begin;
    for (; i < input.spans.size() && (input.spans[i].origin == kTemplateOrigin) == trusted; ++i) {
      end = std::clamp<std::size_t>(input.spans[i].end, end, text.size());
    }
    const std::string_view stretch = text.substr(0, end);
    const Trust trust = trusted ? Trust::kTemplate : Trust::kContent;
    for (done = std::max(done, begin); done < end;) {
      auto match = special_.find(stretch, done, trust);
      if (!match) break;
      // A token begins at each break, whatever white space stands around it.
      const auto stop = std::lower_bound(input.breaks.begin(), input.breaks.end(), match->end);
      strip(*match, stop == input.breaks.end() ? text : text.substr(0, *stop));
      matches.push_back(*match);
      done = match->end;
    }
  }
  EncodedText result;
  const std::unique_ptr<Output> out = make_output();
  out->tokens.reserve(text.size() / 3);
  result.ends.reserve(text.size() / 3);
  out->ends = &result.ends;
  std::size_t at = 0;
  bool at_start = true;
  auto next_break = input.breaks.begin();
  const auto ordinary_until = [&](std::size_t stop) {
    while (at < stop) {
      while (next_break != input.breaks.end() && *next_break <= at) ++next_break;
      const std::size_t cut =
          next_break != input.breaks.end() ? std::min<std::size_t>(*next_break, stop) : stop;
      encode_ordinary(text.substr(at, cut - at), static_cast<uint32_t>(at), at_start, *out);
      at_start = false;
      at = cut;
    }
  };
  for (const SpecialTokens::Match& match : matches) {
    ordinary_until(match.begin);
    out->add(match.token, static_cast<uint32_t>(match.end));
    at_start = true;
    at = match.end;
  }
  ordinary_until(text.size());
  result.tokens = std::move(out->tokens);
  return result;
}

std::string_view VocabularyTokenizer::token_bytes(TokenId token) const {
  const auto index = static_cast<std::size_t>(token.value);
  if (token.value < 0 || index >= types_.size()) return {};
  return std::string_view(bytes_).substr(offsets_[index], offsets_[index + 1] - offsets_[index]);
}

bool VocabularyTokenizer::is_control(TokenId token) const {
  const auto index = static_cast<std::size_t>(token.value);
  if (token.value < 0 || index >= types_.size()) return false;
  return types_[index] == TokenType::kControl || types_[index] == TokenType::kUnknown;
}

bool VocabularyTokenizer::is_eog(TokenId token) const {
  return std::binary_search(eog_.begin(), eog_.end(), token);
}

}  // namespace pagewise::text
