// SPDX-License-Identifier: Apache-2.0
// JSON schemas of strangers, and a model that says anything: a schema is followed or refused in one
// line; the mask never lies; whatever is written on the way is JSON at its end. An input is a
// schema, and behind the first line's end the choices of tokens.
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "fuzz/fuzz.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "grammar/vocabulary.h"

namespace pagewise::grammar {
namespace {

using fuzz::Input;

// An answer that has not ended by then is given up; compiling and this many masks, in seconds.
constexpr int kStepsMax = 80;
constexpr double kSecondsMax = 20;

/// Every byte, and pieces across the seams of JSON.
std::vector<std::string> tokens() {
  std::vector<std::string> out;
  for (int byte = 0; byte < 256; ++byte) out.emplace_back(1, static_cast<char>(byte));
  for (const char* piece : {"{\"",
                            "\":",
                            "\": \"",
                            "\",\"",
                            "\"}",
                            "\"]",
                            "}}",
                            "]]",
                            "},{\"",
                            "null",
                            "true",
                            "fal",
                            "12",
                            "-1.",
                            "e5",
                            "\\n",
                            "\\u",
                            "\\ud83d",
                            "\xC3\xA9",
                            "\xF0\x9F",
                            "\x98\x80",
                            "abc",
                            "a\":",
                            " \"",
                            "  ",
                            "name",
                            "aaaaaaaaaaaaaaaaaaaaaaaa",
                            "2026-",
                            "\xE2\x82\xAC\","}) {
    out.emplace_back(piece);
  }
  return out;
}

const Vocabulary& vocabulary() {
  static const std::vector<std::string> spellings = tokens();
  static const Vocabulary made = [] {
    std::vector<TokenText> texts;
    for (const std::string& token : spellings) texts.push_back({token, false});
    return Vocabulary(texts);
  }();
  return made;
}

void write_answer(const std::shared_ptr<const Grammar>& grammar, Input& in) {
  // With little room, so that states are often made anew.
  Matcher matcher(grammar, in.flag() ? 4096 : kMatcherBytes);
  std::string output;
  std::vector<uint64_t> mask(vocabulary().mask_words());
  for (int step = 0; step < kStepsMax; ++step) {
    if (matcher.may_end()) {
      FUZZ_CHECK(parse_json(output).has_value(), "may end, but is no JSON: {}", output);
    }
    allowed(matcher, vocabulary(), mask);
    std::vector<TokenId> choices;
    for (uint32_t i = 0; i < vocabulary().size(); ++i) {
      if ((mask[i / 64] >> (i % 64) & 1) != 0) choices.push_back(TokenId(static_cast<int32_t>(i)));
    }
    FUZZ_CHECK(choices.empty() == matcher.must_end(), "{} tokens after {}", choices.size(), output);
    if (choices.empty()) return;
    // A token that is not allowed is not accepted.
    const TokenId other(static_cast<int32_t>(in.below(vocabulary().size())));
    const auto bit = static_cast<std::size_t>(other.value);
    Matcher copy = matcher;
    const bool accepted =
        !vocabulary().spelling(other).empty() && copy.accept(vocabulary().spelling(other));
    FUZZ_CHECK(accepted == ((mask[bit / 64] >> (bit % 64) & 1) != 0), "token {} after {}", bit,
               output);
    const std::string_view bytes = vocabulary().spelling(choices[in.below(choices.size())]);
    output += bytes;
    FUZZ_CHECK(matcher.accept(bytes), "allowed and not accepted: {}", output);
  }
}

}  // namespace
}  // namespace pagewise::grammar

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace pagewise;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t line = std::min(bytes.find('\n'), bytes.size());
  const auto schema = parse_json(bytes.substr(0, line));
  if (!schema) return 0;
  const fuzz::CpuBound bound(grammar::kSecondsMax);
  const auto grammar = grammar::grammar_of_schema(*schema, "schema");
  if (!grammar) {
    const Error& error = grammar.error();
    FUZZ_CHECK(fuzz::is_one_line(error.message), "'{}'", error.message);
    FUZZ_CHECK(error.message.starts_with("schema"), "names no place: {}", error.message);
    FUZZ_CHECK(error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kUnsupported,
               "{}", error.message);
  } else {
    fuzz::Input in(bytes.substr(std::min(line + 1, bytes.size())));
    grammar::write_answer(*grammar, in);
  }
  bound.check();
  return 0;
}
