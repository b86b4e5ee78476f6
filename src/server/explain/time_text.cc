// SPDX-License-Identifier: Apache-2.0
#include "server/explain/time_text.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/contains.h"
#include "server/explain/plain_text.h"

namespace pagewise::server::explain {
namespace {

constexpr std::size_t kWindow = 160;  // bytes looked at on either side

/// What one piece of a date or time is. Years and days alone are numbers like any other: they count
/// only beside a piece that is unmistakable.
enum class Piece : uint8_t { kTime, kDate, kMonth, kWeekday, kHalfDay, kZone, kYear, kDay };

struct Atom {
  std::size_t begin = 0, end = 0;
  Piece piece = Piece::kDay;
};

// English, German, French, Spanish, Italian, Portuguese, Dutch; lower case. What is also an
// everyday word ("may", "mars", "sun") is held back to places beside a number.
constexpr std::string_view kMonths[] = {
    "january",   "february",  "march",    "april",    "may",        "june",     "july",
    "august",    "september", "october",  "november", "december",   "jan",      "feb",
    "mar",       "apr",       "jun",      "jul",      "aug",        "sep",      "sept",
    "oct",       "nov",       "dec",      "januar",   "februar",    "märz",     "mai",
    "juni",      "juli",      "oktober",  "dezember", "okt",        "dez",      "janvier",
    "février",   "mars",      "avril",    "juin",     "juillet",    "août",     "septembre",
    "octobre",   "novembre",  "décembre", "enero",    "febrero",    "marzo",    "abril",
    "mayo",      "junio",     "julio",    "agosto",   "septiembre", "octubre",  "noviembre",
    "diciembre", "gennaio",   "febbraio", "aprile",   "maggio",     "giugno",   "luglio",
    "settembre", "ottobre",   "dicembre", "janeiro",  "fevereiro",  "março",    "maio",
    "junho",     "julho",     "setembro", "outubro",  "novembro",   "dezembro", "januari",
    "februari",  "maart",     "mei",      "augustus", "mrt",        "jän",      "jänner",
    "avr",       "juil"};
constexpr std::string_view kWeekdays[] = {
    "monday",       "tuesday",      "wednesday",   "thursday", "friday",        "saturday",
    "sunday",       "mon",          "tue",         "tues",     "wed",           "thu",
    "thur",         "thurs",        "fri",         "sat",      "sun",           "montag",
    "dienstag",     "mittwoch",     "donnerstag",  "freitag",  "samstag",       "sonnabend",
    "sonntag",      "lundi",        "mardi",       "mercredi", "jeudi",         "vendredi",
    "samedi",       "dimanche",     "lunes",       "martes",   "miércoles",     "jueves",
    "viernes",      "sábado",       "domingo",     "lunedì",   "martedì",       "mercoledì",
    "giovedì",      "venerdì",      "sabato",      "domenica", "segunda-feira", "terça-feira",
    "quarta-feira", "quinta-feira", "sexta-feira", "maandag",  "dinsdag",       "woensdag",
    "donderdag",    "vrijdag",      "zaterdag"};
constexpr std::string_view kHalfDays[] = {"am",      "pm",       "a.m.",    "p.m.",
                                          "noon",    "midnight", "morning", "afternoon",
                                          "evening", "night",    "uhr",     "o'clock"};
constexpr std::string_view kZones[] = {"utc",  "gmt",  "z",   "cet", "cest", "est", "edt", "cst",
                                       "cdt",  "mst",  "mdt", "pst", "pdt",  "bst", "ist", "jst",
                                       "aest", "aedt", "msk", "wet", "eet",  "eest"};
/// Words that may stand between two pieces of one date or time.
constexpr std::string_view kJoints[] = {"at", "on", "the", "of", "de", "den", "der", "le",
                                        "um", "à",  "del", "am", "t",  "op",  "om",  "time"};

/// Lower case also for the Latin letters with accents that the names above have.
std::string folded(std::string_view word) {
  std::string out = lowered(word);
  for (std::size_t i = 0; i + 1 < out.size(); ++i) {
    auto& next = out[i + 1];
    const auto code = static_cast<unsigned char>(next);
    if (out[i] == '\xC3' && code >= 0x80 && code <= 0x9E && code != 0x97) {
      next = static_cast<char>(code + 0x20);
    }
  }
  return out;
}

std::size_t digits_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end - at;
}

/// The number of `count` digits at `at`; -1 when there are fewer.
int number_at(std::string_view text, std::size_t at, std::size_t count) {
  if (at + count > text.size()) return -1;
  int value = 0;
  for (std::size_t i = at; i < at + count; ++i) {
    if (!is_digit(text[i])) return -1;
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

bool is_year(int value) { return value >= 1900 && value <= 2199; }
bool is_month(int value) { return value >= 1 && value <= 12; }
bool is_day(int value) { return value >= 1 && value <= 31; }

/// 2026-11-30, 2026/11, 30.11.2026, 11/30/26, 30.11., 20261130, 2026-W49-1, 2026-334,
/// 2026年11月30日. Returns the length, 0: none.
std::size_t date_length(std::string_view text, std::size_t at) {
  const std::size_t first = digits_at(text, at);
  const auto is_separator = [](char c) { return c == '-' || c == '/' || c == '.' || c == '_'; };
  const auto char_at = [&](std::size_t i) { return i < text.size() ? text[i] : '\0'; };
  if (first == 8 && is_year(number_at(text, at, 4)) && is_month(number_at(text, at + 4, 2)) &&
      is_day(number_at(text, at + 6, 2)))
    return 8;
  if (first == 4 && is_year(number_at(text, at, 4))) {
    std::size_t end = at + 4;
    if (text.substr(end).starts_with("年")) {
      for (const std::string_view mark : {"年", "月", "日"}) {
        if (!text.substr(end).starts_with(mark)) break;
        end += mark.size();
        const std::size_t digits = digits_at(text, end);
        const bool more = digits > 0 && digits <= 2 && mark != "日";
        if (!more) break;
        end += digits;
      }
      return end - at;
    }
    if (char_at(end) == '-' && (char_at(end + 1) == 'W' || char_at(end + 1) == 'w') &&
        digits_at(text, end + 2) == 2) {
      end += 4;
      if (char_at(end) == '-' && digits_at(text, end + 1) == 1) end += 2;
      return end - at;
    }
    const char separator = char_at(end);
    if (!is_separator(separator)) return 0;
    const std::size_t second = digits_at(text, end + 1);
    if (separator == '-' && second == 3) return 8;
    if (second == 0 || second > 2 || !is_month(number_at(text, end + 1, second))) return 0;
    end += 1 + second;
    if (char_at(end) != separator) return separator == '_' ? 0 : end - at;
    const std::size_t third = digits_at(text, end + 1);
    if (third == 0 || third > 2 || !is_day(number_at(text, end + 1, third))) return 0;
    return end + 1 + third - at;
  }
  if (first == 0 || first > 2 || !is_day(number_at(text, at, first))) return 0;
  std::size_t end = at + first;
  const char separator = char_at(end);
  if (!is_separator(separator) || separator == '_') return 0;
  const std::size_t second = digits_at(text, end + 1);
  if (second == 0 || second > 2 || !is_day(number_at(text, end + 1, second))) return 0;
  end += 1 + second;
  if (char_at(end) != separator) return 0;
  const std::size_t third = digits_at(text, end + 1);
  if (third == 4 && is_year(number_at(text, end + 1, 4))) return end + 5 - at;
  if (third == 2) return end + 3 - at;
  // "30.11.": a German day and month.
  return separator == '.' && third == 0 && second == 2 ? end + 1 - at : 0;
}

/// Where a time may stand: numbers that are none elsewhere are one behind a date.
enum class TimePlace : uint8_t { kAnywhere, kBehindDate, kBehindT };

/// 14:03, 14:03:22.123, 2:03, 14h03, 14時03分; behind a date also 140322 and 14-03-22.
std::size_t time_length(std::string_view text, std::size_t at, TimePlace place) {
  const std::size_t first = digits_at(text, at);
  const auto char_at = [&](std::size_t i) { return i < text.size() ? text[i] : '\0'; };
  const auto fraction = [&](std::size_t end) {
    if (char_at(end) != '.' && char_at(end) != ',') return end;
    const std::size_t digits = digits_at(text, end + 1);
    return digits == 0 ? end : end + 1 + digits;
  };
  const bool compact =
      (first == 6 && place != TimePlace::kAnywhere) || (first == 4 && place == TimePlace::kBehindT);
  if (compact && number_at(text, at, 2) < 24 && number_at(text, at + 2, 2) < 60)
    return fraction(at + first) - at;
  if (first == 0 || first > 2 || number_at(text, at, first) > 24) return 0;
  std::size_t end = at + first;
  if (text.substr(end).starts_with("時")) {
    end += std::string_view("時").size();
    const std::size_t minutes = digits_at(text, end);
    if (minutes > 0 && text.substr(end + minutes).starts_with("分"))
      end += minutes + std::string_view("分").size();
    return end - at;
  }
  const char separator = char_at(end);
  const auto two_digits = [&](std::size_t point, int below) {
    return char_at(point) == separator && digits_at(text, point + 1) >= 2 &&
           number_at(text, point + 1, 2) < below;
  };
  if (separator == '-' || separator == '_' || separator == '.') {
    // As in file names: all three parts, or it is something else.
    const bool whole = place != TimePlace::kAnywhere && first == 2 && two_digits(end, 60) &&
                       two_digits(end + 3, 61) && !is_digit(char_at(end + 6));
    return whole ? fraction(end + 6) - at : 0;
  }
  if (separator != ':' && lower(separator) != 'h') return 0;
  if (!two_digits(end, 60) || is_digit(char_at(end + 3))) return 0;
  end += 3;
  if (two_digits(end, 61)) end += 3;
  return fraction(end) - at;
}

/// +01:00, -0800, and names: UTC, CET, Europe/Berlin.
std::size_t zone_offset_length(std::string_view text, std::size_t at) {
  if (text[at] != '+' && text[at] != '-') return 0;
  const std::size_t hours = digits_at(text, at + 1);
  if (hours == 4) return 5;
  if (hours != 2 && hours != 1) return 0;
  const std::size_t end = at + 1 + hours;
  if (end < text.size() && text[end] == ':' && digits_at(text, end + 1) == 2) return hours + 4;
  return hours + 1;
}

std::size_t word_length(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && (is_word(text[end]) || text[end] == '\'') && !is_digit(text[end]))
    ++end;
  return end - at;
}

/// Splits the window into the pieces it holds.
std::vector<Atom> atoms_in(std::string_view text) {
  std::vector<Atom> atoms;
  const auto near = [&](std::size_t at, Piece piece) {
    return !atoms.empty() && atoms.back().piece == piece && at - atoms.back().end <= 3;
  };
  const auto near_number = [&](std::size_t begin, std::size_t end) {
    const bool before = !atoms.empty() && begin - atoms.back().end <= 5;
    std::size_t after = end;
    while (after < text.size() && (text[after] == ' ' || text[after] == '.')) ++after;
    return before || (after < text.size() && is_digit(text[after]));
  };
  std::size_t at = 0;
  while (at < text.size()) {
    // "2026-11-30T14:03": the letter belongs to neither.
    const bool behind_t =
        at > 0 && lower(text[at - 1]) == 't' && !atoms.empty() && atoms.back().end == at - 1;
    const bool starts = at == 0 || !is_word(text[at - 1]) || behind_t ||
                        (!atoms.empty() && atoms.back().end == at) ||
                        (is_digit(text[at]) && !is_digit(text[at - 1]) && !is_letter(text[at - 1]));
    if (!starts) {
      ++at;
      continue;
    }
    Atom atom{at, at, Piece::kDay};
    if (is_digit(text[at])) {
      const TimePlace place = behind_t                 ? TimePlace::kBehindT
                              : near(at, Piece::kDate) ? TimePlace::kBehindDate
                                                       : TimePlace::kAnywhere;
      const std::size_t time = time_length(text, at, place);
      const std::size_t date = time == 0 ? date_length(text, at) : 0;
      if (time > 0) {
        atom.end = at + time;
        atom.piece = Piece::kTime;
      } else if (date > 0) {
        atom.end = at + date;
        atom.piece = Piece::kDate;
      } else {
        const std::size_t digits = digits_at(text, at);
        atom.end = at + digits;
        if (digits == 4 && is_year(number_at(text, at, 4))) {
          atom.piece = Piece::kYear;
        } else if (digits > 2 || !is_day(number_at(text, at, digits))) {
          at = atom.end;
          continue;
        }
        const std::string suffix = folded(text.substr(atom.end, 2));
        if (suffix == "st" || suffix == "nd" || suffix == "rd" || suffix == "th") atom.end += 2;
      }
    } else if (text[at] == '+' || text[at] == '-') {
      const std::size_t zone = near(at, Piece::kTime) ? zone_offset_length(text, at) : 0;
      if (zone == 0) {
        ++at;
        continue;
      }
      atom.end = at + zone;
      atom.piece = Piece::kZone;
    } else if (is_word(text[at])) {
      std::size_t length = word_length(text, at);
      std::string word = folded(text.substr(at, length));
      for (const std::string_view half : {"a.m.", "p.m.", "o'clock"}) {
        if (folded(text.substr(at, half.size())) == half) {
          word = half;
          length = half.size();
        }
      }
      for (const std::string_view day :
           {"segunda-feira", "terça-feira", "quarta-feira", "quinta-feira", "sexta-feira"}) {
        if (folded(text.substr(at, day.size())) == day) {
          word = day;
          length = day.size();
        }
      }
      atom.end = at + length;
      static constexpr std::string_view kEveryday[] = {"march", "mars", "mayo", "maio"};
      const bool ambiguous = length <= 3 || contains(kEveryday, word);
      if (contains(kMonths, word) && (!ambiguous || near_number(at, atom.end))) {
        atom.piece = Piece::kMonth;
      } else if (contains(kWeekdays, word) && (length > 3 || near_number(at, atom.end) ||
                                               text.substr(atom.end).starts_with(","))) {
        atom.piece = Piece::kWeekday;
      } else if (contains(kHalfDays, word)) {
        const bool is_bare = length <= 4 && word != "noon";  // "am" and "uhr" need their number
        if (is_bare && !near(at, Piece::kTime) && !near(at, Piece::kDay)) {
          at = atom.end;
          continue;
        }
        atom.piece = Piece::kHalfDay;
      } else if (near(at, Piece::kTime) || near(at, Piece::kHalfDay)) {
        const bool region = text.substr(atom.end).starts_with("/");
        if (region) {
          atom.end += 1;
          while (atom.end < text.size() && (is_letter(text[atom.end]) || text[atom.end] == '_'))
            ++atom.end;
        } else if (!contains(kZones, word)) {
          at = atom.end;
          continue;
        }
        atom.piece = Piece::kZone;
      } else {
        at = atom.end;
        continue;
      }
    } else {
      ++at;
      continue;
    }
    at = atom.end;
    atoms.push_back(atom);
  }
  return atoms;
}

/// Whether nothing but joints stands between two pieces.
bool joined(std::string_view between) {
  if (between.size() > 12) return false;
  std::size_t at = 0;
  while (at < between.size()) {
    if (std::string_view(" ,._-/()[]@|;:T").find(between[at]) != std::string_view::npos) {
      ++at;
      continue;
    }
    const std::size_t length = word_length(between, at);
    if (length == 0 || !contains(kJoints, folded(between.substr(at, length)))) return false;
    at += length;
  }
  // A full stop that ends a sentence parts them.
  return between.find(". ") == std::string_view::npos || between.size() <= 2;
}

bool is_strong(Piece piece) {
  return piece == Piece::kTime || piece == Piece::kDate || piece == Piece::kMonth ||
         piece == Piece::kWeekday || piece == Piece::kHalfDay;
}

/// Years and days count beside a month, days also before "pm" and years behind a time ("Nov 30
/// 14:03:22 2026").
bool fits(const std::vector<Atom>& atoms, std::size_t first, std::size_t last, std::size_t i) {
  const Piece piece = atoms[i].piece;
  if (is_strong(piece) || piece == Piece::kZone) return true;
  const auto has = [&](std::size_t j, Piece wanted) {
    return j >= first && j <= last && j < atoms.size() && atoms[j].piece == wanted;
  };
  if (has(i + 1, Piece::kMonth) || (i > 0 && has(i - 1, Piece::kMonth))) return true;
  if (piece == Piece::kDay) return has(i + 1, Piece::kHalfDay);
  if (i > first &&
      (has(i - 1, Piece::kDay) || has(i - 1, Piece::kTime) || has(i - 1, Piece::kZone)))
    return std::any_of(atoms.begin() + static_cast<std::ptrdiff_t>(first),
                       atoms.begin() + static_cast<std::ptrdiff_t>(i),
                       [](const Atom& atom) { return atom.piece == Piece::kMonth; });
  return false;
}

/// Seconds, milliseconds, microseconds or nanoseconds since 1970, between 2001 and 2100.
bool is_epoch(std::string_view digits) {
  if (digits.size() != 10 && digits.size() != 13 && digits.size() != 16 && digits.size() != 19)
    return false;
  const int lead = number_at(digits, 0, 2);
  return lead >= 10 && lead <= 40;
}

/// "3 minutes ago", "uptime 812 s": a number that is a distance from now.
bool is_distance(std::string_view text, std::size_t begin, std::size_t end) {
  std::size_t at = end + white_space_run(text.substr(end));
  std::size_t length = word_length(text, at);
  const std::string unit = lowered(text.substr(at, length));
  static constexpr std::string_view kUnits[] = {
      "s",      "sec",     "secs", "second", "seconds", "ms", "min", "mins",
      "minute", "minutes", "h",    "hour",   "hours",   "d",  "day", "days"};
  if (!contains(kUnits, unit)) return false;
  at += length;
  at += white_space_run(text.substr(at));
  length = word_length(text, at);
  if (lowered(text.substr(at, length)) == "ago") return true;
  for (const std::string& word : words_before(text, begin, 3)) {
    if (word == "uptime" || word == "elapsed" || word == "since" || word == "age") return true;
  }
  return false;
}

}  // namespace

std::optional<TimeSpan> time_span_at(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  Range window = line_at(text, offset);
  if (offset - window.begin > kWindow) {
    window.begin = offset - kWindow;
    while (window.begin < offset && is_word(text[window.begin])) ++window.begin;
  }
  window.end = std::min(window.end, offset + kWindow);
  const std::string_view view = text.substr(window.begin, window.size());
  const std::size_t at = offset - window.begin;

  // One number: since 1970, or a distance from now.
  Range number{at, at};
  while (number.begin > 0 && is_digit(view[number.begin - 1])) --number.begin;
  while (number.end < view.size() && is_digit(view[number.end])) ++number.end;
  // Behind the point of 1764450000.123 the number in front of it counts.
  if (number.begin > 1 && view[number.begin - 1] == '.' && is_digit(view[number.begin - 2])) {
    Range whole{number.begin - 1, number.begin - 1};
    while (whole.begin > 0 && is_digit(view[whole.begin - 1])) --whole.begin;
    if (is_epoch(view.substr(whole.begin, whole.size()))) {
      return TimeSpan{window.begin + whole.begin, window.begin + number.end, true, true};
    }
  }
  const bool alone = number.size() > 0 &&
                     (number.begin == 0 || !is_letter(view[number.begin - 1])) &&
                     (number.end == view.size() || !is_letter(view[number.end]) ||
                      is_distance(view, number.begin, number.end));
  if (alone && (is_epoch(view.substr(number.begin, number.size())) ||
                is_distance(view, number.begin, number.end))) {
    return TimeSpan{window.begin + number.begin, window.begin + number.end, true, true};
  }

  const std::vector<Atom> atoms = atoms_in(view);
  for (std::size_t first = 0; first < atoms.size();) {
    std::size_t last = first;
    while (last + 1 < atoms.size() &&
           joined(view.substr(atoms[last].end, atoms[last + 1].begin - atoms[last].end)))
      ++last;
    const std::size_t next = last + 1;
    while (first < last && !fits(atoms, first, last, first)) ++first;
    while (last > first && !fits(atoms, first, last, last)) --last;
    const auto begin = atoms.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = atoms.begin() + static_cast<std::ptrdiff_t>(last) + 1;
    const bool strong = fits(atoms, first, last, first) &&
                        std::any_of(begin, end, [](const Atom& a) { return is_strong(a.piece); });
    if (strong && atoms[first].begin <= at && at <= atoms[last].end) {
      TimeSpan span{window.begin + atoms[first].begin, window.begin + atoms[last].end};
      span.has_time = std::any_of(begin, end, [](const Atom& a) {
        return a.piece == Piece::kTime || a.piece == Piece::kHalfDay;
      });
      return span;
    }
    first = next;
  }
  return std::nullopt;
}

}  // namespace pagewise::server::explain
