// SPDX-License-Identifier: Apache-2.0
// Tokenizers of both kinds with vocabularies that the input makes up: any text to tokens and back,
// with and without provenance; any ids to bytes.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzz.h"
#include "text/bpe_tokenizer.h"
#include "text/nfc.h"
#include "text/spm_tokenizer.h"
#include "text/test_vocabulary.h"
#include "text/tokenizer.h"

namespace pagewise::text {
namespace {

using fuzz::Input;

constexpr std::string_view kSpace = "\xe2\x96\x81";  // how SentencePiece spells one
constexpr std::string_view kSpecials[] = {"<s>",  "</s>", "<|im_end|>", "<think>", "  ",
                                          "\n\n", "<",    "<s",         "[EOT]",   "\xc3\xa9"};

/// A vocabulary and what the checks need to know of it.
struct Case {
  std::unique_ptr<Tokenizer> tokenizer;
  bool is_spm = false;
  bool complete = true;  // every byte has a token, so nothing is lost
  bool space_prefix = false;
  bool composes = false;  // NFC first: a text may come back as another

  bool exact(std::string_view text) const { return complete && !(composes && may_compose(text)); }
};

TokenType special_type(Input& in) {
  constexpr TokenType kTypes[] = {TokenType::kControl, TokenType::kUserDefined,
                                  TokenType::kUnknown};
  return in.pick(kTypes);
}

Case bpe_case(Input& in) {
  Case out;
  testing::TestVocabulary vocabulary;
  constexpr std::string_view kPre[] = {"gpt-2", "smollm", "llama-bpe", "qwen2", "default"};
  vocabulary.pre_tokenizer = std::string(in.pick(kPre));
  out.composes = vocabulary.pre_tokenizer == "qwen2";
  std::vector<std::string> pieces;  // what merges can take: all bytes, then what merges made
  for (uint64_t merges = in.below(16); merges > 0; --merges) {
    const auto part = [&] {
      const uint64_t which = in.below(256);
      if (which >= 128 && !pieces.empty()) return pieces[which % pieces.size()];
      return std::string(1, static_cast<char>(in.byte()));
    };
    const std::string left = part();
    const std::string right = part();
    if (left.size() + right.size() > 24) continue;
    vocabulary.merge(left, right);
    pieces.push_back(left + right);
  }
  for (uint64_t specials = in.below(5); specials > 0; --specials) {
    const std::string_view spelling = in.flag() ? in.pick(kSpecials) : in.text(6);
    if (!spelling.empty()) vocabulary.add(std::string(spelling), special_type(in));
  }
  if (in.byte() % 8 == 7) {
    out.complete = false;
    vocabulary.tokens[in.byte()] = testing::spelled("(none)");
  }
  auto created = BpeTokenizer::create(vocabulary.vocabulary());
  if (!created) {
    FUZZ_CHECK(fuzz::is_one_line(created.error().message), "{}", created.error().message);
    return out;
  }
  out.tokenizer = *std::move(created);
  return out;
}

Case spm_case(Input& in) {
  Case out;
  out.is_spm = true;
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<TokenType> types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl};
  std::vector<float> scores(3, 0.0f);
  const auto add = [&](std::string token, TokenType type, float score) {
    tokens.push_back(std::move(token));
    types.push_back(type);
    scores.push_back(score);
  };
  const int missing = in.byte() % 8 == 7 ? in.byte() : -1;
  out.complete = missing < 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (byte != missing) add(fmt::format("<0x{:02X}>", byte), TokenType::kByte, 0);
  }
  std::vector<std::string> pieces = {std::string(kSpace), "a", "b", "\xc3\xa9"};
  for (const std::string& piece : pieces) add(piece, TokenType::kNormal, -50);
  for (uint64_t more = in.below(20); more > 0; --more) {
    const std::string left = pieces[in.below(256) % pieces.size()];
    const std::string right =
        in.flag() ? std::string(in.text(4)) : pieces[in.below(256) % pieces.size()];
    if (left.size() + right.size() > 24) continue;
    pieces.push_back(left + right);
    add(pieces.back(), TokenType::kNormal, -static_cast<float>(in.below(40)));
  }
  for (uint64_t specials = in.below(4); specials > 0; --specials) {
    const std::string_view spelling = in.flag() ? in.pick(kSpecials) : in.text(6);
    if (!spelling.empty()) add(std::string(spelling), special_type(in), 0);
  }
  SpmVocabulary vocabulary;
  vocabulary.tokens.assign(tokens.begin(), tokens.end());
  vocabulary.types = types;
  vocabulary.scores = scores;
  vocabulary.add_space_prefix = out.space_prefix = in.flag();
  auto created = SpmTokenizer::create(vocabulary);
  if (!created) {
    FUZZ_CHECK(fuzz::is_one_line(created.error().message), "{}", created.error().message);
    return out;
  }
  out.tokenizer = *std::move(created);
  return out;
}

/// What a text reads as: SentencePiece has one sign for U+2581 and a space.
std::string read_as(const Case& c, std::string_view text) {
  std::string out(text);
  for (std::size_t at = 0; c.is_spm && (at = out.find(kSpace, at)) != std::string::npos; ++at) {
    out.replace(at, kSpace.size(), " ");
  }
  return out;
}

void check_ids(const Case& c, std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    FUZZ_CHECK(token.value >= 0 && static_cast<uint32_t>(token.value) < c.tokenizer->vocab_size(),
               "token {}", token.value);
  }
}

void check_plain(const Case& c, std::string_view text) {
  for (const bool special : {false, true}) {
    const std::vector<TokenId> tokens = c.tokenizer->encode(text, special);
    check_ids(c, tokens);
    for (const TokenId token : tokens) {
      FUZZ_CHECK(special || !c.tokenizer->is_control(token), "control token {} from plain text",
                 token.value);
    }
    if (!c.exact(text) || c.is_spm) continue;  // SentencePiece: check_ends() allows for its spaces
    FUZZ_CHECK(c.tokenizer->decode(tokens, true) == text, "the text does not come back");
  }
}

/// Each token stands for the bytes between two ends.
void check_ends(const Case& c, const ProvenancedText& input, const EncodedText& encoded) {
  FUZZ_CHECK(encoded.tokens.size() == encoded.ends.size(), "{} tokens, {} ends",
             encoded.tokens.size(), encoded.ends.size());
  check_ids(c, encoded.tokens);
  const bool exact = c.exact(input.text);
  uint32_t at = 0;
  for (std::size_t i = 0; i < encoded.tokens.size(); ++i) {
    const uint32_t end = encoded.ends[i];
    FUZZ_CHECK(end >= at && end <= input.text.size(), "end {} behind {}", end, at);
    if (exact) {
      const std::string found = read_as(c, std::string_view(input.text).substr(at, end - at));
      std::string_view bytes = c.tokenizer->token_bytes(encoded.tokens[i]);
      // A special token's spelling is its own; the others' U+2581 is a space.
      const bool verbatim = bytes == std::string_view(input.text).substr(at, end - at);
      if (c.space_prefix && bytes.size() == found.size() + 1 && bytes.starts_with(' ')) {
        bytes.remove_prefix(1);
      }
      FUZZ_CHECK(verbatim || bytes == found, "token {} is '{}', the text '{}'", i, bytes, found);
    }
    if (c.tokenizer->is_control(encoded.tokens[i])) {
      // C16: every character of its spelling is the template's. In front of it there may be bytes
      // that an incomplete vocabulary has no token for.
      const std::string_view spelling = c.tokenizer->token_bytes(encoded.tokens[i]);
      const auto begin = static_cast<uint32_t>(end - std::min<std::size_t>(spelling.size(), end));
      FUZZ_CHECK(begin >= at, "control token {} overlaps the token in front", i);
      for (const OriginSpan& span : input.spans) {
        FUZZ_CHECK(span.origin == kTemplateOrigin || span.end <= begin || span.begin >= end,
                   "content at {} to {} spells control token '{}' at {} to {}", span.begin,
                   span.end, spelling, begin, end);
      }
    }
    at = end;
  }
  if (c.complete) FUZZ_CHECK(at == input.text.size(), "{} of {} bytes", at, input.text.size());
  for (const uint32_t place : input.breaks) {
    const bool begins = place == 0 || std::find(encoded.ends.begin(), encoded.ends.end(), place) !=
                                          encoded.ends.end();
    FUZZ_CHECK(!c.complete || begins, "no token begins at the break {}", place);
  }
}

void check_provenanced(const Case& c, Input& in, std::string_view text) {
  ProvenancedText whole;
  whole.text = std::string(text);
  const auto size = static_cast<uint32_t>(text.size());
  if (size > 0) whole.spans = {{0, size, kTemplateOrigin}};
  const EncodedText trusted = c.tokenizer->encode(whole);
  check_ends(c, whole, trusted);
  FUZZ_CHECK(trusted.tokens == c.tokenizer->encode(text, true),
             "the template's text is not what special parsing gives");
  if (size > 0) whole.spans = {{0, size, 0}};
  const EncodedText content = c.tokenizer->encode(whole);
  check_ends(c, whole, content);

  ProvenancedText mixed;
  mixed.text = std::string(text);
  uint32_t at = 0;
  while (at < size) {
    const auto end = static_cast<uint32_t>(std::min<uint64_t>(size, at + in.between(1, 20)));
    const auto origin = static_cast<int32_t>(in.below(3)) - 1;
    if (!mixed.spans.empty() && mixed.spans.back().origin == origin) {
      mixed.spans.back().end = end;
    } else {
      // Where templates join two blocks: content, then text of theirs.
      if (!mixed.spans.empty() && origin == kTemplateOrigin && in.flag())
        mixed.breaks.push_back(at);
      mixed.spans.push_back({at, end, origin});
    }
    at = end;
  }
  check_ends(c, mixed, c.tokenizer->encode(mixed));
}

void check_decode(const Case& c, Input& in) {
  std::vector<TokenId> tokens;
  std::string expected;
  for (uint64_t count = in.below(20); count > 0; --count) {
    const TokenId token(static_cast<int32_t>(in.number(in.flag() ? 4 : 1)));
    tokens.push_back(token);
    expected += c.tokenizer->token_bytes(token);
    const bool known =
        token.value >= 0 && static_cast<uint32_t>(token.value) < c.tokenizer->vocab_size();
    FUZZ_CHECK(known || (c.tokenizer->token_bytes(token).empty() &&
                         !c.tokenizer->is_control(token) && !c.tokenizer->is_eog(token)),
               "token {} is none of {}", token.value, c.tokenizer->vocab_size());
  }
  FUZZ_CHECK(c.tokenizer->decode(tokens, true) == expected, "decoding is not token by token");
}

}  // namespace
}  // namespace pagewise::text

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace pagewise::text;
  pagewise::fuzz::Input in(data, size);
  const Case c = in.flag() ? spm_case(in) : bpe_case(in);
  if (c.tokenizer == nullptr) return 0;
  check_decode(c, in);
  const std::string_view spans = in.text(40);
  const std::string_view text = in.rest();
  check_plain(c, text);
  pagewise::fuzz::Input more(spans);
  check_provenanced(c, more, text);
  return 0;
}
