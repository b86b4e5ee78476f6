// SPDX-License-Identifier: Apache-2.0
// JSON read byte by byte, as a model writes it: each byte is judged when it comes, so that what is
// no JSON is known at its first wrong byte, however the text was cut.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pagewise::server::tools {

/// Accepts exactly one JSON value (RFC 8259), white space before it allowed. A number at the top
/// level has no end of its own and is never kEnd; inside an object or list it ends as it should.
/// Not judged: whether \u escapes pair up, and whether the bytes are UTF-8.
class JsonScanner {
 public:
  static constexpr std::size_t kDepthMax = 60;  // less than parse_json's own

  enum class State : uint8_t {
    kMore,  // a beginning of JSON
    kEnd,   // the value is complete: nothing may follow
    kBad,   // no JSON
  };
  State push(char c);
  State state() const { return state_; }

  /// Open objects and lists.
  std::size_t depth() const { return open_.size(); }
  /// What comes next belongs to a member's key: from behind its first quote through its last.
  bool in_key() const { return expect_ == Expect::kString && key_; }
  /// A member's or item's value has begun and not ended; a nested value's inside counts.
  bool in_scalar() const {
    return (expect_ == Expect::kString && !key_) || expect_ == Expect::kNumber ||
           expect_ == Expect::kLiteral;
  }
  bool in_number() const { return expect_ == Expect::kNumber; }
  /// A value has just ended and a comma or the end of its object or list must follow.
  bool behind_value() const { return expect_ == Expect::kCommaOrEnd; }

 private:
  enum class Expect : uint8_t {
    kValue,
    kValueOrEnd,  // behind '['
    kKeyOrEnd,    // behind '{'
    kKey,         // behind a comma in an object
    kColon,
    kCommaOrEnd,
    kString,
    kNumber,
    kLiteral,
    kNothing,
  };
  enum class Digits : uint8_t { kSign, kZero, kInteger, kPoint, kFraction, kE, kESign, kExponent };

  State bad() { return state_ = State::kBad; }
  State begin_value(char c);
  State string_byte(char c);
  State number_byte(char c);
  State end_value();
  State structure(char c);

  State state_ = State::kMore;
  Expect expect_ = Expect::kValue;
  std::string open_;  // '{' and '['
  std::string_view literal_;
  Digits digits_ = Digits::kSign;
  bool key_ = false;
  bool escape_ = false;
  uint8_t hex_left_ = 0;
};

/// The longest valid JSON document that `prefix`, the beginning of one, can be made into by cutting
/// off an unfinished last value and closing what is open: for a call that was cut in its arguments,
/// read as the vendor's client reads the same bytes of a stream. "{}" when there is no such
/// beginning.
std::string closed_json(std::string_view prefix);

}  // namespace pagewise::server::tools
