// SPDX-License-Identifier: Apache-2.0
#include "server/tools/call_parser.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/trimmed.h"

namespace pagewise::server::tools {
namespace {

using Kind = CallEvent::Kind;
using State = JsonScanner::State;

constexpr std::size_t kHeaderBytesMax = 512;
constexpr std::string_view kSpace = " \n\r\t";
constexpr std::string_view kSeparator = "<｜tool▁sep｜>";

bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }
bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

/// Where the longest end of `text` begins that is a beginning of one of `words`; its size if none.
std::size_t unfinished_from(std::string_view text, const std::vector<std::string_view>& words) {
  std::size_t from = text.size();
  for (const std::string_view word : words) {
    for (std::size_t length = std::min(word.size() - 1, text.size()); length > 0; --length) {
      if (!text.ends_with(word.substr(0, length))) continue;
      from = std::min(from, text.size() - length);
      break;
    }
  }
  return from;
}

bool is_object(std::string_view text) {
  const auto parsed = parse_json(text);
  return parsed && parsed->is_object();
}

}  // namespace

void append(Kind kind, std::string_view text, std::vector<CallEvent>& events) {
  if (!events.empty() && events.back().kind == kind) {
    events.back().text += text;
  } else {
    events.push_back({kind, std::string(text)});
  }
}

CallParser::CallParser(const CallSyntax& syntax, std::vector<std::string> names, bool certain)
    : syntax_(syntax), names_(std::move(names)), certain_(certain) {}

bool CallParser::known(std::string_view name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

void CallParser::push(std::string_view text, Events& out) {
  buffer_ += text;
  run(out);
}

/// Until there is nothing to do without more text.
void CallParser::run(Events& out) {
  for (bool more = true; more;) {
    if (mode_ == Mode::kWords) {
      more = words(out);
    } else if (mode_ == Mode::kClosing) {
      more = closing();
    } else if ((more = at_ < buffer_.size())) {
      byte(buffer_[at_], out);
    }
  }
}

void CallParser::say(std::string_view text, Events& out) {
  if (text.empty()) return;
  said_ = true;
  behind_call_ = false;
  append(Kind::kText, text, out);
}

/// True when a call was opened.
bool CallParser::words(Events& out) {
  const std::size_t first = buffer_.find_first_not_of(kSpace);
  if (behind_call_ && first != 0) {
    buffer_.erase(0, first);  // all of it when there is nothing else
    if (buffer_.empty()) return false;
  }
  std::size_t opened = std::string::npos, length = 0;
  for (const std::string_view word : syntax_.opens) {
    const std::size_t at = buffer_.find(word);
    if (at >= opened) continue;
    opened = at;
    length = word.size();
  }
  if (syntax_.bare && !said_ && first != std::string::npos) {
    const std::size_t brace = buffer_.find_first_not_of(kSpace);
    if (buffer_[brace] == '{') opened = brace, length = 0;
  }
  const bool found = opened != std::string::npos;
  // White space may be in front of a call.
  std::size_t end = found ? opened : unfinished_from(buffer_, syntax_.opens);
  end = std::string_view(buffer_).substr(0, end).find_last_not_of(kSpace) + 1;  // npos + 1 is 0
  say(std::string_view(buffer_).substr(0, end), out);
  if (!found) {
    buffer_.erase(0, end);
    return false;
  }
  space_ = buffer_.substr(end, opened - end);
  buffer_.erase(0, opened);
  open(length);
  return true;
}

void CallParser::open(std::size_t opening) {
  mode_ = syntax_.named ? Mode::kHeader : Mode::kOpened;
  opening_ = at_ = opening;
  object_ = CallObject();
  header_.clear();
  list_ = started_ = closed_ = false;
  told_ = 0;
  held_.clear();
}

void CallParser::byte(char c, Events& out) {
  switch (mode_) {
    case Mode::kHeader:
      return header_byte(c, out);
    case Mode::kArguments:
      return arguments_byte(c, out);
    case Mode::kObject:
      return object_byte(c, out);
    default:
      break;
  }
  if (is_space(c)) {
    ++at_;
  } else if (mode_ == Mode::kBehindItem) {
    if (c == ',') {
      ++at_;
      mode_ = Mode::kItem;
    } else if (c == ']') {
      ++at_;
      leave(out);
    } else {
      broken(out);
    }
  } else if (c == '{') {
    object_ = CallObject();
    started_ = false;
    told_ = 0;
    mode_ = Mode::kObject;
  } else if (c == '[' && mode_ == Mode::kOpened) {
    ++at_;
    list_ = true;
    mode_ = Mode::kItem;
  } else if (mode_ == Mode::kOpened && syntax_.family == Family::kMistral && is_name_byte(c)) {
    mode_ = Mode::kHeader;
  } else {
    broken(out);
  }
}

void CallParser::object_byte(char c, Events& out) {
  ++at_;
  const State state = object_.push(c);
  if (state == State::kBad || (object_.name() && !known(*object_.name()))) return broken(out);
  if (state == State::kMore) {
    if (certain_ && object_.name()) tell(*object_.name(), object_.arguments(), false, out);
    return;
  }
  const auto arguments = object_.whole_arguments();
  if (!object_.name() || !arguments || (!certain_ && !is_object(*arguments))) return broken(out);
  tell(*object_.name(), *arguments, true, list_ && !certain_ ? held_ : out);
  started_ = false;
  mode_ = Mode::kBehindItem;
  if (!list_) leave(out);
}

/// What stands in front of named arguments, up to their brace.
void CallParser::header_byte(char c, Events& out) {
  if (c != '{') {
    header_ += c;
    ++at_;
    if (header_.size() > kHeaderBytesMax) broken(out);
    return;
  }
  if (!read_header() || !known(name_)) return broken(out);
  scanner_ = JsonScanner();
  arguments_at_ = at_;
  started_ = false;
  told_ = 0;
  mode_ = Mode::kArguments;
}

bool CallParser::read_header() {
  std::string_view rest = trimmed(header_, kSpace);
  if (syntax_.family == Family::kMistral) {
    const std::size_t end = std::min(rest.find_first_of("[ \n\r\t"), rest.size());
    name_ = rest.substr(0, end);
    rest.remove_prefix(end);
    if (rest.starts_with("[CALL_ID]")) rest.remove_prefix(std::min(rest.find('[', 1), rest.size()));
    return rest.empty() || rest == "[ARGS]";
  }
  if (syntax_.family == Family::kChannels) {
    name_ = rest.substr(0, rest.find_first_of(" <"));
    return rest.ends_with("<|message|>") &&
           (opening_ > kRoleRecipient.size() || rest.find("<|channel|>") != std::string_view::npos);
  }
  constexpr std::string_view kBegin = "<｜tool▁call▁begin｜>";
  if (rest.starts_with(kBegin)) rest.remove_prefix(kBegin.size());
  const std::size_t separator = rest.find(kSeparator);
  if (separator == std::string_view::npos) return false;
  std::string_view name = trimmed(rest.substr(0, separator), kSpace);
  std::string_view behind = trimmed(rest.substr(separator + kSeparator.size()), kSpace);
  // Older models write the word `function` in front and the name behind.
  if (!behind.empty() && !behind.starts_with("```")) {
    const std::size_t end = std::min(behind.find_first_of(kSpace), behind.size());
    name = behind.substr(0, end);
    behind = trimmed(behind.substr(end), kSpace);
  }
  name_ = name;
  return behind.empty() || behind == "```json";
}

void CallParser::arguments_byte(char c, Events& out) {
  ++at_;
  const State state = scanner_.push(c);
  const std::string_view arguments =
      std::string_view(buffer_).substr(arguments_at_, at_ - arguments_at_);
  if (state == State::kBad || (state == State::kEnd && !certain_ && !is_object(arguments)))
    return broken(out);
  if (state == State::kEnd || certain_) tell(name_, arguments, state == State::kEnd, out);
  if (state == State::kEnd) leave(out);
}

/// Tells of a call what is new; `arguments` are all of them so far.
void CallParser::tell(std::string_view name, std::string_view arguments, bool whole, Events& out) {
  if (!whole && arguments.empty()) return;
  if (!started_) out.push_back({Kind::kStart, std::string(name)});
  started_ = true;
  const std::string_view fresh = arguments.substr(std::min(told_, arguments.size()));
  told_ = arguments.size();
  if (!fresh.empty()) append(Kind::kArguments, fresh, out);
  if (whole) out.push_back({Kind::kEnd, ""});
}

void CallParser::flush(Events& out) {
  std::move(held_.begin(), held_.end(), std::back_inserter(out));
  held_.clear();
}

/// A call, or a list of them, is complete.
void CallParser::leave(Events& out) {
  flush(out);
  mode_ = Mode::kClosing;
  buffer_.erase(0, at_);
  at_ = 0;
  space_.clear();
  behind_call_ = true;
  said_ = true;
  started_ = false;
}

/// True when something was read; false while what follows may still be a closing.
bool CallParser::closing() {
  const std::size_t first = buffer_.find_first_not_of(kSpace);
  buffer_.erase(0, first);
  if (buffer_.empty()) return false;
  const auto in_front = [&](const std::vector<std::string_view>& words) -> std::size_t {
    for (const std::string_view word : words) {
      if (buffer_.starts_with(word)) return word.size();
    }
    return 0;
  };
  const auto may_be = [&](const std::vector<std::string_view>& words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return word.starts_with(buffer_); });
  };
  if (const std::size_t length = in_front(syntax_.closes); length > 0) {
    closed_ = true;
    buffer_.erase(0, length);
    return true;
  }
  if (const std::size_t length = in_front(syntax_.again); length > 0) {
    open(length);
    return true;
  }
  if (may_be(syntax_.closes) || may_be(syntax_.again)) return false;
  if (buffer_.front() == '{' && !syntax_.named && !closed_ && !list_) {
    open(0);
    return true;
  }
  mode_ = Mode::kWords;
  return true;
}

/// It was no call: the opening is words, and what stands behind it is read as such.
void CallParser::broken(Events& out) {
  if (started_) {
    // The sampler let through what is no call: what was told stays, the rest is words.
    out.push_back({Kind::kEnd, ""});
    buffer_.erase(0, at_ - 1);
    said_ = behind_call_ = true;
  } else {
    const std::size_t literal = std::max<std::size_t>(opening_, 1);
    say(space_ + buffer_.substr(0, literal), out);
    buffer_.erase(0, literal);
  }
  space_.clear();
  held_.clear();
  mode_ = Mode::kWords;
  at_ = 0;
  started_ = false;
}

/// A call whose name is not known yet.
bool CallParser::undecided() const {
  return mode_ == Mode::kOpened || mode_ == Mode::kHeader ||
         (mode_ == Mode::kObject && !object_.name()) || (mode_ == Mode::kItem && held_.empty());
}

void CallParser::finish(bool cut, Events& out) {
  while (mode_ != Mode::kWords && mode_ != Mode::kClosing) {
    if (started_) {  // and stays without an end
      buffer_.clear();
      mode_ = Mode::kClosing;
    } else if (mode_ == Mode::kBehindItem || (mode_ == Mode::kItem && !held_.empty())) {
      leave(out);  // a list without its end
    } else if (cut && !undecided()) {
      flush(out);
      if (mode_ == Mode::kArguments) {
        tell(name_, std::string_view(buffer_).substr(arguments_at_), false, out);
      } else {
        tell(*object_.name(), object_.arguments(), false, out);
      }
      mode_ = Mode::kClosing;
    } else if (cut && (opening_ > 0 || !held_.empty())) {
      flush(out);
      mode_ = Mode::kClosing;
    } else if (!held_.empty()) {
      leave(out);
    } else {
      broken(out);
      run(out);
    }
  }
  // In kClosing only a beginning of what closes calls is left.
  if (mode_ == Mode::kWords) say(buffer_, out);
  buffer_.clear();
}

}  // namespace pagewise::server::tools
