// SPDX-License-Identifier: Apache-2.0
#include "text/bpe_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/hash.h"
#include "text/nfc.h"
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

uint64_t hash_of(std::string_view text) {
  return xxh3(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

/// Owns the buffers of one encode call.
struct BpeTokenizer::Buffers final : Output {
  ComposedText composed;
  std::vector<uint32_t> pieces;
  std::vector<BpeSymbol> symbols;
  BpeMerges::Scratch scratch;
};

std::unique_ptr<VocabularyTokenizer::Output> BpeTokenizer::make_output() const {
  return std::make_unique<Buffers>();
}

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::create(const BpeVocabulary& vocabulary) {
  std::unique_ptr<BpeTokenizer> result(new BpeTokenizer());
  PW_ASSIGN_OR_RETURN(result->pre_, PreTokenizer::create(vocabulary.pre_tokenizer));
  PW_RETURN_IF_ERROR(result->load_tokens(vocabulary));
  PW_RETURN_IF_ERROR(result->load_merges(vocabulary));
  PW_RETURN_IF_ERROR(result->load_special(vocabulary, result->pre_->add_bos_by_default()));
  result->load_words();
  return std::unique_ptr<Tokenizer>(std::move(result));
}

Status BpeTokenizer::load_tokens(const BpeVocabulary& vocabulary) {
  PW_RETURN_IF_ERROR(load_types(vocabulary));
  const std::size_t count = vocabulary.tokens.size();
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes.clear();
    if (is_special(type_of(i))) {
      bytes = vocabulary.tokens[i];
    } else {
      append_spelled_bytes(vocabulary.tokens[i], bytes);
    }
    add_bytes(bytes);
  }
  by_bytes_.reserve(count);
  std::fill(std::begin(byte_ids_), std::end(byte_ids_), -1);
  for (std::size_t i = 0; i < count; ++i) {
    const TokenId token(static_cast<int32_t>(i));
    const std::string_view bytes = token_bytes(token);
    by_bytes_.try_emplace(bytes, token);
    if (is_special(type_of(i)) || bytes.size() != 1) continue;
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
    const auto type = type_of(static_cast<std::size_t>(result->second));
    if (type == TokenType::kControl || type == TokenType::kUnknown) continue;
    merges_.insert(left->second, right->second, {static_cast<uint32_t>(rank), result->second});
  }
  return Status::ok();
}

void BpeTokenizer::load_words() {
  words_.resize(std::bit_ceil(std::size_t{2} * vocab_size()));
  Buffers out;
  for (std::size_t i = 0; i < vocab_size(); ++i) {
    const TokenId token(static_cast<int32_t>(i));
    if (type_of(i) != TokenType::kNormal || token_bytes(token).empty()) continue;
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

void BpeTokenizer::encode_ordinary(std::string_view text, uint32_t base, bool,
                                   Output& output) const {
  auto& out = static_cast<Buffers&>(output);
  out.composed.changes.clear();
  if (pre_->composes() && may_compose(text)) {
    compose(text, out.composed);
    text = out.composed.text;
  }
  SourceOffsets source(out.composed.changes);
  pre_->split(text, out.pieces);
  uint32_t begin = 0;
  for (const uint32_t end : out.pieces) {
    const std::string_view piece = text.substr(begin, end - begin);
    if (const auto word = find_word(piece)) {
      out.add(*word, base + source.of(end));
    } else {
      symbols_of(piece, out.symbols);
      merges_.apply(out.symbols, out.scratch);
      uint32_t at = begin;
      for (const BpeSymbol& symbol : out.symbols) {
        at += symbol.bytes;
        if (symbol.id >= 0) out.add(TokenId(symbol.id), base + source.of(at));
      }
    }
    begin = end;
  }
}

std::optional<TokenId> BpeTokenizer::find(std::string_view spelling) const {
  const auto found = by_bytes_.find(spelling);
  if (found == by_bytes_.end()) return std::nullopt;
  return found->second;
}

}  // namespace pagewise::text
