// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/lexer.h"

#include <charconv>
#include <utility>

#include "gguf/gguf.h"
#include "text/jinja/strings.h"
#include "text/utf8.h"

namespace pagewise::text::jinja {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out.push_back('\n');
    }
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (!failed_ && at_ < source_.size()) lex_text();
    if (!failed_) add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  /// Text up to the next tag, and the tag.
  void lex_text() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 == source_.size()) {
        add_data(std::string_view(source_).substr(at_));
        at_ = source_.size();
        return;
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    const char tag_kind = source_[tag + 1];
    std::string_view data = std::string_view(source_).substr(at_, tag - at_);
    const std::size_t data_size = data.size();
    at_ = tag + 2;
    const char sign = at_ < source_.size() ? source_[at_] : '\0';
    if (sign == '-' || sign == '+') ++at_;
    if (sign == '-') {
      data = data.substr(0, data.size() - trailing_space(data));
    } else if (sign != '+' && tag_kind != '{') {
      data = without_indent(data);
    }
    add_data(data);
    // Lines inside stripped white space count too.
    line_ += count_lines(std::string_view(source_).substr(tag - data_size, data_size)) -
             count_lines(data);
    if (tag_kind == '#') {
      lex_comment();
    } else if (tag_kind == '%' && lex_raw()) {
      return;
    } else {
      lex_expression(tag_kind == '%');
    }
  }

  /// lstrip_blocks: white space between the start of the line and a block tag goes.
  std::string_view without_indent(std::string_view data) const {
    const std::size_t newline = data.rfind('\n');
    if (newline == std::string_view::npos && !line_starting_) return data;
    const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if (trailing_space(data) >= data.size() - line) return data.substr(0, line);
    return data;
  }

  /// The end of a tag that has nothing but `word` in it, from `at` behind its opening on; npos for
  /// any other tag. `sign`: the one before the '%}'.
  std::size_t end_of_tag(std::size_t at, std::string_view word, char& sign) const {
    const auto skip_space = [&] {
      while (at < source_.size() && is_space(source_[at])) ++at;
    };
    skip_space();
    if (!std::string_view(source_).substr(at).starts_with(word)) return std::string::npos;
    at += word.size();
    skip_space();
    sign = at < source_.size() ? source_[at] : '\0';
    if (sign == '-' || sign == '+') ++at;
    if (!std::string_view(source_).substr(at).starts_with("%}")) return std::string::npos;
    return at + 2;
  }

  /// {% raw %} ... {% endraw %}: text, whatever tags stand in it. False when it is another tag.
  bool lex_raw() {
    char sign = '\0';
    const std::size_t begin = end_of_tag(at_, "raw", sign);
    if (begin == std::string::npos) return false;
    line_ += count_lines(std::string_view(source_).substr(at_, begin - at_));
    at_ = begin;
    close_tag(sign, false);  // unlike other tags' ends, it keeps the newline
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      const char before = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const bool has_sign = before == '-' || before == '+';
      const std::size_t end = end_of_tag(tag + (has_sign ? 3 : 2), "endraw", sign);
      if (end == std::string::npos) continue;
      std::string_view data = std::string_view(source_).substr(at_, tag - at_);
      if (before == '-') {
        data = data.substr(0, data.size() - trailing_space(data));
      } else if (before != '+') {
        data = without_indent(data);
      }
      const uint32_t lines = count_lines(std::string_view(source_).substr(at_, end - at_));
      const uint32_t shown = count_lines(data);
      add_data(data);
      line_ += lines - shown;
      at_ = end;
      close_tag(sign, true);
      return true;
    }
    fail("a {% raw %} has no {% endraw %}");
    return true;
  }

  void lex_comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return fail("a comment has no end");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    line_ += count_lines(std::string_view(source_).substr(at_, end - at_));
    at_ = end + 2;
    close_tag(sign, true);
  }

  /// What follows an end tag: all white space behind a '-', or the one newline of trim_blocks.
  void close_tag(char sign, bool trims_newline) {
    const std::size_t begin = at_;
    if (sign == '-') {
      at_ += leading_space(std::string_view(source_).substr(at_));
    } else if (sign != '+' && trims_newline && at_ < source_.size() && source_[at_] == '\n') {
      ++at_;
    }
    line_ += count_lines(std::string_view(source_).substr(begin, at_ - begin));
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  bool at(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }

  bool lex_end(bool block) {
    const std::string_view end = block ? "%}" : "}}";
    const char sign = source_[at_];
    const bool has_sign = sign == '-' || (block && sign == '+');
    if (!std::string_view(source_).substr(at_ + (has_sign ? 1 : 0)).starts_with(end)) return false;
    add(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
    at_ += end.size() + (has_sign ? 1 : 0);
    close_tag(has_sign ? sign : '\0', block);
    return true;
  }

  void lex_expression(bool block) {
    add(block ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
    std::string brackets;  // closing brackets that are due
    while (at_ < source_.size()) {
      const char c = source_[at_];
      if (is_space(c)) {
        line_ += c == '\n' ? 1 : 0;
        ++at_;
        continue;
      }
      if (brackets.empty() && lex_end(block)) return;
      if (is_digit(c)) {
        lex_number();
      } else if (is_name_start(c)) {
        const std::size_t begin = at_;
        while (at_ < source_.size() && (is_name_start(source_[at_]) || is_digit(source_[at_]))) {
          ++at_;
        }
        add(TokenKind::kName, source_.substr(begin, at_ - begin));
      } else if (c == '\'' || c == '"') {
        lex_string(c);
      } else {
        lex_operator(brackets);
      }
      if (failed_) return;
    }
    fail(block ? "a {% tag has no end" : "a {{ tag has no end");
  }

  void lex_number() {
    const std::size_t begin = at_;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    const auto digit_at = [&](std::size_t i) { return i < source_.size() && is_digit(source_[i]); };
    const auto digits = [&] {
      // One underscore may stand between two digits.
      while (digit_at(at_) || (at_ > begin && at_ < source_.size() && source_[at_] == '_' &&
                               is_digit(source_[at_ - 1]) && digit_at(at_ + 1))) {
        ++at_;
      }
    };
    if (!after_dot && lex_based_number()) return;
    digits();
    bool is_float = false;
    if (!after_dot && at_ < source_.size() && source_[at_] == '.' && digit_at(at_ + 1)) {
      is_float = true;
      ++at_;
      digits();
    }
    if (!after_dot && at_ < source_.size() && (source_[at_] == 'e' || source_[at_] == 'E')) {
      const std::size_t sign =
          at_ + 1 < source_.size() && (source_[at_ + 1] == '+' || source_[at_ + 1] == '-') ? 1 : 0;
      if (digit_at(at_ + 1 + sign)) {
        is_float = true;
        at_ += 1 + sign;
        digits();
      }
    }
    std::string number = source_.substr(begin, at_ - begin);
    std::erase(number, '_');
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, number);
  }

  /// 0x1F, 0o17, 0b101: handed on in decimal. False when it is no such number.
  bool lex_based_number() {
    if (source_[at_] != '0' || at_ + 2 >= source_.size()) return false;
    const char mark = static_cast<char>(source_[at_ + 1] | 0x20);
    const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (base == 0) return false;
    std::size_t end = at_ + 2;
    std::string digits;
    while (end < source_.size() &&
           (is_digit(source_[end]) || is_name_start(source_[end]) || source_[end] == '_')) {
      if (source_[end] != '_') digits += source_[end];
      ++end;
    }
    uint64_t value = 0;
    const char* last = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), last, value, base);
    if (digits.empty() || error != std::errc() || stop != last) return false;
    add(TokenKind::kInteger, std::to_string(value));
    at_ = end;
    return true;
  }

  void lex_string(char quote) {
    const uint32_t line = line_;
    std::string text;
    for (++at_; at_ < source_.size() && source_[at_] != quote;) {
      if (source_[at_] == '\\' && at_ + 1 < source_.size()) {
        ++at_;
        if (!lex_escape(text)) return fail("a string has a malformed \\x, \\u or \\U escape");
        continue;
      }
      line_ += source_[at_] == '\n' ? 1 : 0;
      text.push_back(source_[at_++]);
    }
    if (at_ >= source_.size()) return fail("a string has no end");
    ++at_;
    tokens_.push_back({TokenKind::kString, line, std::move(text)});
  }

  /// One escape behind its backslash; unknown ones keep the backslash.
  bool lex_escape(std::string& text) {
    const char c = source_[at_++];
    switch (c) {
      case 'n':
        text.push_back('\n');
        return true;
      case 't':
        text.push_back('\t');
        return true;
      case 'r':
        text.push_back('\r');
        return true;
      case 'a':
        text.push_back('\a');
        return true;
      case 'b':
        text.push_back('\b');
        return true;
      case 'f':
        text.push_back('\f');
        return true;
      case 'v':
        text.push_back('\v');
        return true;
      case '\\':
      case '\'':
      case '"':
        text.push_back(c);
        return true;
      case '\n':
        ++line_;
        return true;
      case 'x':
        return lex_code_point(2, text);
      case 'u':
        return lex_code_point(4, text);
      case 'U':
        return lex_code_point(8, text);
      default:
        break;
    }
    if (c >= '0' && c <= '7') {
      uint32_t value = static_cast<uint32_t>(c - '0');
      for (int i = 0; i < 2 && at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '7';
           ++i) {
        value = value * 8 + static_cast<uint32_t>(source_[at_++] - '0');
      }
      utf8_append(value, text);
      return true;
    }
    text.push_back('\\');
    text.push_back(c);
    return true;
  }

  bool lex_code_point(int digits, std::string& text) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = at_ < source_.size() ? source_[at_] : '\0';
      uint32_t digit = 0;
      if (is_digit(c)) {
        digit = static_cast<uint32_t>(c - '0');
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        digit = static_cast<uint32_t>((c | 0x20) - 'a') + 10;
      } else {
        return false;
      }
      value = value << 4 | digit;
      ++at_;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return false;
    utf8_append(value, text);
    return true;
  }

  void lex_operator(std::string& brackets) {
    constexpr std::string_view kPairs[] = {"//", "**", "==", "!=", "<=", ">="};
    for (const std::string_view pair : kPairs) {
      if (!at(pair)) continue;
      add(TokenKind::kOperator, std::string(pair));
      at_ += 2;
      return;
    }
    const char c = source_[at_];
    if (std::string_view("+-*/%~<>=.,:|()[]{}").find(c) == std::string_view::npos) {
      // The whole character, and in ASCII: the message is one line for people and for JSON.
      const std::string_view rest = std::string_view(source_).substr(at_);
      return fail("unexpected character '" +
                  gguf::printable(rest.substr(0, utf8_unit(rest).length)) + "'");
    }
    if (c == '(') brackets.push_back(')');
    if (c == '[') brackets.push_back(']');
    if (c == '{') brackets.push_back('}');
    if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) {
        return fail(std::string("unexpected '") + c + "'");
      }
      brackets.pop_back();
    }
    add(TokenKind::kOperator, std::string(1, c));
    ++at_;
  }

  static uint32_t count_lines(std::string_view text) {
    uint32_t lines = 0;
    for (const char c : text) lines += c == '\n' ? 1 : 0;
    return lines;
  }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }

  void add_data(std::string_view data) {
    if (data.empty()) return;
    add(TokenKind::kData, std::string(data));
    line_ += count_lines(data);
  }

  void fail(std::string message) {
    add(TokenKind::kError, std::move(message));
    failed_ = true;
  }

  const std::string source_;
  std::size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;  // did the last tag end with a newline?
  bool failed_ = false;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  std::string normalized = normalize_newlines(source);
  if (normalized.ends_with('\n')) normalized.pop_back();
  return Lexer(std::move(normalized)).run();
}

}  // namespace pagewise::text::jinja
