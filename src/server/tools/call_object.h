// SPDX-License-Identifier: Apache-2.0
// One call as an object in a model's text: {"name": "f", "arguments": {...}}, read byte by byte.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/tools/json_scanner.h"

namespace pagewise::server::tools {

/// The name may also stand under "tool_name" or "function", the arguments under "parameters"; other
/// members are read over. Arguments may be a string that spells an object, and may be absent.
class CallObject {
 public:
  /// From the object's first brace. kBad also when a name is no string or one stands there twice.
  JsonScanner::State push(char c);

  const std::optional<std::string>& name() const { return name_; }
  /// The arguments' own bytes, as far as they came: once they are known to be an object.
  std::string_view arguments() const;
  /// Once the object has ended: an object's JSON, "{}" when there were none, or nothing when they
  /// are something else.
  std::optional<std::string> whole_arguments() const;

 private:
  bool end_member();

  JsonScanner scanner_;
  std::string key_;    // with its quotes
  std::string value_;  // of the member being read
  bool in_member_ = false;
  bool value_begun_ = false;
  bool is_arguments_ = false;
  std::optional<std::string> name_;
  std::optional<std::string> arguments_;
};

}  // namespace pagewise::server::tools
