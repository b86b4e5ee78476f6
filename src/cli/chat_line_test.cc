// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_line.h"

#include <gtest/gtest.h>

#include <string>

namespace pagewise::cli {
namespace {

ChatLine parsed(std::string_view line) {
  const Result<ChatLine> result = parse_chat_line(line);
  EXPECT_TRUE(result.has_value()) << line;
  return result.has_value() ? *result : ChatLine{};
}

TEST(ChatLine, AMessageIsKeptButForWhiteSpaceAtItsEnds) {
  EXPECT_EQ(parsed("hello"), (ChatLine{ChatAction::kMessage, "hello"}));
  EXPECT_EQ(parsed("  two  words \t\r"), (ChatLine{ChatAction::kMessage, "two  words"}));
  EXPECT_EQ(parsed("first\n\n  second\n"), (ChatLine{ChatAction::kMessage, "first\n\n  second"}));
  EXPECT_EQ(parsed("1/2 is a half"), (ChatLine{ChatAction::kMessage, "1/2 is a half"}));
}

TEST(ChatLine, AnEmptyLineIsNothing) {
  for (const std::string_view line : {"", " ", "\t \r", "\n\n"}) {
    EXPECT_EQ(parsed(line).action, ChatAction::kNothing);
  }
}

TEST(ChatLine, CommandsAreFoundByTheirWholeName) {
  EXPECT_EQ(parsed("/help").action, ChatAction::kHelp);
  EXPECT_EQ(parsed("/?").action, ChatAction::kHelp);
  EXPECT_EQ(parsed("  /reset ").action, ChatAction::kReset);
  EXPECT_EQ(parsed("/undo").action, ChatAction::kUndo);
  EXPECT_EQ(parsed("/stats").action, ChatAction::kStats);
  EXPECT_EQ(parsed("/exit").action, ChatAction::kExit);
  EXPECT_EQ(parsed("/quit").action, ChatAction::kExit);
  for (const std::string_view line :
       {"/", "/re", "/resets", "/RESET", "/etc/passwd", "/reset now"}) {
    const Result<ChatLine> result = parse_chat_line(line);
    ASSERT_FALSE(result.has_value()) << line;
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
    EXPECT_NE(result.error().message.find(line.substr(0, line.find(' '))), std::string::npos);
  }
}

TEST(ChatLine, SystemShowsSetsAndClears) {
  EXPECT_EQ(parsed("/system"), (ChatLine{ChatAction::kShowSystem, ""}));
  EXPECT_EQ(parsed("/system  Be brief. "), (ChatLine{ChatAction::kSetSystem, "Be brief."}));
  EXPECT_EQ(parsed("/system\nBe\nbrief."), (ChatLine{ChatAction::kSetSystem, "Be\nbrief."}));
  EXPECT_EQ(parsed("/system \"\""), (ChatLine{ChatAction::kSetSystem, ""}));
}

TEST(ChatLine, TwoSlashesBeginAMessageWithOne) {
  EXPECT_EQ(parsed("//etc/passwd"), (ChatLine{ChatAction::kMessage, "/etc/passwd"}));
  EXPECT_EQ(parsed("// a comment"), (ChatLine{ChatAction::kMessage, "/ a comment"}));
}

TEST(ChatLine, BytesThatAreNoUtf8BecomeReplacementCharacters) {
  EXPECT_EQ(parsed("a\xFF"
                   "b\xC3")
                .text,
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
  const Result<ChatLine> result = parse_chat_line("/\xFF\xC3");
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("/\xEF\xBF\xBD\xEF\xBF\xBD"), std::string::npos);
}

TEST(ChatLine, HelpNamesEveryCommand) {
  for (const std::string_view name : {"/system", "/undo", "/reset", "/stats", "/exit", "//"}) {
    EXPECT_NE(chat_help().find(name), std::string_view::npos) << name;
  }
}

}  // namespace
}  // namespace pagewise::cli
