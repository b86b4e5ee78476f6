// SPDX-License-Identifier: Apache-2.0
#include "engine/choice_output.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pagewise::engine {

ChoiceOutput::ChoiceOutput(const text::Tokenizer& tokenizer, const std::vector<std::string>& stops,
                           bool want_control_text, std::string_view text_before,
                           std::vector<TokenId> control_text)
    : tokenizer_(tokenizer),
      want_control_text_(want_control_text),
      control_text_(std::move(control_text)) {
  if (!stops.empty()) matcher_.emplace(stops);
  assembler_.push(text_before, assembled_);
  PW_CHECK(assembled_.empty());  // nothing but the beginning of a character
}

bool ChoiceOutput::gives_text(TokenId token) const {
  return want_control_text_ || !tokenizer_.is_control(token) ||
         std::find(control_text_.begin(), control_text_.end(), token) != control_text_.end();
}

std::optional<std::size_t> ChoiceOutput::push(sampling::Sampled&& sampled) {
  PW_CHECK(!stopped_ && !finished_);
  const TokenId token = sampled.token;
  const std::string_view bytes = tokenizer_.token_bytes(token);
  Held held{TokenOutput{std::move(sampled), std::string(bytes)}, assembled_size_, 0};
  assembled_.clear();
  if (gives_text(token)) assembler_.push(bytes, assembled_);
  assembled_size_ += assembled_.size();
  // Bytes that still wait for the rest of their character are final with the next byte that comes
  // out.
  held.end = assembler_.empty() ? assembled_size_ : assembled_size_ + 1;
  held_.push_back(std::move(held));
  return match(assembled_);
}

void ChoiceOutput::finish() {
  PW_CHECK(!stopped_ && !finished_);
  assembler_.finish();
  finished_ = true;
  if (matcher_) {
    const std::size_t before = text_.size();
    matcher_->finish(text_);
    released_size_ += text_.size() - before;
  }
}

std::optional<std::size_t> ChoiceOutput::match(std::string_view text) {
  if (!matcher_) {
    text_.append(text);
    released_size_ += text.size();
    return std::nullopt;
  }
  const std::size_t before = text_.size();
  const std::optional<std::size_t> stop = matcher_->push(text, text_);
  released_size_ += text_.size() - before;
  stopped_ = stop.has_value();
  return stop;
}

bool ChoiceOutput::take(Delta& delta) {
  delta.text = std::move(text_);
  text_.clear();
  delta.tokens.clear();
  while (!held_.empty()) {
    // After a stop string a token belongs to the answer when some of its text does; after the end,
    // every token does.
    const Held& held = held_.front();
    const bool final =
        finished_ || held.end <= released_size_ || (stopped_ && held.begin < released_size_);
    if (!final) break;
    delta.tokens.push_back(std::move(held_.front().output));
    held_.pop_front();
  }
  if (stopped_) held_.clear();
  return !delta.text.empty() || !delta.tokens.empty();
}

}  // namespace pagewise::engine
