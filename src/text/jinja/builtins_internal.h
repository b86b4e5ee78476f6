// SPDX-License-Identifier: Apache-2.0
// What the builtins' own files share: builtins.cc (containers, numbers, tests, functions),
// builtins_text.cc, builtins_lists.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "text/jinja/builtins.h"

namespace pagewise::text::jinja {

inline Error fail(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

/// The subject of a text method, and of a dictionary's.
Result<const Rope*> subject_text(const Call& call);
Result<const Dict*> subject_dict(const Call& call);
/// Argument `index` as text; null when absent or none.
Result<const Rope*> text_argument(const Call& call, std::size_t index);
Result<int64_t> integer_argument(const Call& call, std::size_t index, int64_t otherwise);
/// Is argument `index` given and true?
bool flag(const Call& call, std::size_t index);

enum Side { kLeft = 1, kRight = 2, kBoth = 3 };
/// Without the white space on the sides asked for.
Rope strip(const Rope& text, int sides);
/// In small letters. Errors: other than ASCII.
Result<Value> lower_case(const Call& call, const Rope& text);
/// The items' texts with `separator` between them.
Result<Value> join(const Call& call, const Value& items, const Rope& separator, bool only_text);

// Each file's own names; the find_ functions look into all of them.
std::span<const Builtin> text_filters();
std::span<const Builtin> text_methods();
std::span<const Builtin> text_tests();
std::span<const Builtin> list_filters();

}  // namespace pagewise::text::jinja
