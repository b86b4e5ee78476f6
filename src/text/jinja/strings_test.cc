// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/strings.h"

#include <gtest/gtest.h>

#include <string>

#include "base/prng.h"
#include "text/test_vocabulary.h"

namespace pagewise::text::jinja {
namespace {

TEST(Strings, FindsAsAPlainSearchDoesWhateverTheLengths) {
  const uint64_t seed = testing::test_seed();
  SCOPED_TRACE(::testing::Message() << "PAGEWISE_SEED=" << seed);
  Prng prng(seed);
  const auto random_text = [&](uint64_t length) {
    std::string text;
    for (; length > 0; --length) text.push_back(prng.below(8) == 0 ? 'b' : 'a');
    return text;
  };
  int found = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::string text = random_text(prng.below(200));
    const std::size_t begin = text.empty() ? 0 : prng.below(text.size());
    std::string wanted = text.substr(begin, 1 + prng.below(40));
    if (wanted.empty() || prng.below(4) == 0) wanted = random_text(1 + prng.below(30));
    const std::size_t from = prng.below(text.size() + 2);
    const std::size_t expected = text.find(wanted, from);
    found += expected != std::string::npos ? 1 : 0;
    ASSERT_EQ(find_text(text, wanted, from), expected) << text << " " << wanted << " " << from;
  }
  EXPECT_GT(found, 200);
}

TEST(Strings, CountsEveryKindOfWhiteSpaceOnBothSides) {
  for (const std::string space : {" ", "\t\n\v\f\r", "\x1C\x1F", "\u0085", "\u00A0", "\u1680",
                                  "\u2003\u200A", "\u2028\u2029", "\u202F", "\u205F", "\u3000"}) {
    EXPECT_EQ(leading_space(space + "x" + space), space.size());
    EXPECT_EQ(trailing_space(space + "x" + space), space.size());
    EXPECT_EQ(trailing_space(space), space.size());
  }
  // No white space: zero-width ones, the byte order mark, and bytes that only look like the end of
  // one.
  for (const std::string other : {"\u200B", "\uFEFF", "\u180E", "\x80", "\xA0", "\xE3\x80"}) {
    EXPECT_EQ(leading_space(other), 0u);
    EXPECT_EQ(trailing_space(other), 0u);
  }
}

TEST(Strings, CountsCharactersAndTakesIllFormedBytesOneByOne) {
  EXPECT_EQ(character_count("a\u00E9\u4E2D\U0001F642"), 4u);
  EXPECT_EQ(character_count("\xFF\xE4\xB8"
                            "a"),
            4u);
  EXPECT_EQ(character_offsets("\u00E9x"), (std::vector<uint32_t>{0, 2, 3}));
}

}  // namespace
}  // namespace pagewise::text::jinja
