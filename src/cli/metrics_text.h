// SPDX-License-Identifier: Apache-2.0
// The numbers of a server's /metrics, read back: the Prometheus text format, version 0.0.4, as far
// as servers write it (no time stamps, no escapes in what is asked for).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pagewise::cli {

struct MetricSample {
  std::map<std::string, std::string, std::less<>> labels;
  double value = 0;
};

class MetricsText {
 public:
  explicit MetricsText(std::string_view text);

  /// All samples of a name, in the order of the text.
  std::vector<MetricSample> find(std::string_view name) const;
  /// The only sample of a name; nullopt when there is none, or several.
  std::optional<double> value(std::string_view name) const;

 private:
  std::multimap<std::string, MetricSample, std::less<>> samples_;
};

}  // namespace pagewise::cli
