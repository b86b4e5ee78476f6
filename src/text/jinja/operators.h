// SPDX-License-Identifier: Apache-2.0
// Arithmetic, comparison, indexing and slicing of values.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/builtins.h"
#include "text/jinja/value.h"

namespace pagewise::text::jinja {

/// Errors of all: kInvalidArgument, naming the types or the undefined name; without a line.
Result<Value> apply_unary(Operator op, const Value& operand);
/// Not kAnd and kOr: those do not always evaluate their right side.
Result<Value> apply_binary(Operator op, const Value& left, const Value& right, Session& session);
Result<bool> apply_comparison(Operator op, const Value& left, const Value& right, Session& session);

/// -1, 0 or 1: how numbers, texts, and lists of such are ordered. Cost: the lesser weight. Errors:
/// kInvalidArgument for values that have no order.
Result<int> compare_values(const Value& left, const Value& right);

/// value.name: a namespace's, loop's or dictionary's; else undefined. Errors: on an undefined
/// value.
Result<Value> get_attribute(const Value& value, std::string_view name, Session& session);
/// value[key]: undefined when there is no such item. Errors: on an undefined value.
Result<Value> get_item(const Value& value, const Value& key, Session& session);
/// value[start:stop:step] of a list or text, as Python does it.
Result<Value> get_slice(const Value& value, const Value& start, const Value& stop,
                        const Value& step, Session& session);

/// The error of using an undefined value.
Error undefined_error(const Value& value);

}  // namespace pagewise::text::jinja
