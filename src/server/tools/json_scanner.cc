// SPDX-License-Identifier: Apache-2.0
#include "server/tools/json_scanner.h"

#include "base/json.h"

namespace pagewise::server::tools {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

JsonScanner::State JsonScanner::push(char c) {
  if (state_ != State::kMore) return bad();
  switch (expect_) {
    case Expect::kString:
      return string_byte(c);
    case Expect::kNumber:
      return number_byte(c);
    case Expect::kLiteral:
      if (c != literal_.front()) return bad();
      literal_.remove_prefix(1);
      return literal_.empty() ? end_value() : state_;
    default:
      return is_space(c) ? state_ : structure(c);
  }
}

JsonScanner::State JsonScanner::structure(char c) {
  switch (expect_) {
    case Expect::kValueOrEnd:
      if (c == ']') {
        open_.pop_back();
        return end_value();
      }
      return begin_value(c);
    case Expect::kValue:
      return begin_value(c);
    case Expect::kKeyOrEnd:
      if (c == '}') {
        open_.pop_back();
        return end_value();
      }
      [[fallthrough]];
    case Expect::kKey:
      if (c != '"') return bad();
      key_ = true;
      expect_ = Expect::kString;
      return state_;
    case Expect::kColon:
      if (c != ':') return bad();
      expect_ = Expect::kValue;
      return state_;
    case Expect::kCommaOrEnd:
      if (c == ',') {
        expect_ = open_.back() == '{' ? Expect::kKey : Expect::kValue;
        return state_;
      }
      if (c != (open_.back() == '{' ? '}' : ']')) return bad();
      open_.pop_back();
      return end_value();
    default:
      return bad();
  }
}

JsonScanner::State JsonScanner::begin_value(char c) {
  if (c == '{' || c == '[') {
    if (open_.size() == kDepthMax) return bad();
    open_ += c;
    expect_ = c == '{' ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
    return state_;
  }
  if (c == '"') {
    key_ = false;
    expect_ = Expect::kString;
    return state_;
  }
  if (c == '-' || is_digit(c)) {
    expect_ = Expect::kNumber;
    digits_ = c == '-' ? Digits::kSign : c == '0' ? Digits::kZero : Digits::kInteger;
    return state_;
  }
  literal_ = c == 't' ? "true" : c == 'f' ? "false" : c == 'n' ? "null" : "";
  if (literal_.empty()) return bad();
  literal_.remove_prefix(1);
  expect_ = Expect::kLiteral;
  return state_;
}

JsonScanner::State JsonScanner::string_byte(char c) {
  if (hex_left_ > 0) {
    if (!is_hex(c)) return bad();
    --hex_left_;
    return state_;
  }
  if (escape_) {
    escape_ = false;
    if (c == 'u') {
      hex_left_ = 4;
      return state_;
    }
    return std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos ? bad() : state_;
  }
  if (static_cast<unsigned char>(c) < 0x20) return bad();
  if (c == '\\') escape_ = true;
  if (c != '"') return state_;
  if (!key_) return end_value();
  key_ = false;
  expect_ = Expect::kColon;
  return state_;
}

JsonScanner::State JsonScanner::number_byte(char c) {
  const bool digit = is_digit(c);
  const bool e = c == 'e' || c == 'E';
  switch (digits_) {
    case Digits::kSign:
      if (!digit) return bad();
      digits_ = c == '0' ? Digits::kZero : Digits::kInteger;
      return state_;
    case Digits::kPoint:
      if (!digit) return bad();
      digits_ = Digits::kFraction;
      return state_;
    case Digits::kE:
      if (c == '+' || c == '-') {
        digits_ = Digits::kESign;
        return state_;
      }
      [[fallthrough]];
    case Digits::kESign:
      if (!digit) return bad();
      digits_ = Digits::kExponent;
      return state_;
    case Digits::kZero:
    case Digits::kInteger:
      if (digit && digits_ == Digits::kInteger) return state_;
      if (c == '.') {
        digits_ = Digits::kPoint;
        return state_;
      }
      break;
    case Digits::kFraction:
    case Digits::kExponent:
      if (digit) return state_;
      break;
  }
  if (e && digits_ != Digits::kExponent) {
    digits_ = Digits::kE;
    return state_;
  }
  // The byte is the first one behind the number.
  if (open_.empty()) return is_space(c) ? state_ : bad();
  expect_ = Expect::kCommaOrEnd;
  return is_space(c) ? state_ : structure(c);
}

JsonScanner::State JsonScanner::end_value() {
  expect_ = open_.empty() ? Expect::kNothing : Expect::kCommaOrEnd;
  if (open_.empty()) state_ = State::kEnd;
  return state_;
}

std::string closed_json(std::string_view prefix) {
  JsonScanner scanner;
  std::string open;      // what is open now
  std::size_t keep = 0;  // bytes up to the last place where the document can be closed
  std::string closers;   // and what closes it there
  for (std::size_t i = 0; i < prefix.size(); ++i) {
    const std::size_t depth = scanner.depth();
    const bool number = scanner.in_number();
    if (scanner.push(prefix[i]) == JsonScanner::State::kBad) break;
    if (scanner.depth() > depth) open += prefix[i] == '{' ? '}' : ']';
    if (scanner.depth() < depth) open.pop_back();
    const bool opened = scanner.depth() > depth;
    // A number's last byte is known by the byte behind it.
    const bool ended = scanner.behind_value() || scanner.state() == JsonScanner::State::kEnd ||
                       (number && !scanner.in_number());
    if (!opened && !ended) continue;
    const bool comma = number && !scanner.behind_value() && scanner.depth() == depth;
    keep = comma ? i : i + 1;
    closers.assign(open.rbegin(), open.rend());
  }
  // A number may be longer than this, but is one.
  if (scanner.in_number() && scanner.state() == JsonScanner::State::kMore) {
    std::string out = std::string(prefix) + std::string(open.rbegin(), open.rend());
    if (parse_json(out)) return out;
  }
  std::string out = std::string(prefix.substr(0, keep)) + closers;
  return parse_json(out) ? out : "{}";
}

}  // namespace pagewise::server::tools
