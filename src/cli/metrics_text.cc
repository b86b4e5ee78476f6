// SPDX-License-Identifier: Apache-2.0
#include "cli/metrics_text.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace pagewise::cli {
namespace {

/// The labels of `{name="value",...}`; `text` is what stands between the braces.
std::map<std::string, std::string, std::less<>> parse_labels(std::string_view text) {
  std::map<std::string, std::string, std::less<>> out;
  while (!text.empty()) {
    const std::size_t equals = text.find("=\"");
    if (equals == std::string_view::npos) break;
    const std::string name(text.substr(0, equals));
    text.remove_prefix(equals + 2);
    std::string value;
    std::size_t at = 0;
    for (; at < text.size() && text[at] != '"'; ++at) {
      if (text[at] == '\\' && at + 1 < text.size()) ++at;
      value += text[at];
    }
    out[name] = value;
    text.remove_prefix(at < text.size() ? at + 1 : at);
    if (text.starts_with(',')) text.remove_prefix(1);
  }
  return out;
}

}  // namespace

MetricsText::MetricsText(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#') continue;
    MetricSample sample;
    // A brace within a label's value is none that ends the labels: the last one does.
    const std::size_t open = line.find('{');
    const std::size_t close = line.rfind('}');
    std::string_view name = line.substr(0, line.find_first_of(" {"));
    std::string_view number = line;
    if (open != std::string_view::npos && close != std::string_view::npos && open < close) {
      sample.labels = parse_labels(line.substr(open + 1, close - open - 1));
      number.remove_prefix(close + 1);
    } else {
      number.remove_prefix(name.size());
    }
    number.remove_prefix(std::min(number.find_first_not_of(' '), number.size()));
    const auto [at, error] =
        std::from_chars(number.data(), number.data() + number.size(), sample.value);
    if (error != std::errc()) continue;
    samples_.emplace(std::string(name), std::move(sample));
  }
}

std::vector<MetricSample> MetricsText::find(std::string_view name) const {
  std::vector<MetricSample> out;
  const auto [begin, end] = samples_.equal_range(name);
  for (auto at = begin; at != end; ++at) out.push_back(at->second);
  return out;
}

std::optional<double> MetricsText::value(std::string_view name) const {
  const std::vector<MetricSample> found = find(name);
  return found.size() == 1 ? std::optional(found.front().value) : std::nullopt;
}

}  // namespace pagewise::cli
