// SPDX-License-Identifier: Apache-2.0
#include "text/detokenizer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/utf8.h"

namespace pagewise::text {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

void Utf8Assembler::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = std::move(pending_);
    joined += bytes;
    bytes = joined;
    pending_.clear();
  }
  while (!bytes.empty()) {
    const std::size_t valid = utf8_valid_prefix(bytes);
    out += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    const Utf8Unit unit = utf8_unit(bytes);
    if (unit.kind == Utf8Kind::kIncomplete) {
      pending_ = bytes;
      break;
    }
    out += kReplacement;
    bytes.remove_prefix(unit.length);
  }
}

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    PW_CHECK(!text.empty());
    Stop stop;
    // borders[i]: the longest proper prefix of text[0..i] that is also its suffix (Knuth, Morris,
    // Pratt, 1977).
    stop.borders.assign(text.size(), 0);
    std::size_t border = 0;
    for (std::size_t i = 1; i < text.size(); ++i) {
      while (border > 0 && text[i] != text[border]) border = stop.borders[border - 1];
      if (text[i] == text[border]) ++border;
      stop.borders[i] = border;
    }
    stop.text = std::move(text);
    stops_.push_back(std::move(stop));
  }
}

std::optional<std::size_t> StopMatcher::push(std::string_view text, std::string& out) {
  PW_CHECK(!matched_);
  if (stops_.empty()) {
    out += text;
    return std::nullopt;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::optional<std::size_t> found;
    for (std::size_t s = 0; s < stops_.size(); ++s) {
      Stop& stop = stops_[s];
      while (stop.matched > 0 && text[i] != stop.text[stop.matched]) {
        stop.matched = stop.borders[stop.matched - 1];
      }
      if (text[i] == stop.text[stop.matched]) ++stop.matched;
      if (stop.matched < stop.text.size()) continue;
      if (!found || stop.text.size() > stops_[*found].text.size()) found = s;
      // Never reached again: the caller stops here. Kept in range all the same.
      stop.matched = stop.borders[stop.matched - 1];
    }
    if (!found) continue;
    held_ += text.substr(0, i + 1);
    out.append(held_, 0, held_.size() - stops_[*found].text.size());
    held_.clear();
    matched_ = true;
    return found;
  }
  // What the furthest stop has matched so far may still become it; nothing else can.
  std::size_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max(keep, stop.matched);
  held_ += text;
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return std::nullopt;
}

void StopMatcher::finish(std::string& out) {
  out += held_;
  held_.clear();
}

}  // namespace pagewise::text
