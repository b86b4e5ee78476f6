// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "text/jinja/builtins_internal.h"
#include "text/jinja/operators.h"
#include "text/provenance.h"

namespace pagewise::text::jinja {
namespace {

/// Widths and precisions beyond this are mistakes, or attacks.
constexpr int64_t kWidthMax = 1000;

/// How one value is to be written, in the terms that both ways share.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^', '=' (behind the sign); '\0': as the type has it
  char sign = '-';    // '+', ' ' or '-': only of negative numbers
  bool alternate = false;
  bool grouped = false;
  int64_t width = 0;
  int64_t precision = -1;  // < 0: none given
  char type = 's';
  int32_t origin = kTemplateOrigin;  // of the format: what is written beside the values has it
};

/// Whose text bytes [begin, end) are: the template's only if all of them are, because a fill
/// character may stand in the middle of a format that a template put together (C16).
int32_t origin_of(const Rope& format, std::size_t begin, std::size_t end) {
  std::size_t at = 0;
  for (const Rope::Run& run : format.runs()) {
    if (at < end && run.end > begin && run.origin != kTemplateOrigin) return run.origin;
    at = run.end;
  }
  return kTemplateOrigin;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// `text` filled up to the width, whose `sign_bytes` first bytes are a sign and a prefix.
Rope aligned(const Rope& text, std::size_t sign_bytes, char align, const Spec& spec) {
  const auto length = static_cast<int64_t>(character_count(text.bytes()));
  if (length >= spec.width) return text;
  const int64_t missing = spec.width - length;
  const auto padding = [&](int64_t count) {
    std::string out;
    for (; count > 0; --count) out += spec.fill;
    return out;
  };
  Rope out;
  if (align == '=') {
    out.append(text, 0, sign_bytes);
    out.append(padding(missing), spec.origin);
    out.append(text, sign_bytes, text.size());
    return out;
  }
  const int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  out.append(padding(before), spec.origin);
  out.append(text);
  out.append(padding(missing - before), spec.origin);
  return out;
}

Rope aligned_text(const Rope& text, const Spec& spec, char usual) {
  Rope cut = text;
  if (spec.precision >= 0) {
    const std::vector<uint32_t> offsets = character_offsets(text.bytes());
    const auto kept =
        std::min<std::size_t>(static_cast<std::size_t>(spec.precision), offsets.size() - 1);
    cut = text.slice(0, offsets[kept]);
  }
  return aligned(cut, 0, spec.align != '\0' ? spec.align : usual, spec);
}

std::string digits_of(uint64_t value, char type) {
  if (type == 'x') return fmt::format("{:x}", value);
  if (type == 'X') return fmt::format("{:X}", value);
  if (type == 'o') return fmt::format("{:o}", value);
  if (type == 'b') return fmt::format("{:b}", value);
  return fmt::format("{}", value);
}

/// A comma before each third digit from the right of the whole part.
std::string with_commas(const std::string& digits) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out + digits.substr(whole);
}

Rope number_text(bool negative, std::string_view prefix, const std::string& digits,
                 const Spec& spec) {
  std::string sign;
  if (negative) {
    sign = "-";
  } else if (spec.sign != '-') {
    sign = std::string(1, spec.sign);
  }
  sign += prefix;
  const std::string text = sign + (spec.grouped ? with_commas(digits) : digits);
  return aligned(Rope(text, spec.origin), sign.size(), spec.align != '\0' ? spec.align : '>', spec);
}

Rope integer_text(int64_t value, const Spec& spec) {
  const uint64_t magnitude =
      value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  std::string digits = digits_of(magnitude, spec.type);
  if (spec.precision > static_cast<int64_t>(digits.size())) {
    digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
  }
  std::string prefix;
  if (spec.alternate && std::string_view("xXob").find(spec.type) != std::string_view::npos) {
    prefix = std::string("0") + spec.type;
  }
  return number_text(value < 0, prefix, digits, spec);
}

Rope float_text(double value, const Spec& spec) {
  const char kind[] = {'%', '.', '*', spec.type, '\0'};
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const double magnitude = std::fabs(value);
  std::string digits(
      static_cast<std::size_t>(std::snprintf(nullptr, 0, kind, precision, magnitude)), '\0');
  std::snprintf(digits.data(), digits.size() + 1, kind, precision, magnitude);
  return number_text(std::signbit(value) && !std::isnan(value), "", digits, spec);
}

// ---- '%'
// ------------------------------------------------------------------------------------------

class PercentFormat {
 public:
  PercentFormat(const Rope& format, const Value& values, Session& session)
      : format_(format), bytes_(format.bytes()), values_(values), session_(session) {}

  Result<Value> run() {
    const List* list = values_.list();
    const bool several = list != nullptr && list->is_tuple;
    std::size_t plain = 0;
    while (true) {
      const std::size_t sign = bytes_.find('%', at_);
      PW_RETURN_IF_ERROR(
          add(format_.slice(plain, sign == std::string_view::npos ? bytes_.size() : sign)));
      if (sign == std::string_view::npos) break;
      at_ = sign + 1;
      PW_RETURN_IF_ERROR(convert());
      plain = at_;
    }
    const std::size_t given = several ? list->items.size() : 1;
    const bool may_be_left = !several && (list != nullptr || values_.dict() != nullptr);
    if (taken_ < given && !by_key_ && !may_be_left) return fail("'%' got more values than places");
    return Value(std::move(out_));
  }

 private:
  Status add(const Rope& text) {
    PW_RETURN_IF_ERROR(session_.spend_growth(out_.size(), text.size()));
    out_.append(text);
    return Status::ok();
  }

  Result<Value> next() {
    const List* list = values_.list();
    if (list != nullptr && list->is_tuple) {
      if (taken_ >= list->items.size()) return fail("'%' got fewer values than places");
      return list->items[taken_++];
    }
    if (taken_ > 0) return fail("'%' got fewer values than places");
    ++taken_;
    return values_;
  }

  Result<int64_t> number() {
    if (at_ < bytes_.size() && bytes_[at_] == '*') {
      ++at_;
      PW_ASSIGN_OR_RETURN(const Value value, next());
      if (!value.is_integral()) return fail("'%' needs a whole number for '*'");
      return std::clamp<int64_t>(value.integral(), -kWidthMax, kWidthMax);
    }
    int64_t value = 0;
    while (at_ < bytes_.size() && is_digit(bytes_[at_])) {
      value = value * 10 + (bytes_[at_++] - '0');
      if (value > kWidthMax) return fail(fmt::format("'%' fills up to at most {}", kWidthMax));
    }
    return value;
  }

  Status convert() {
    const std::size_t sign = at_ - 1;
    std::optional<Value> keyed;
    if (at_ < bytes_.size() && bytes_[at_] == '(') {
      const std::size_t end = bytes_.find(')', at_);
      if (end == std::string_view::npos) return fail("'%(' has no ')'");
      const Dict* dict = values_.dict();
      if (dict == nullptr) return fail("'%(name)' needs a dictionary");
      const Value* found = dict->find(bytes_.substr(at_ + 1, end - at_ - 1));
      if (found == nullptr) return fail("'%(name)' is not in the dictionary");
      keyed = *found;
      by_key_ = true;
      at_ = end + 1;
    }
    Spec spec;
    for (; at_ < bytes_.size(); ++at_) {
      const char c = bytes_[at_];
      if (c == '-') {
        spec.align = '<';
      } else if (c == '+' || (c == ' ' && spec.sign != '+')) {
        spec.sign = c;
      } else if (c == '0') {
        zeros_ = true;
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c != ' ') {
        break;
      }
    }
    PW_ASSIGN_OR_RETURN(spec.width, number());
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (at_ < bytes_.size() && bytes_[at_] == '.') {
      ++at_;
      PW_ASSIGN_OR_RETURN(spec.precision, number());
      spec.precision = std::max<int64_t>(spec.precision, 0);
    }
    while (at_ < bytes_.size() && std::string_view("hlL").find(bytes_[at_]) != std::string::npos) {
      ++at_;
    }
    if (at_ >= bytes_.size()) return fail("'%' at the end of a format");
    spec.type = bytes_[at_++];
    spec.origin = origin_of(format_, sign, at_);
    const bool zeros = std::exchange(zeros_, false);
    if (spec.type == '%') return add(Rope("%", spec.origin));
    if (std::string_view("diuoxXeEfFgGcrs").find(spec.type) == std::string_view::npos) {
      return fail("'%' has no such conversion");
    }
    Value value;
    if (keyed) {
      value = *keyed;
    } else {
      PW_ASSIGN_OR_RETURN(value, next());
    }
    if (zeros && spec.align == '\0' &&
        std::string_view("crs").find(spec.type) == std::string_view::npos) {
      spec.fill = "0";
      spec.align = '=';
    }
    PW_ASSIGN_OR_RETURN(const Rope text, written(value, spec));
    return add(text);
  }

  Result<Rope> written(const Value& value, Spec spec) {
    switch (spec.type) {
      case 's': {
        PW_ASSIGN_OR_RETURN(const Rope text, print(value, session_));
        return aligned_text(text, spec, '>');
      }
      case 'r': {
        PW_RETURN_IF_ERROR(session_.spend_text(weight_of(value)));
        PW_ASSIGN_OR_RETURN(const Rope text, to_literal(value));
        return aligned_text(text, spec, '>');
      }
      case 'c':
        if (value.text() == nullptr || character_count(value.text()->bytes()) != 1) {
          return fail("'%c' needs one character");
        }
        spec.precision = -1;
        return aligned_text(*value.text(), spec, '>');
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X': {
        const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
        if (decimal) spec.type = 'd';
        if (value.is_integral()) return integer_text(value.integral(), spec);
        if (decimal && value.floating() != nullptr && std::fabs(*value.floating()) < 9.2e18) {
          return integer_text(static_cast<int64_t>(*value.floating()), spec);
        }
        return fail(
            fmt::format("'%{}' needs a whole number, not '{}'", spec.type, type_name(value)));
      }
      default:
        if (!value.is_number()) {
          return fail(fmt::format("'%{}' needs a number, not '{}'", spec.type, type_name(value)));
        }
        return float_text(value.number(), spec);
    }
  }

  const Rope& format_;
  const std::string_view bytes_;
  const Value& values_;
  Session& session_;
  std::size_t at_ = 0;
  std::size_t taken_ = 0;
  bool by_key_ = false;
  bool zeros_ = false;
  Rope out_;
};

// ---- '{}'
// -----------------------------------------------------------------------------------------

class BraceFormat {
 public:
  BraceFormat(const Rope& format, const std::vector<Value>& values,
              const std::vector<std::pair<std::string, Value>>& named, Session& session)
      : format_(format),
        bytes_(format.bytes()),
        values_(values),
        named_(named),
        session_(session) {}

  Result<Value> run() {
    while (at_ < bytes_.size()) {
      const std::size_t brace = std::min(bytes_.find_first_of("{}", at_), bytes_.size());
      PW_RETURN_IF_ERROR(add(format_.slice(at_, brace)));
      at_ = brace;
      if (at_ == bytes_.size()) break;
      const bool doubled = at_ + 1 < bytes_.size() && bytes_[at_ + 1] == bytes_[at_];
      if (doubled) {
        PW_RETURN_IF_ERROR(add(format_.slice(at_, at_ + 1)));
        at_ += 2;
      } else if (bytes_[at_] == '}') {
        return fail("a single '}' in a format");
      } else {
        PW_RETURN_IF_ERROR(field());
      }
    }
    return Value(std::move(out_));
  }

 private:
  Status add(const Rope& text) {
    PW_RETURN_IF_ERROR(session_.spend_growth(out_.size(), text.size()));
    out_.append(text);
    return Status::ok();
  }

  Status field() {
    const std::size_t end = bytes_.find('}', at_);
    if (end == std::string_view::npos) return fail("a single '{' in a format");
    std::string_view inside = bytes_.substr(at_ + 1, end - at_ - 1);
    origin_ = origin_of(format_, at_, end + 1);
    at_ = end + 1;
    if (inside.find('{') != std::string_view::npos) {
      return fail("'format' offers no field inside a field");
    }
    const std::size_t name_end = std::min(inside.find_first_of("!:"), inside.size());
    PW_ASSIGN_OR_RETURN(const Value value, named(inside.substr(0, name_end)));
    inside.remove_prefix(name_end);
    bool literal = false;
    if (inside.starts_with('!')) {
      if (inside.size() < 2 || (inside[1] != 'r' && inside[1] != 's')) {
        return fail("'format' offers the conversions !r and !s");
      }
      literal = inside[1] == 'r';
      inside.remove_prefix(2);
      if (!inside.empty() && inside[0] != ':') return fail("'format' expects ':' behind !r");
    }
    const bool plain = inside.size() <= 1;  // nothing, or ":" alone
    if (plain || literal || value.text() != nullptr) {
      PW_RETURN_IF_ERROR(session_.spend_text(weight_of(value)));
      PW_ASSIGN_OR_RETURN(const Rope text, literal ? to_literal(value) : to_text(value));
      if (plain) return add(text);
      PW_ASSIGN_OR_RETURN(const Spec spec, read_spec(inside.substr(1)));
      if (spec.type != 's' || spec.grouped || spec.align == '=') {
        return fail("'format' cannot write a text like a number");
      }
      return add(aligned_text(text, spec, '<'));
    }
    PW_ASSIGN_OR_RETURN(Spec spec, read_spec(inside.substr(1)));
    if (!value.is_number() || value.boolean() != nullptr) {
      return fail(fmt::format("'format' writes no '{}' that way", type_name(value)));
    }
    const bool whole = std::string_view("dxXob").find(spec.type) != std::string_view::npos;
    if (value.integer() != nullptr && (whole || spec.type == 's')) {
      if (spec.precision >= 0) return fail("'format' takes no precision for a whole number");
      if (spec.type == 's') spec.type = 'd';
      return add(integer_text(value.integral(), spec));
    }
    if (whole || (spec.type == 's' && spec.precision < 0 && !spec.grouped)) {
      if (whole) return fail("'format' needs a whole number");
      const double number = value.number();
      return add(number_text(std::signbit(number), "", format_float(std::fabs(number)), spec));
    }
    if (spec.type == 's') return fail("'format' needs a type behind a precision");
    if (spec.type == '%') {
      Spec percent = spec;
      percent.type = 'f';
      percent.width = 0;
      Rope text = float_text(value.number() * 100, percent);
      text.append("%", spec.origin);
      return add(aligned(text, value.number() < 0 || spec.sign != '-' ? 1 : 0,
                         spec.align != '\0' ? spec.align : '>', spec));
    }
    return add(float_text(value.number(), spec));
  }

  Result<Value> named(std::string_view name) {
    if (name.empty() || std::all_of(name.begin(), name.end(), is_digit)) {
      std::size_t index = next_;
      if (name.empty()) {
        if (numbered_) return fail("'format' has fields with and without a number");
        ++next_;
      } else {
        if (next_ > 0) return fail("'format' has fields with and without a number");
        numbered_ = true;
        index = name.size() > 6 ? values_.size() : std::stoul(std::string(name));
      }
      if (index >= values_.size()) return fail("'format' got fewer values than fields");
      return values_[index];
    }
    if (name.find_first_of(".[") != std::string_view::npos) {
      return fail("'format' offers no attributes in a field");
    }
    for (const auto& [key, value] : named_) {
      if (key == name) return value;
    }
    return fail(fmt::format("'format' got no value '{}'", name));
  }

  Result<Spec> read_spec(std::string_view text) const {
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    Spec spec;
    spec.origin = origin_;
    std::size_t at = 0;
    const std::vector<uint32_t> offsets = character_offsets(text);
    if (offsets.size() > 2 && is_align(text[offsets[1]])) {
      spec.fill = text.substr(0, offsets[1]);
      spec.align = text[offsets[1]];
      at = offsets[1] + 1;
    } else if (!text.empty() && is_align(text[0])) {
      spec.align = text[at++];
    }
    const auto take = [&](char c) { return at < text.size() && text[at] == c ? ++at > 0 : false; };
    if (take('+')) {
      spec.sign = '+';
    } else if (take(' ')) {
      spec.sign = ' ';
    } else {
      take('-');
    }
    spec.alternate = take('#');
    if (take('0') && spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
    const auto number = [&]() -> int64_t {
      int64_t value = 0;
      for (; at < text.size() && is_digit(text[at]) && value <= kWidthMax; ++at) {
        value = value * 10 + (text[at] - '0');
      }
      return value;
    };
    spec.width = number();
    spec.grouped = take(',');
    if (take('.')) spec.precision = number();
    if (spec.width > kWidthMax || spec.precision > kWidthMax) {
      return fail(fmt::format("'format' fills up to at most {}", kWidthMax));
    }
    if (at < text.size()) spec.type = text[at++];
    if (at < text.size() ||
        std::string_view("sdxXobeEfFgG%").find(spec.type) == std::string_view::npos) {
      return fail(fmt::format("'format' does not offer ':{}'", text));
    }
    return spec;
  }

  const Rope& format_;
  const std::string_view bytes_;
  const std::vector<Value>& values_;
  const std::vector<std::pair<std::string, Value>>& named_;
  Session& session_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
  bool numbered_ = false;
  int32_t origin_ = kTemplateOrigin;  // of the field
  Rope out_;
};

}  // namespace

Result<Value> format_percent(const Rope& format, const Value& values, Session& session) {
  return PercentFormat(format, values, session).run();
}

Result<Value> format_braces(const Rope& format, const std::vector<Value>& values,
                            const std::vector<std::pair<std::string, Value>>& named,
                            Session& session) {
  return BraceFormat(format, values, named, session).run();
}

}  // namespace pagewise::text::jinja
