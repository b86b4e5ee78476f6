// SPDX-License-Identifier: Apache-2.0
#include "server/prompt.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "server/byte_tokenizer_for_tests.h"
#include "server/channels.h"

namespace pagewise::server {
namespace {

constexpr std::string_view kTemplate =
    "{% for message in messages %}[{{ message['role'] }}:{{ message['content'] }}]{% endfor %}"
    "{% if add_generation_prompt %}[assistant:{% endif %}";

class PromptTest : public testing::Test {
 protected:
  PromptTest() {
    auto compiled = text::ChatTemplate::compile(kTemplate);
    EXPECT_TRUE(compiled.has_value()) << compiled.error().message;
    template_ = std::move(*compiled);
    model_.name = std::string("model");
    model_.tokenizer = &byte_tokenizer();
    model_.chat_template = template_.get();
    model_.context_max = 1000;
  }

  std::unique_ptr<text::ChatTemplate> template_;
  ServedModel model_;
};

GenerationRequest two_turns() {
  GenerationRequest request;
  request.format = Format::kMessages;
  request.turns = {{"system", {{"SYS", engine::LeaseClass::k1h}}},
                   {"user", {{"one", std::nullopt}, {"two", engine::LeaseClass::k5m}}}};
  return request;
}

/// Fails the test when it is asked to tokenize.
class UnaskedTokenizer final : public ByteTokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, bool parse_special) const override {
    ADD_FAILURE() << "tokenized " << text.size() << " bytes";
    return ByteTokenizer::encode(text, parse_special);
  }
  text::EncodedText encode(const text::ProvenancedText& text) const override {
    ADD_FAILURE() << "tokenized " << text.text.size() << " bytes";
    return ByteTokenizer::encode(text);
  }
};

TEST_F(PromptTest, EndsEachBlockWhereItsLastCharacterEnds) {
  const auto prompt = build_prompt(two_turns(), model_);
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
  // [system:SYS][user:one\ntwo][assistant:
  ASSERT_EQ(prompt->positions.size(), 3U);
  EXPECT_EQ(prompt->positions[0].tokens, 11U);
  EXPECT_EQ(prompt->positions[1].tokens, 21U);
  EXPECT_EQ(prompt->positions[2].tokens, 25U);
  EXPECT_EQ(prompt->tokens.size(), 37U);
  ASSERT_EQ(prompt->markers.size(), 2U);
  EXPECT_EQ(prompt->markers[0].position, 0U);
  EXPECT_EQ(prompt->markers[0].lease, engine::LeaseClass::k1h);
  EXPECT_EQ(prompt->markers[1].position, 2U);
}

TEST_F(PromptTest, BeginsAMessageToTheClientWhereAnAnswerInChannelsIsHeldToAForm) {
  constexpr std::string_view kChannelTemplate =
      "{% for m in messages %}<|start|>{{ m.role }}"
      "{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>{{ m.content }}<|end|>"
      "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}";
  auto compiled = text::ChatTemplate::compile(kChannelTemplate);
  ASSERT_TRUE(compiled.has_value()) << compiled.error().message;
  model_.chat_template = compiled->get();
  model_.reasoning = detect_reasoning(**compiled);
  ASSERT_TRUE(model_.reasoning.channels);
  const auto made = [&](const GenerationRequest& request) {
    const auto prompt = build_prompt(request, model_);
    EXPECT_TRUE(prompt.has_value()) << prompt.error().message;
    std::string text;
    for (const TokenId token : prompt->tokens) text += byte_tokenizer().token_bytes(token);
    return std::pair(text.substr(text.rfind("<|start|>") + 9), prompt->answer_head);
  };
  using Ending = std::pair<std::string, std::string>;
  const std::string final_head(kFinalHead);
  GenerationRequest request = two_turns();
  EXPECT_EQ(made(request), Ending("assistant", "assistant"));
  // What a client writes is no mark, and no head.
  request.turns.back().blocks.back().text = "<|start|>x<|message|>";
  EXPECT_EQ(made(request), Ending("assistant", "assistant"));
  request.grammar = grammar::any_json_object();
  EXPECT_EQ(made(request), Ending(final_head, final_head));
  // A forced call has a header of its own.
  request.tool_choice.use = ToolUse::kRequired;
  EXPECT_EQ(made(request), Ending("assistant", "assistant"));
  request = two_turns();
  request.turns.push_back({"assistant", {{"So", std::nullopt}}});
  request.continue_last = true;
  EXPECT_EQ(made(request), Ending(final_head + "So", final_head));
}

TEST_F(PromptTest, GivesTheDateOnlyToATemplateThatWritesIt) {
  const std::string dated = "{{ strftime_now('%Y-%m-%d') }}" + std::string(kTemplate);
  auto compiled = text::ChatTemplate::compile(dated);
  ASSERT_TRUE(compiled.has_value()) << compiled.error().message;
  int asked = 0;
  model_.local_time_s = [&] {
    ++asked;
    return int64_t{86400};
  };
  ASSERT_TRUE(build_prompt(two_turns(), model_).has_value());
  EXPECT_EQ(asked, 0);
  model_.chat_template = compiled->get();
  const auto prompt = build_prompt(two_turns(), model_);
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(prompt->tokens.size(), 37U + 10U);  // "1970-01-02" in front
}

TEST_F(PromptTest, GivesTheTemplateWhatTheRequestSaysAndKeepsThePlacesOfTheBlocks) {
  const std::string source =
      "{% if thinking %}T{% endif %}{% for m in messages %}[{{ m.name | default('-') }}:{{ "
      "m.content "
      "}}:{{ m.reasoning_content }}]{% endfor %}{% for d in documents or [] %}#{{ d.t }}{% endfor "
      "%}"
      "{% if add_generation_prompt %}>{% endif %}";
  auto compiled = text::ChatTemplate::compile(source);
  ASSERT_TRUE(compiled.has_value()) << compiled.error().message;
  model_.chat_template = compiled->get();
  GenerationRequest request = two_turns();
  request.turns[0].fields = {{"name", "ab"}};
  request.turns[1].fields = {{"reasoning_content", "cde"}};
  request.chat.variables = {{"thinking", true}};
  request.chat.documents = {json::object{{"t", "doc"}}};
  const auto prompt = build_prompt(request, model_);
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
  std::string text;
  for (const TokenId token : prompt->tokens) text += static_cast<char>(token.value);
  EXPECT_EQ(text, "T[ab:SYS:][-:one\ntwo:cde]#doc>");
  ASSERT_EQ(prompt->positions.size(), 3U);
  EXPECT_EQ(prompt->positions[0].tokens, 8U);   // T[ab:SYS
  EXPECT_EQ(prompt->positions[1].tokens, 16U);  // :][-:one
  EXPECT_EQ(prompt->positions[2].tokens, 20U);
  request.chat.open_answer = false;
  EXPECT_EQ(build_prompt(request, model_)->tokens.size(), text.size() - 1);
}

TEST_F(PromptTest, RefusesDocumentsThatTheTemplateDoesNotRead) {
  GenerationRequest request = two_turns();
  request.chat.documents = {json::object{{"t", "doc"}}};
  const auto refused = build_prompt(request, model_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().param, "documents");
  EXPECT_NE(refused.error().message.find("does not read documents"), std::string::npos);
}

TEST_F(PromptTest, CountsLongTextsUpToABoundOrWhatTheContextHolds) {
  const UnaskedTokenizer tokenizer;
  model_.tokenizer = &tokenizer;
  model_.token_bytes_max = 16;
  GenerationRequest request = two_turns();
  request.turns.back().blocks.back().text.assign(kCountedBytesMax + 1, 'a');
  const auto refused = build_prompt_unchecked(request, model_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(http_status(refused.error(), Surface::kOpenAi), 400);
  EXPECT_NE(refused.error().message.find("at most 1048576"), std::string::npos)
      << refused.error().message;
  EXPECT_FALSE(check_countable(kCountedBytesMax, model_, "content").has_value());
  model_.context_max = 1 << 20;  // a context that might hold it
  EXPECT_FALSE(check_countable(kCountedBytesMax + 1, model_, "content").has_value());
  EXPECT_TRUE(check_countable((16U << 20) + 1, model_, "content").has_value());
}

TEST_F(PromptTest, CountsOnlyTokensThatEndInsideTheBlock) {
  text::ProvenancedText text;
  text.text = "abcdef";
  text.spans = {{0, 3, 0}, {3, 4, text::kTemplateOrigin}, {4, 6, 1}};
  // A token "cd" crosses the first block's end, so only "ab" is wholly before it.
  const auto positions = block_positions(text, {2, 4, 6}, 3);
  ASSERT_EQ(positions.size(), 3U);
  EXPECT_EQ(positions[0].tokens, 1U);
  EXPECT_EQ(positions[1].tokens, 3U);
  EXPECT_EQ(positions[2].tokens,
            3U);  // left nothing in the text: ends where the one before it ends
}

TEST_F(PromptTest, RefusesAPromptThatFillsTheContextWithBothNumbers) {  // C18
  model_.context_max = 37;
  const auto refused = build_prompt(two_turns(), model_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().message.starts_with("prompt is too long: 37 tokens > 36 maximum"));
  EXPECT_EQ(refused.error().code, "context_length_exceeded");
  model_.context_max = 38;
  EXPECT_TRUE(build_prompt(two_turns(), model_).has_value());
}

TEST_F(PromptTest, RefusesATextThatCannotFitWithoutTokenizingIt) {  // C18
  const UnaskedTokenizer tokenizer;
  model_.tokenizer = &tokenizer;
  model_.token_bytes_max = 4;
  model_.context_max = 100;
  GenerationRequest raw;
  raw.format = Format::kCompletion;
  raw.prompts = {std::string(397, 'a')};
  auto refused = build_prompt(raw, model_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("at least 100 tokens > 99 maximum"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(refused.error().code, "context_length_exceeded");
  GenerationRequest turns = two_turns();
  turns.turns.back().blocks.back().text.assign(1000, 'a');
  refused = build_prompt(turns, model_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().message.starts_with("prompt is too long: at least "))
      << refused.error().message;
}

TEST_F(PromptTest, TokenizesATextThatMightJustFit) {
  model_.token_bytes_max = 4;
  model_.context_max = 100;
  GenerationRequest raw;
  raw.format = Format::kCompletion;
  raw.prompts = {std::string(396, 'a')};
  const auto refused = build_prompt(raw, model_);  // tokens of one byte: too many, and counted
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("396 tokens > 99 maximum"), std::string::npos);
  EXPECT_EQ(refused.error().message.find("at least"), std::string::npos);
}

TEST_F(PromptTest, SaysThatAModelHasNoChatTemplate) {
  model_.chat_template = nullptr;
  const auto refused = build_prompt(two_turns(), model_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("no chat template"), std::string::npos);
}

TEST_F(PromptTest, AddsBosOnceAndMovesThePositions) {  // C15
  const ByteTokenizer with_bos(true);
  model_.tokenizer = &with_bos;
  const auto prompt = build_prompt(two_turns(), model_);
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(prompt->tokens[0], TokenId(256));
  EXPECT_NE(prompt->tokens[1], TokenId(256));
  EXPECT_EQ(prompt->positions[0].tokens, 12U);
  GenerationRequest raw;
  raw.format = Format::kCompletion;
  raw.prompts = {std::string("<s>ab")};
  EXPECT_EQ(build_prompt(raw, model_)->tokens.size(), 3U);
  raw.prompts = {std::string("ab")};
  EXPECT_EQ(build_prompt(raw, model_)->tokens.size(), 3U);
}

TEST_F(PromptTest, MakesADocumentStartOfAnEmptyPrompt) {
  GenerationRequest raw;
  raw.format = Format::kCompletion;
  raw.prompts = {std::string()};
  const auto prompt = build_prompt(raw, model_);
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(prompt->tokens, std::vector<TokenId>{TokenId(256)});
}

TEST_F(PromptTest, TellsWhereEachTokenOfARepeatedPromptEnds) {  // C20
  GenerationRequest raw;
  raw.format = Format::kCompletion;
  raw.echo = true;
  raw.prompts = {std::string("a\u00e9")};
  auto prompt = build_prompt(raw, model_);
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(prompt->echo.bytes, "a\u00e9");
  EXPECT_EQ(prompt->echo.token_ends, (std::vector<uint32_t>{1, 2, 3}));
  // BOS is a token of the prompt and no part of its text.
  const ByteTokenizer with_bos(true);
  model_.tokenizer = &with_bos;
  prompt = build_prompt(raw, model_);
  EXPECT_EQ(prompt->tokens.size(), 4U);
  EXPECT_EQ(prompt->echo.token_ends, (std::vector<uint32_t>{0, 1, 2, 3}));
  raw.prompts = {std::string()};
  prompt = build_prompt(raw, model_);
  EXPECT_EQ(prompt->tokens, std::vector<TokenId>{TokenId(256)});
  EXPECT_EQ(prompt->echo.token_ends, std::vector<uint32_t>{0});
  EXPECT_EQ(whole_characters(prompt->echo), "");
}

TEST_F(PromptTest, ShowsOfTokenIdsWhatTheySpellAndKeepsACutCharacterForTheAnswer) {
  GenerationRequest raw;
  raw.format = Format::kCompletion;
  raw.echo = true;
  raw.prompts = {std::vector<TokenId>{TokenId(256), TokenId('a'), TokenId(0xFF), TokenId(0xE2),
                                      TokenId(0x82)}};
  const auto prompt = build_prompt(raw, model_);
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(whole_characters(prompt->echo), "<s>a\uFFFD");
  EXPECT_EQ(cut_character(prompt->echo), "\xE2\x82");
  EXPECT_EQ(prompt->echo.token_ends, (std::vector<uint32_t>{3, 4, 5, 6, 7}));
}

TEST_F(PromptTest, NamesThePromptThatIsTooLongAmongSeveral) {
  model_.context_max = 10;
  GenerationRequest raw;
  raw.format = Format::kCompletion;
  raw.prompts = {std::string("ab"), std::string(20, 'a')};
  EXPECT_EQ(build_prompt(raw, model_, 0)->tokens.size(), 2U);
  const auto refused = build_prompt(raw, model_, 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().param, "prompt[1]");
  EXPECT_TRUE(refused.error().message.starts_with("prompt[1]: ")) << refused.error().message;
  EXPECT_EQ(refused.error().code, "context_length_exceeded");
}

}  // namespace
}  // namespace pagewise::server
