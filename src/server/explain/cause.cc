// SPDX-License-Identifier: Apache-2.0
#include "server/explain/cause.h"

#include "base/check.h"

namespace pagewise::server::explain {
namespace {

struct CauseRow {
  Cause cause;
  std::string_view name, words, fix;
};

constexpr std::string_view kBehind =
    "move it behind everything that stays the same, or leave it out";

constexpr CauseRow kRows[] = {
    {Cause::kTimeStamp, "time_stamp", "a time stamp that changes with every request", kBehind},
    {Cause::kDate, "date", "a date", kBehind},
    {Cause::kId, "id", "an identifier or nonce that changes with every request", kBehind},
    {Cause::kCounter, "counter", "a number that counts up", kBehind},
    {Cause::kToolOrder, "tool_order", "the same tools in another order",
     "send the tools in one fixed order"},
    {Cause::kKeyOrder, "key_order", "the same keys and values in another order",
     "write the keys in one fixed order (sort them)"},
    {Cause::kWhiteSpace, "white_space", "white space only",
     "write line ends, spaces and trailing newlines the same way every time"},
    {Cause::kBos, "bos", "a beginning-of-sequence token that the client spells",
     "leave it out: the server writes it"},
    {Cause::kTemplate, "template", "the same texts in other turns, roles or markup",
     "keep the form of the conversation: the same system turn, roles and blocks every time"},
    {Cause::kModel, "model", "another model", "ask for the same model: each has its own cache"},
    {Cause::kMoved, "moved", "shared text that stands behind changing text",
     "put what stays the same first and what changes last"},
};

const CauseRow& row(Cause cause) {
  for (const CauseRow& row : kRows) {
    if (row.cause == cause) return row;
  }
  PW_CHECK(false);
  return kRows[0];
}

}  // namespace

std::string_view cause_name(Cause cause) { return row(cause).name; }
std::string_view cause_words(Cause cause) { return row(cause).words; }
std::string_view cause_fix(Cause cause) { return row(cause).fix; }

}  // namespace pagewise::server::explain
