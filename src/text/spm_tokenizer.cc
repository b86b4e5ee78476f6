// SPDX-License-Identifier: Apache-2.0
#include "text/spm_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <functional>
#include <utility>

#include "base/hash.h"
#include "text/utf8.h"

namespace pagewise::text {

namespace {

constexpr std::string_view kSpaceMark = "\u2581";
constexpr uint32_t kNoRank = UINT32_MAX;

/// Appends `text` with each U+2581 as a space.
void append_with_spaces(std::string_view text, std::string& out) {
  while (true) {
    const std::size_t mark = text.find(kSpaceMark);
    out += text.substr(0, mark);
    if (mark == std::string_view::npos) return;
    out += ' ';
    text.remove_prefix(mark + kSpaceMark.size());
  }
}

uint64_t hash_of(std::string_view text) {
  return xxh3(std::as_bytes(std::span(text.data(), text.size())));
}

bool holds_space_behind_another(std::string_view bytes) {
  for (std::size_t i = 1; i < bytes.size(); ++i) {
    if (bytes[i] == ' ' && bytes[i - 1] != ' ') return true;
  }
  return false;
}

}  // namespace

/// Owns the buffers of one encode call.
struct SpmTokenizer::Buffers final : Output {
  struct Symbol {
    std::string_view bytes;  // in `normal`
    uint32_t source = 0;     // bytes of the text that it stands for
    int32_t id = -1;         // -1: no token
    uint32_t previous = 0;
    uint32_t next = 0;
    uint32_t rank = kNoRank;  // of the merge with the next symbol
    int32_t result = -1;      // what that merge gives
  };
  std::string normal;           // the text as the vocabulary spells it, spaces for U+2581
  std::vector<Symbol> symbols;  // of one word
  std::vector<uint64_t> heap;   // rank, then place
};

Result<std::unique_ptr<Tokenizer>> SpmTokenizer::create(const SpmVocabulary& vocabulary) {
  auto result = std::make_unique<SpmTokenizer>();
  result->add_space_prefix_ = vocabulary.add_space_prefix;
  PW_RETURN_IF_ERROR(result->load_types(vocabulary));
  PW_RETURN_IF_ERROR(result->load_scores(vocabulary));
  PW_RETURN_IF_ERROR(result->load_tokens(vocabulary));
  PW_RETURN_IF_ERROR(result->load_special(vocabulary, true));
  return std::unique_ptr<Tokenizer>(std::move(result));
}

Status SpmTokenizer::load_scores(const SpmVocabulary& vocabulary) {
  const std::vector<float>& scores = vocabulary.scores;
  if (scores.size() != vocab_size()) {
    return {ErrorCode::kMalformed, fmt::format("tokenizer.ggml.scores: {} entries for {} tokens",
                                               scores.size(), vocab_size())};
  }
  std::vector<uint32_t> order(scores.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    if (std::isnan(scores[i])) {
      return {ErrorCode::kMalformed,
              fmt::format("tokenizer.ggml.scores: entry {} is no number", i)};
    }
  }
  const auto better = [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; };
  // Files mostly list tokens from the best score to the worst, with a few exceptions in front.
  if (!std::is_sorted(order.begin(), order.end(), better)) {
    std::sort(order.begin(), order.end(), better);
  }
  ranks_.resize(scores.size());
  uint32_t rank = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && scores[order[i]] != scores[order[i - 1]]) ++rank;
    ranks_[order[i]] = rank;
  }
  return Status::ok();
}

Status SpmTokenizer::load_byte(std::string_view spelling, std::size_t token) {
  unsigned byte = 0;
  const bool framed =
      spelling.size() == 6 && spelling.starts_with("<0x") && spelling.ends_with('>');
  const char* end = framed ? spelling.data() + 5 : nullptr;
  if (!framed || std::from_chars(spelling.data() + 3, end, byte, 16).ptr != end) {
    return {
        ErrorCode::kMalformed,
        fmt::format("tokenizer.ggml.tokens: entry {} is of type byte and not of the form <0xNN>",
                    token)};
  }
  const char value = static_cast<char>(byte);
  add_bytes(std::string_view(&value, 1));
  if (byte_ids_[byte] < 0) byte_ids_[byte] = static_cast<int32_t>(token);
  return Status::ok();
}

Status SpmTokenizer::load_tokens(const SpmVocabulary& vocabulary) {
  std::fill(std::begin(byte_ids_), std::end(byte_ids_), -1);
  pieces_.resize(std::bit_ceil(std::size_t{2} * vocab_size()));
  std::string bytes;
  for (std::size_t i = 0; i < vocab_size(); ++i) {
    const std::string_view spelling = vocabulary.tokens[i];
    const TokenType type = type_of(i);
    if (type == TokenType::kByte) {
      PW_RETURN_IF_ERROR(load_byte(spelling, i));
      continue;
    }
    bytes.clear();
    if (type == TokenType::kControl || type == TokenType::kUnknown) {
      bytes = spelling;
    } else {
      append_with_spaces(spelling, bytes);
    }
    add_bytes(bytes);
    const TokenId token(static_cast<int32_t>(i));
    if (is_special(type)) special_ids_.try_emplace(token_bytes(token), token);
    // Text never merges into a control token (C16), nor into an added token, which is recognised by
    // its whole spelling; an added token of one character is that character's.
    const bool normal = type == TokenType::kNormal || type == TokenType::kUnused;
    const bool one_character = type == TokenType::kUserDefined && !bytes.empty() &&
                               utf8_unit(bytes).length == bytes.size();
    // The vocabulary spells a space as U+2581: a piece with a bare one is out of any text's reach.
    if ((normal && spelling.find(' ') == std::string_view::npos && !bytes.empty()) ||
        one_character) {
      insert(token);
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_ids_[byte] >= 0) continue;
    return {ErrorCode::kMalformed,
            fmt::format("tokenizer.ggml.tokens: no token <0x{:02X}> of type byte", byte)};
  }
  return Status::ok();
}

void SpmTokenizer::insert(TokenId token) {
  const std::string_view bytes = token_bytes(token);
  if (find_piece(bytes) >= 0) return;
  const uint64_t hash = hash_of(bytes);
  std::size_t at = hash & (pieces_.size() - 1);
  while (pieces_[at].id >= 0) at = (at + 1) & (pieces_.size() - 1);
  pieces_[at] = {static_cast<uint32_t>(hash >> 32), token.value};
  piece_bytes_max_ = std::max(piece_bytes_max_, bytes.size());
  words_apart_ = words_apart_ && !holds_space_behind_another(bytes);
}

int32_t SpmTokenizer::find_piece(std::string_view bytes) const {
  if (bytes.size() > piece_bytes_max_) return -1;
  const uint64_t hash = hash_of(bytes);
  std::size_t at = hash & (pieces_.size() - 1);
  while (pieces_[at].id >= 0) {
    const Slot& slot = pieces_[at];
    if (slot.hash == static_cast<uint32_t>(hash >> 32) && token_bytes(TokenId(slot.id)) == bytes) {
      return slot.id;
    }
    at = (at + 1) & (pieces_.size() - 1);
  }
  return -1;
}

std::optional<TokenId> SpmTokenizer::find(std::string_view spelling) const {
  if (const auto special = special_ids_.find(spelling); special != special_ids_.end()) {
    return special->second;
  }
  int32_t id = find_piece(spelling);
  if (id < 0 && spelling.size() == 1) id = byte_ids_[static_cast<unsigned char>(spelling[0])];
  return id >= 0 ? std::optional(TokenId(id)) : std::nullopt;
}

std::unique_ptr<VocabularyTokenizer::Output> SpmTokenizer::make_output() const {
  return std::make_unique<Buffers>();
}

void SpmTokenizer::encode_ordinary(std::string_view text, uint32_t base, bool at_start,
                                   Output& output) const {
  auto& out = static_cast<Buffers&>(output);
  out.normal.clear();
  const bool prefix = add_space_prefix_ && at_start && !text.empty();
  if (prefix) out.normal += ' ';
  append_with_spaces(text, out.normal);
  const std::string_view normal = out.normal;
  uint32_t end = base;
  std::size_t source = 0;  // bytes of `text` that are done
  out.symbols.clear();
  for (std::size_t at = 0; at < normal.size();) {
    const bool word_starts = at > 0 && normal[at] == ' ' && normal[at - 1] != ' ';
    if (word_starts && words_apart_) encode_word(end, out);
    const uint32_t length = utf8_unit(normal.substr(at)).length;
    Buffers::Symbol& symbol = out.symbols.emplace_back();
    symbol.bytes = normal.substr(at, length);
    if (at > 0 || !prefix) {
      const bool mark = normal[at] == ' ' && text.substr(source).starts_with(kSpaceMark);
      symbol.source = mark ? static_cast<uint32_t>(kSpaceMark.size()) : length;
    }
    source += symbol.source;
    at += length;
  }
  encode_word(end, out);
}

/// Merges and takes the symbols. `end`: the offset of the word's start, then of its end.
void SpmTokenizer::encode_word(uint32_t& end, Buffers& out) const {
  merge(out);
  const auto count = static_cast<uint32_t>(out.symbols.size());
  for (uint32_t i = 0; i < count; i = out.symbols[i].next) {
    const Buffers::Symbol& symbol = out.symbols[i];
    if (symbol.id >= 0) {
      end += symbol.source;
      out.add(TokenId(symbol.id), end);
      continue;
    }
    for (std::size_t byte = 0; byte < symbol.bytes.size(); ++byte) {
      // Each byte is its own; only a space can stand for more bytes or fewer than it has.
      end += symbol.source == symbol.bytes.size() ? 1 : symbol.source;
      out.add(TokenId(byte_ids_[static_cast<unsigned char>(symbol.bytes[byte])]), end);
    }
  }
  out.symbols.clear();
}

void SpmTokenizer::merge(Buffers& out) const {
  std::vector<Buffers::Symbol>& symbols = out.symbols;
  const auto count = static_cast<uint32_t>(symbols.size());
  const auto later = std::greater<uint64_t>();
  out.heap.clear();
  // The merge of the symbol at `at` with the next; symbols that are gone keep no rank.
  const auto refresh = [&](uint32_t at) {
    Buffers::Symbol& symbol = symbols[at];
    symbol.rank = kNoRank;
    if (symbol.next >= count) return;
    const std::string_view joined(symbol.bytes.data(),
                                  symbol.bytes.size() + symbols[symbol.next].bytes.size());
    symbol.result = find_piece(joined);
    if (symbol.result < 0) return;
    symbol.rank = ranks_[static_cast<std::size_t>(symbol.result)];
    out.heap.push_back(static_cast<uint64_t>(symbol.rank) << 32 | at);
  };
  for (uint32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;  // of the first: UINT32_MAX, never followed
    symbols[i].next = i + 1;      // of the last: count
    symbols[i].id = find_piece(symbols[i].bytes);
  }
  for (uint32_t i = 0; i < count; ++i) refresh(i);
  std::make_heap(out.heap.begin(), out.heap.end(), later);
  const auto refresh_and_sift = [&](uint32_t at) {
    const std::size_t size = out.heap.size();
    refresh(at);
    if (out.heap.size() > size) std::push_heap(out.heap.begin(), out.heap.end(), later);
  };
  while (!out.heap.empty()) {
    std::pop_heap(out.heap.begin(), out.heap.end(), later);
    const uint64_t entry = out.heap.back();
    out.heap.pop_back();
    const auto at = static_cast<uint32_t>(entry);
    Buffers::Symbol& left = symbols[at];
    // Stale when the place has another rank by now; with the same one it is that merge's turn.
    if (left.rank != static_cast<uint32_t>(entry >> 32)) continue;
    Buffers::Symbol& right = symbols[left.next];
    left.id = left.result;
    left.bytes = {left.bytes.data(), left.bytes.size() + right.bytes.size()};
    left.source += right.source;
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next < count) symbols[left.next].previous = at;
    refresh_and_sift(at);
    if (at != 0) refresh_and_sift(left.previous);
  }
}

}  // namespace pagewise::text
