// SPDX-License-Identifier: Apache-2.0
#include "text/bpe_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/hash.h"
#include "text/utf8.h"

namespace pagewise::text {

namespace {

/// The byte alphabet of GPT-2: vocabularies spell each byte as one visible character. Printable
/// Latin-1 stands for itself, the other 68 bytes are U+0100 onwards in ascending order.
struct ByteAlphabet {
  std::array<uint32_t, 256> code_points{};
  std::array<int, 0x144> bytes{};  // code point to byte, -1: none

  constexpr ByteAlphabet() {
    for (int& byte : bytes) byte = -1;
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      code_points[byte] = printable ? byte : next++;
      bytes[code_points[byte]] = static_cast<int>(byte);
    }
  }
};
constexpr ByteAlphabet kAlphabet;

/// The bytes that a vocabulary spelling stands for. Characters outside the alphabet stand for
/// themselves.
void append_spelled_bytes(std::string_view spelling, std::string& out) {
  while (!spelling.empty()) {
    const Utf8Unit unit = utf8_unit(spelling);
    const std::string_view character = spelling.substr(0, unit.length);
    spelling.remove_prefix(unit.length);
    const uint32_t code_point =
        unit.kind == Utf8Kind::kCharacter ? utf8_decode(character) : UINT32_MAX;
    if (code_point < kAlphabet.bytes.size() && kAlphabet.bytes[code_point] >= 0) {
      out.push_back(static_cast<char>(kAlphabet.bytes[code_point]));
    } else {
      out += character;
    }
  }
}

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

bool is_special(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined ||
         type == TokenType::kUnknown;
}

bool all_white_space(std::string_view text) {
  return text.find_first_not_of(" \t\n\r\v\f") == std::string_view::npos;
}

uint64_t hash_of(std::string_view text) {
  return xxh3(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

/// Collects tokens, and their ends where the caller wants them; owns the buffers of one encode
/// call.
struct BpeTokenizer::Output {
  std::vector<TokenId> tokens;
  std::vector<uint32_t>* ends = nullptr;
  std::vector<uint32_t> pieces;
  std::vector<BpeSymbol> symbols;
  BpeMerges::Scratch scratch;

  void add(TokenId token, uint32_t end) {
    tokens.push_back(token);
    if (ends != nullptr) ends->push_back(end);
  }
};

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::create(const BpeVocabulary& vocabulary) {
  std::unique_ptr<BpeTokenizer> result(new BpeTokenizer());
  PW_ASSIGN_OR_RETURN(result->pre_, PreTokenizer::create(vocabulary.pre_tokenizer));
  PW_RETURN_IF_ERROR(result->load_tokens(vocabulary));
  PW_RETURN_IF_ERROR(result->load_merges(vocabulary));
  PW_RETURN_IF_ERROR(result->load_special(vocabulary));
  result->load_words();
  return std::unique_ptr<Tokenizer>(std::move(result));
}

Status BpeTokenizer::load_tokens(const BpeVocabulary& vocabulary) {
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
  bytes_.reserve(total);  // decoding only shortens, so the keys of by_bytes_ stay where they are
  offsets_.reserve(count + 1);
  offsets_.push_back(0);
  for (std::size_t i = 0; i < count; ++i) {
    if (is_special(types_[i])) {
      bytes_ += vocabulary.tokens[i];
    } else {
      append_spelled_bytes(vocabulary.tokens[i], bytes_);
    }
    offsets_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  by_bytes_.reserve(count);
  std::fill(std::begin(byte_ids_), std::end(byte_ids_), -1);
  for (std::size_t i = 0; i < count; ++i) {
    const TokenId token(static_cast<int32_t>(i));
    const std::string_view bytes = token_bytes(token);
    by_bytes_.try_emplace(bytes, token);
    if (is_special(types_[i]) || bytes.size() != 1) continue;
    int32_t& id = byte_ids_[static_cast<unsigned char>(bytes[0])];
    if (id < 0) id = token.value;
  }
  // A vocabulary may lack bytes that hardly occur, but one without ASCII is no byte-level
  // vocabulary.
  for (int byte = 0x20; byte < 0x7F; ++byte) {
    if (byte_ids_[byte] >= 0) continue;
    return {ErrorCode::kMalformed,
            fmt::format("tokenizer.ggml.tokens: no token for the byte 0x{:02X}", byte)};
  }
  return Status::ok();
}

Status BpeTokenizer::load_merges(const BpeVocabulary& vocabulary) {
  // Merges are in the file's spelling, so ids are looked up by it; of equal spellings the first
  // counts.
  std::unordered_map<std::string_view, int32_t> by_spelling;
  by_spelling.reserve(vocabulary.tokens.size());
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    by_spelling.try_emplace(vocabulary.tokens[i], static_cast<int32_t>(i));
  }
  merges_ = BpeMerges(vocabulary.merges.size());
  std::string joined;
  for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const std::string_view merge = vocabulary.merges[rank];
    const auto malformed = [&](std::string_view reason) {
      return Status(ErrorCode::kMalformed,
                    fmt::format("tokenizer.ggml.merges: entry {}: {}", rank, reason));
    };
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return malformed("not two symbols with a space between");
    }
    joined.assign(merge.substr(0, space));
    joined += merge.substr(space + 1);
    const auto left = by_spelling.find(merge.substr(0, space));
    const auto right = by_spelling.find(merge.substr(space + 1));
    const auto result = by_spelling.find(joined);
    if (left == by_spelling.end() || right == by_spelling.end() || result == by_spelling.end()) {
      return malformed("a symbol is not in the vocabulary");
    }
    // Ordinary text can never merge into a control token (C16), whatever the file lists.
    const auto type = types_[static_cast<std::size_t>(result->second)];
    if (type == TokenType::kControl || type == TokenType::kUnknown) continue;
    merges_.insert(left->second, right->second, {static_cast<uint32_t>(rank), result->second});
  }
  return Status::ok();
}

Status BpeTokenizer::load_special(const BpeVocabulary& vocabulary) {
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
  add_bos_ = vocabulary.add_bos.value_or(pre_->add_bos_by_default());
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
    if (std::find(std::begin(kEogSpellings), std::end(kEogSpellings), spelling) !=
        std::end(kEogSpellings)) {
      eog_.push_back(token);
    }
  }
  special_.build();
  std::sort(eog_.begin(), eog_.end());
  eog_.erase(std::unique(eog_.begin(), eog_.end()), eog_.end());
  return Status::ok();
}

void BpeTokenizer::load_words() {
  words_.resize(std::bit_ceil(2 * types_.size()));
  Output out;
  for (std::size_t i = 0; i < types_.size(); ++i) {
    const TokenId token(static_cast<int32_t>(i));
    if (types_[i] != TokenType::kNormal || token_bytes(token).empty()) continue;
    if (!pre_->ignore_merges()) {
      symbols_of(token_bytes(token), out.symbols);
      merges_.apply(out.symbols, out.scratch);
      if (out.symbols.size() != 1 || out.symbols[0].id != token.value) continue;
    }
    insert_word(token);
  }
}

void BpeTokenizer::insert_word(TokenId token) {
  const std::string_view bytes = token_bytes(token);
  if (find_word(bytes)) return;
  const uint64_t hash = hash_of(bytes);
  std::size_t at = hash & (words_.size() - 1);
  while (words_[at].id >= 0) at = (at + 1) & (words_.size() - 1);
  words_[at] = {static_cast<uint32_t>(hash >> 32), token.value};
  word_bytes_max_ = std::max(word_bytes_max_, bytes.size());
}

std::optional<TokenId> BpeTokenizer::find_word(std::string_view piece) const {
  if (piece.size() > word_bytes_max_) return std::nullopt;
  const uint64_t hash = hash_of(piece);
  std::size_t at = hash & (words_.size() - 1);
  while (words_[at].id >= 0) {
    const TokenId token(words_[at].id);
    if (words_[at].hash == static_cast<uint32_t>(hash >> 32) && token_bytes(token) == piece) {
      return token;
    }
    at = (at + 1) & (words_.size() - 1);
  }
  return std::nullopt;
}

void BpeTokenizer::symbols_of(std::string_view piece, std::vector<BpeSymbol>& symbols) const {
  symbols.resize(piece.size());
  for (std::size_t i = 0; i < piece.size(); ++i) {
    symbols[i] = {byte_ids_[static_cast<unsigned char>(piece[i])], 1};
  }
}

void BpeTokenizer::encode_ordinary(std::string_view text, uint32_t base, Output& out) const {
  pre_->split(text, out.pieces);
  uint32_t begin = 0;
  for (const uint32_t end : out.pieces) {
    const std::string_view piece = text.substr(begin, end - begin);
    if (const auto word = find_word(piece)) {
      out.add(*word, base + end);
    } else {
      symbols_of(piece, out.symbols);
      merges_.apply(out.symbols, out.scratch);
      uint32_t at = base + begin;
      for (const BpeSymbol& symbol : out.symbols) {
        at += symbol.bytes;
        if (symbol.id >= 0) out.add(TokenId(symbol.id), at);
      }
    }
    begin = end;
  }
}

void BpeTokenizer::encode_trusted(std::string_view text, uint32_t base, Trust trust,
                                  Output& out) const {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto match = special_.find(text, at, trust);
    const std::size_t stop = match ? match->begin : text.size();
    if (stop > at) {
      encode_ordinary(text.substr(at, stop - at), base + static_cast<uint32_t>(at), out);
    }
    if (!match) break;
    out.add(match->token, base + static_cast<uint32_t>(match->end));
    at = match->end;
  }
}

std::vector<TokenId> BpeTokenizer::encode(std::string_view text, bool parse_special) const {
  Output out;
  out.tokens.reserve(text.size() / 3);
  encode_trusted(text, 0, parse_special ? Trust::kTemplate : Trust::kPlain, out);
  return std::move(out.tokens);
}

EncodedText BpeTokenizer::encode(const ProvenancedText& input) const {
  // First where text must be cut: around each special token that its own stretch of one trust
  // spells, and at the breaks. Between two cuts provenance no longer matters: pieces and merges see
  // plain text, as in the reference tokenizers.
  const std::string_view text = input.text;
  std::vector<SpecialTokens::Match> matches;
  for (std::size_t i = 0; i < input.spans.size();) {
    const bool trusted = input.spans[i].origin == kTemplateOrigin;
    const std::size_t begin = std::min<std::size_t>(input.spans[i].begin, text.size());
    std::size_t end = begin;
    for (; i < input.spans.size() && (input.spans[i].origin == kTemplateOrigin) == trusted; ++i) {
      end = std::clamp<std::size_t>(input.spans[i].end, end, text.size());
    }
    const std::string_view stretch = text.substr(0, end);
    const Trust trust = trusted ? Trust::kTemplate : Trust::kContent;
    for (std::size_t at = begin; at < end;) {
      const auto match = special_.find(stretch, at, trust);
      if (!match) break;
      matches.push_back(*match);
      at = match->end;
    }
  }
  EncodedText result;
  Output out;
  out.tokens.reserve(text.size() / 3);
  result.ends.reserve(text.size() / 3);
  out.ends = &result.ends;
  std::size_t at = 0;
  auto next_break = input.breaks.begin();
  const auto ordinary_until = [&](std::size_t stop) {
    while (at < stop) {
      while (next_break != input.breaks.end() && *next_break <= at) ++next_break;
      const std::size_t cut =
          next_break != input.breaks.end() ? std::min<std::size_t>(*next_break, stop) : stop;
      encode_ordinary(text.substr(at, cut - at), static_cast<uint32_t>(at), out);
      at = cut;
    }
  };
  for (const SpecialTokens::Match& match : matches) {
    ordinary_until(match.begin);
    out.add(match.token, static_cast<uint32_t>(match.end));
    at = match.end;
  }
  ordinary_until(text.size());
  result.tokens = std::move(out.tokens);
  return result;
}

std::string_view BpeTokenizer::token_bytes(TokenId token) const {
  const auto index = static_cast<std::size_t>(token.value);
  if (token.value < 0 || index >= types_.size()) return {};
  return std::string_view(bytes_).substr(offsets_[index], offsets_[index + 1] - offsets_[index]);
}

bool BpeTokenizer::is_control(TokenId token) const {
  const auto index = static_cast<std::size_t>(token.value);
  if (token.value < 0 || index >= types_.size()) return false;
  return types_[index] == TokenType::kControl || types_[index] == TokenType::kUnknown;
}

bool BpeTokenizer::is_eog(TokenId token) const {
  return std::binary_search(eog_.begin(), eog_.end(), token);
}

std::optional<TokenId> BpeTokenizer::find(std::string_view spelling) const {
  const auto found = by_bytes_.find(spelling);
  if (found == by_bytes_.end()) return std::nullopt;
  return found->second;
}

}  // namespace pagewise::text
