// SPDX-License-Identifier: Apache-2.0
// The filters, tests, methods and functions of the template language that are offered. The parser
// looks names and arguments up here, so that what is missing is refused when a template is
// compiled.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/strings.h"
#include "text/jinja/value.h"

namespace pagewise::text::jinja {

/// What one rendering may spend, and the namespaces it creates.
class Session {
 public:
  // A prompt of 10 MB costs about 3 M units, a plain node of a template one: the bound is a second
  // or two of work, and some hundred megabytes of values kept.
  static constexpr uint64_t kWorkMax = 20'000'000;
  static constexpr std::size_t kTextBytesMax = std::size_t{64} << 20;
  static constexpr std::size_t kListItemsMax = 1'000'000;

  /// Errors: kInvalidArgument when the work is used up.
  Status spend(uint64_t units);
  /// Pays for a string about to be made. Errors: as spend(), and when it is over kTextBytesMax.
  Status spend_text(std::size_t bytes);
  /// For a text of `size` bytes that becomes `added` longer: pays for what is added, and holds the
  /// whole against the limit.
  Status spend_growth(std::size_t size, std::size_t added);
  /// Pays for a list about to be made. Errors: as spend(), and when it is over kListItemsMax.
  Status spend_list(std::size_t items);
  /// The same for a list of new texts: each costs an allocation.
  Status spend_text_list(std::size_t items);
  /// Pays for find_text(): long needles take a slower search.
  Status spend_find(std::size_t text, std::size_t wanted) {
    return spend(1 + (text + wanted) / (wanted > kFindShortBytes ? 4 : 16));
  }
  /// Pays for comparing a name with up to `names` others.
  Status spend_search(std::size_t names) { return spend(1 + names / 16); }
  Namespace* make_namespace();

  std::optional<int64_t> now;  // seconds since 1970 in local time, for strftime_now

 private:
  uint64_t spent_ = 0;
  std::deque<Namespace> namespaces_;
};

/// One call, arguments bound to the builtin's parameters.
struct Call {
  std::string_view name;
  const Value& subject;                              // what is filtered, tested, or owns the method
  std::vector<std::optional<Value>> arguments;       // in the order of Builtin::parameters
  std::vector<Value> rest;                           // Builtin::any_positional
  std::vector<std::pair<std::string, Value>> named;  // Builtin::any_named
  Session& session;
};

struct Builtin {
  std::string_view name;
  /// Errors: kInvalidArgument; the evaluator adds the line.
  Result<Value> (*function)(const Call& call);
  std::vector<std::string_view> parameters;
  uint32_t required = 0;  // leading parameters that must be given
  bool any_positional = false;
  bool any_named = false;
  bool raises = false;  // its error is the template's own sentence and stays as it is
};

/// strftime_now(format), which exists only in a rendering that was given the time.
const Builtin& strftime_function();

/// Null when `name` is not offered.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_method(std::string_view name);
const Builtin* find_function(std::string_view name);

/// to_text(), paid for.
Result<Rope> print(const Value& value, Session& session);
/// equal(), paid for.
Result<bool> compare_equal(const Value& a, const Value& b, Session& session);

/// The items that a `for` walks: list items, dictionary keys, characters; none of an undefined
/// value. Errors: kInvalidArgument for what cannot be walked.
Result<Value> to_list(const Value& value, Session& session);

}  // namespace pagewise::text::jinja
