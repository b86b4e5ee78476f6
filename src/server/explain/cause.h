// SPDX-License-Identifier: Apache-2.0
// Why one prompt could not read what an earlier one left in the cache: what the two look like, and
// the likely causes that a person can do something about.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pagewise::server::explain {

enum class Cause : uint8_t {
  kTimeStamp,   // a time of day, or a date with one
  kDate,        // a date without a time
  kId,          // a UUID, a digest, a session's or request's name, a nonce
  kCounter,     // a number that counts
  kToolOrder,   // the same tools in another order
  kKeyOrder,    // the same keys and values in another order
  kWhiteSpace,  // nothing but white space
  kBos,         // a beginning-of-sequence token, spelled by the client
  kTemplate,    // the same texts in other turns, roles or markup
  kModel,       // another model
  kMoved,       // shared text stands behind changing text
};

/// As in the answer's field `cause`: "time_stamp".
std::string_view cause_name(Cause cause);
/// For a person: what it is, and what to do about it.
std::string_view cause_words(Cause cause);
std::string_view cause_fix(Cause cause);

/// Where a block stands in the request that the client sent.
struct Place {
  static constexpr int32_t kSystem = -1;  // the `system` field
  static constexpr int32_t kTools = -2;   // the `tools` field as a whole
  int32_t message = kSystem;              // else an index into `messages`
  int32_t block = 0;                      // index into its content
  bool operator==(const Place&) const = default;
};

/// One block of a prompt, in prompt order.
struct Block {
  std::string role;  // "system", "user", "assistant", "tools"
  std::string text;  // valid UTF-8
  Place place;
};

struct Document {
  std::string model;  // as asked for
  std::vector<Block> blocks;
};

}  // namespace pagewise::server::explain
