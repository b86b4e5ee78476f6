// SPDX-License-Identifier: Apache-2.0
#include "server/explain/volatile_text.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/contains.h"
#include "server/explain/plain_text.h"
#include "server/explain/time_text.h"

namespace pagewise::server::explain {
namespace {

constexpr std::size_t kWordMax = 512;  // bytes of the longest identifier looked at

/// Names of things that identify.
constexpr std::string_view kIdWords[] = {
    "id",        "ids",         "uuid",         "guid",        "uid",         "nonce",
    "session",   "token",       "trace",        "span",        "cch",         "salt",
    "hash",      "sha",         "sha1",         "sha256",      "md5",         "digest",
    "etag",      "ulid",        "conversation", "thread",      "correlation", "fingerprint",
    "commit",    "build",       "seed",         "random",      "key",         "ref",
    "reference", "ticket",      "order",        "case",        "invoice",     "account",
    "customer",  "transaction", "run",          "job",         "checksum",    "revision",
    "cookie",    "identifier",  "nonces",       "traceparent", "sessionid",   "requestid",
    "userid",    "traceid",     "msgid",        "cid",         "rid",         "sid",
    "tid"};
/// Of these, the ones that a person does not ask about.
constexpr std::string_view kIdWordsOfMachines[] = {
    "nonce",        "session",     "trace",       "span",      "cch",     "salt",
    "etag",         "correlation", "fingerprint", "seed",      "random",  "checksum",
    "cookie",       "traceparent", "sessionid",   "requestid", "traceid", "request",
    "conversation", "uuid",        "guid",        "ulid"};
constexpr std::string_view kLiteralIds[] = {"id",    "uuid", "guid",      "nonce", "token",
                                            "uid",   "hash", "seed",      "salt",  "cch",
                                            "trace", "etag", "identifier"};
/// Names of things that are counted.
constexpr std::string_view kCountWords[] = {
    "turn",      "turns", "step",     "steps",   "message",     "messages", "attempt", "attempts",
    "iteration", "round", "call",     "calls",   "request",     "requests", "count",   "counter",
    "number",    "no",    "nr",       "num",     "visit",       "try",      "retry",   "retries",
    "remaining", "left",  "used",     "total",   "budget",      "sequence", "seq",     "index",
    "exchange",  "query", "question", "prompt",  "interaction", "cycle",    "loop",    "pass",
    "item",      "page",  "part",     "version", "n",           "i",        "unread",  "queue"};
/// Of these, the ones that a person does not ask about.
constexpr std::string_view kCountWordsOfMachines[] = {
    "turn",    "turns",    "attempt",     "attempts", "iteration", "call",
    "request", "requests", "counter",     "visit",    "retry",     "retries",
    "seq",     "sequence", "interaction", "exchange", "loop",      "cycle"};
constexpr std::string_view kNowWords[] = {
    "now",      "today", "current",  "currently", "date",      "time",    "timestamp", "stamp",
    "datetime", "sent",  "received", "heute",     "datum",     "uhrzeit", "aktuell",   "aujourd",
    "hoy",      "fecha", "hora",     "oggi",      "generated", "clock",   "ts"};

constexpr std::string_view kNumbers[] = {
    "one",       "two",      "three",    "four",   "five",     "six",      "seven",    "eight",
    "nine",      "ten",      "eleven",   "twelve", "thirteen", "fourteen", "fifteen",  "sixteen",
    "seventeen", "eighteen", "nineteen", "twenty", "first",    "second",   "third",    "fourth",
    "fifth",     "sixth",    "seventh",  "eighth", "ninth",    "tenth",    "eleventh", "twelfth"};

bool is_hex(char c) { return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'f'); }
bool is_id_char(char c) {
  return is_digit(c) || is_letter(c) || c == '-' || c == '_' || c == '+' || c == '/' || c == '=' ||
         c == '~';
}

/// The word of identifier characters around `offset`, without what punctuation trails it.
Range id_word(std::string_view text, std::size_t offset) {
  Range word{offset, offset};
  while (word.begin > 0 && offset - word.begin < kWordMax && is_id_char(text[word.begin - 1]))
    --word.begin;
  while (word.end < text.size() && word.end - offset < kWordMax && is_id_char(text[word.end]))
    ++word.end;
  // "session=abc": the name is no part of it.
  if (const std::size_t equals = text.substr(word.begin, offset - word.begin).rfind('=');
      equals != std::string_view::npos)
    word.begin += equals + 1;
  while (word.end > offset && (text[word.end - 1] == '-' || text[word.end - 1] == '/')) --word.end;
  return word;
}

bool is_uuid(std::string_view word) {
  if (word.size() != 36) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? word[i] != '-' : !is_hex(word[i])) return false;
  }
  return true;
}

struct WordShape {
  std::size_t digits = 0, lower_letters = 0, upper_letters = 0;
  std::size_t changes = 0;  // between digits and letters, and from lower case to upper
  bool hex = true;
};
WordShape shape_of(std::string_view word) {
  WordShape shape;
  char previous = '\0';
  for (const char c : word) {
    if (is_digit(c)) ++shape.digits;
    if (is_letter(c)) ++(c == lower(c) ? shape.lower_letters : shape.upper_letters);
    if (previous != '\0') {
      const bool kinds = is_digit(previous) != is_digit(c);
      const bool hump =
          is_letter(previous) && previous == lower(previous) && is_letter(c) && c != lower(c);
      shape.changes += kinds || hump;
    }
    shape.hex = shape.hex && (is_hex(c) || c == '-');
    previous = c;
  }
  return shape;
}

/// Letters and digits mixed as no word of a language has them.
bool looks_random(std::string_view word) {
  if (word.size() < 6) return false;
  const WordShape shape = shape_of(word);
  const std::size_t letters = shape.lower_letters + shape.upper_letters;
  if (shape.hex && shape.digits >= 1 && letters >= 1) return true;
  if (shape.digits >= 2 && letters >= 2 && shape.changes >= 2) return true;
  return shape.upper_letters >= 2 && shape.lower_letters >= 2 && shape.changes >= 3 &&
         word.size() >= 8;
}

bool any_word(const std::vector<std::string>& words, bool (*predicate)(std::string_view)) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return predicate(word); });
}

/// At the beginning of the text, or of a line of its own: how programs prefix what people wrote.
bool heads_the_text(std::string_view text, std::size_t begin, std::size_t end) {
  if (text.substr(0, begin).find_first_not_of(" \t\n[(<{#*-\"") == std::string_view::npos)
    return true;
  const Range line = line_at(text, begin);
  return line.end < text.size() && end + 24 >= line.end && begin - line.begin <= 40;
}

std::optional<VolatileChange> time_change(std::string_view a, std::string_view b,
                                          std::size_t offset) {
  const auto in_a = time_span_at(a, offset);
  const auto in_b = time_span_at(b, offset);
  if (!in_a || !in_b) return std::nullopt;
  const auto of = [](std::string_view text, const TimeSpan& span) {
    return text.substr(span.begin, span.end - span.begin);
  };
  if (of(a, *in_a) == of(b, *in_b)) return std::nullopt;
  VolatileChange change;
  change.cause = in_a->has_time || in_b->has_time ? Cause::kTimeStamp : Cause::kDate;
  change.begin = std::min(in_a->begin, in_b->begin);
  change.a_end = in_a->end;
  change.b_end = in_b->end;
  const std::vector<std::string> words = words_before(a, change.begin, 3);
  const auto phrase = [&](std::string_view first, std::string_view second) {
    return words.size() >= 2 && words[1] == first && words[0] == second;
  };
  change.announced =
      heads_the_text(a, change.begin, in_a->end) || phrase("it", "is") || phrase("it", "s") ||
      phrase("as", "of") || phrase("es", "ist") || phrase("il", "est") ||
      any_word(words, [](std::string_view word) { return contains(kNowWords, word); });
  return change;
}

/// A whole number, thousands separated or not.
struct Number {
  Range range;
  uint64_t value = 0;
  bool whole = true;     // no decimals, no dotted version
  bool grouped = false;  // with thousands separators, as quantities are written
};
std::optional<Number> number_at(std::string_view text, std::size_t offset) {
  Range range{offset, offset};
  const auto inner = [&](std::size_t i) {
    if (is_digit(text[i])) return true;
    return text[i] == ',' && i > 0 && is_digit(text[i - 1]) && i + 3 < text.size() &&
           is_digit(text[i + 1]) && is_digit(text[i + 2]) && is_digit(text[i + 3]);
  };
  while (range.begin > 0 && inner(range.begin - 1)) --range.begin;
  while (range.end < text.size() && inner(range.end)) ++range.end;
  if (range.size() == 0 || range.size() > 19) return std::nullopt;
  Number number{range};
  for (std::size_t i = range.begin; i < range.end; ++i) {
    if (is_digit(text[i])) {
      number.value = number.value * 10 + static_cast<uint64_t>(text[i] - '0');
    } else {
      number.grouped = true;
    }
  }
  const auto dotted = [&](std::size_t point, std::size_t digit) {
    return point < text.size() && digit < text.size() && text[point] == '.' &&
           is_digit(text[digit]);
  };
  number.whole = !dotted(range.end, range.end + 1) &&
                 !(range.begin > 1 && dotted(range.begin - 1, range.begin - 2));
  return number;
}

bool is_id_word(std::string_view word) { return contains(kIdWords, word); }
bool is_literal_id(std::string_view word) { return contains(kLiteralIds, word); }
bool is_machine_id(std::string_view word) { return contains(kIdWordsOfMachines, word); }
bool is_count_word(std::string_view word) { return contains(kCountWords, word); }
bool is_machine_count(std::string_view word) { return contains(kCountWordsOfMachines, word); }

/// "3 of 9", "4/9", "812 tokens left".
bool counted_behind(std::string_view text, std::size_t end) {
  const std::string behind = lowered(text.substr(end, 24));
  if (behind.starts_with("/") && behind.size() > 1 && is_digit(behind[1])) return true;
  for (const std::string_view words :
       {" of ", " left", " remaining", " used", " tokens", " messages", " turns", " attempts",
        " requests", " unread"}) {
    if (behind.starts_with(words)) return true;
  }
  return false;
}

std::optional<VolatileChange> number_change(std::string_view a, std::string_view b,
                                            std::size_t offset) {
  const auto in_a = number_at(a, offset);
  const auto in_b = number_at(b, offset);
  if (!in_a || !in_b || !in_a->whole || !in_b->whole) return std::nullopt;
  if (in_a->value == in_b->value && in_a->range.size() == in_b->range.size()) return std::nullopt;
  const std::size_t begin = in_a->range.begin;
  const std::vector<std::string> words = words_before(a, begin, 3);
  const uint64_t low = std::min(in_a->value, in_b->value),
                 high = std::max(in_a->value, in_b->value);
  const bool steps = high - low <= 20;
  const bool marked = begin > 0 && a[begin - 1] == '#';
  // What stands directly in front says most: "user id, turn 17".
  const bool counts = marked || in_a->grouped || (!words.empty() && is_count_word(words[0])) ||
                      counted_behind(a, in_a->range.end);
  const bool identifies =
      !counts && (any_word(words, is_literal_id) || (any_word(words, is_id_word) && !steps));
  const std::size_t digits = std::max(in_a->range.size(), in_b->range.size());
  VolatileChange change;
  change.begin = begin;
  change.a_end = in_a->range.end;
  change.b_end = in_b->range.end;
  if (identifies || (!counts && !steps && digits >= 6 && !any_word(words, is_count_word))) {
    change.cause = Cause::kId;
    change.announced = heads_the_text(a, begin, change.a_end) || any_word(words, is_machine_id);
  } else {
    change.cause = Cause::kCounter;
    change.announced = heads_the_text(a, begin, change.a_end) || any_word(words, is_machine_count);
  }
  return change;
}

std::optional<VolatileChange> id_change(std::string_view a, std::string_view b,
                                        std::size_t offset) {
  const Range in_a = id_word(a, offset), in_b = id_word(b, offset);
  if (in_a.size() == 0 || in_b.size() == 0) return std::nullopt;
  const std::string_view word_a = a.substr(in_a.begin, in_a.size());
  const std::string_view word_b = b.substr(in_b.begin, in_b.size());
  if (word_a == word_b) return std::nullopt;
  const std::vector<std::string> words = words_before(a, in_a.begin, 3);
  const WordShape shape_a = shape_of(word_a), shape_b = shape_of(word_b);
  // One of two draws may be all digits or all letters by chance.
  const bool alike = word_a.size() == word_b.size() && shape_a.hex == shape_b.hex;
  const bool random_a = looks_random(word_a), random_b = looks_random(word_b);
  const bool numbers = all_of_text(word_a, is_digit) && all_of_text(word_b, is_digit);
  const bool random = (random_a && random_b) || ((random_a || random_b) && alike);
  const bool named =
      !numbers && (any_word(words, is_literal_id) ||
                   (any_word(words, is_id_word) && (shape_a.digits > 0 || shape_b.digits > 0)) ||
                   (any_word(words, is_machine_id) && word_a.size() >= 6 && word_b.size() >= 6));
  if (!(is_uuid(word_a) && is_uuid(word_b)) && !(random && !numbers) && !named) return std::nullopt;
  VolatileChange change;
  change.cause = Cause::kId;
  change.begin = in_a.begin;
  change.a_end = in_a.end;
  change.b_end = in_b.end;
  change.announced = heads_the_text(a, in_a.begin, in_a.end) || any_word(words, is_machine_id);
  return change;
}

/// "msg17", "turn-3": a name with a number at its end that counts.
bool counts_in_name(std::string_view a, std::string_view b, const VolatileChange& change) {
  const auto split = [](std::string_view word) {
    std::size_t digits = 0;
    while (digits < word.size() && is_digit(word[word.size() - 1 - digits])) ++digits;
    return word.size() - digits;
  };
  const std::string_view word_a = a.substr(change.begin, change.a_end - change.begin);
  const std::string_view word_b = b.substr(change.begin, change.b_end - change.begin);
  const std::size_t name = split(word_a);
  if (name == 0 || name != split(word_b) || word_a.substr(0, name) != word_b.substr(0, name))
    return false;
  const std::string_view number_a = word_a.substr(name), number_b = word_b.substr(name);
  if (number_a.empty() || number_b.empty() || number_a.size() > 4 || number_b.size() > 4)
    return false;
  return shape_of(word_a.substr(0, name)).digits == 0;
}

std::optional<VolatileChange> number_word_change(std::string_view a, std::string_view b,
                                                 std::size_t offset) {
  const auto word_at = [&](std::string_view text) {
    Range word{offset, offset};
    while (word.begin > 0 && is_letter(text[word.begin - 1])) --word.begin;
    while (word.end < text.size() && is_letter(text[word.end])) ++word.end;
    return word;
  };
  const Range in_a = word_at(a), in_b = word_at(b);
  const std::string word_a = lowered(a.substr(in_a.begin, in_a.size()));
  const std::string word_b = lowered(b.substr(in_b.begin, in_b.size()));
  if (word_a == word_b || !contains(kNumbers, word_a) || !contains(kNumbers, word_b))
    return std::nullopt;
  VolatileChange change{Cause::kCounter, in_a.begin, in_a.end, in_b.end};
  change.announced = any_word(words_before(a, in_a.begin, 1), is_machine_count);
  return change;
}

}  // namespace

std::optional<VolatileChange> volatile_change_at(std::string_view a, std::string_view b,
                                                 std::size_t offset) {
  // Padded numbers (" 9", "10") part in front of the number.
  if (offset < a.size() && offset < b.size() && (a[offset] == ' ') != (b[offset] == ' ')) {
    const std::string_view& padded = a[offset] == ' ' ? a : b;
    const std::string_view& other = a[offset] == ' ' ? b : a;
    if (offset + 1 < padded.size() && is_digit(padded[offset + 1]) && is_digit(other[offset])) {
      VolatileChange change{Cause::kCounter, offset, offset + 2, offset + 2};
      while (change.a_end < a.size() && is_digit(a[change.a_end])) ++change.a_end;
      while (change.b_end < b.size() && is_digit(b[change.b_end])) ++change.b_end;
      change.announced = any_word(words_before(a, offset, 1), is_machine_count);
      return change;
    }
  }
  const Range word_a = id_word(a, offset), word_b = id_word(b, offset);
  const bool uuids = is_uuid(a.substr(word_a.begin, word_a.size())) &&
                     is_uuid(b.substr(word_b.begin, word_b.size()));
  const std::vector<std::string> words = words_before(a, word_a.begin, 1);
  const bool literal = any_word(words, is_literal_id) && any_word(words, is_id_word);
  auto id = id_change(a, b, offset);
  if (uuids || (id && literal)) return id;
  if (auto time = time_change(a, b, offset)) {
    // "session 1764450012": a number that happens to look like seconds.
    if (!(any_word(words_before(a, time->begin, 2), is_literal_id) &&
          time->cause == Cause::kTimeStamp &&
          all_of_text(a.substr(time->begin, time->a_end - time->begin), is_digit)))
      return time;
  }
  if (id) {
    if (counts_in_name(a, b, *id)) id->cause = Cause::kCounter;
    return id;
  }
  if (auto number = number_change(a, b, offset)) return number;
  return number_word_change(a, b, offset);
}

}  // namespace pagewise::server::explain
