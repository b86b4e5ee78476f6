// SPDX-License-Identifier: Apache-2.0
// A compiled template: statements over expressions. Immutable once parsed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/value.h"

namespace pagewise::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class Operator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kConcatenate,
  kAnd,
  kOr,
  kEqual,
  kUnequal,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
  kNot,
  kNegative,
  kPositive,
};

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
/// subject.name (attribute) or subject[key].
struct Attribute {
  ExprPtr subject;
  std::string name;
};
struct Subscript {
  ExprPtr subject;
  ExprPtr key;
};
/// subject[start:stop:step]; each may be null.
struct Slice {
  ExprPtr subject;
  ExprPtr start;
  ExprPtr stop;
  ExprPtr step;
};
/// A filter, test, method (subject set) or function (subject null).
struct Invocation {
  const Builtin* builtin = nullptr;
  ExprPtr subject;
  std::vector<ExprPtr> arguments;  // by parameter; null: not given
  std::vector<ExprPtr> rest;
  std::vector<std::pair<std::string, ExprPtr>> named;
};
/// name(...) of a macro, or of a function that only some renderings have.
struct NamedCall {
  std::string name;
  std::vector<ExprPtr> arguments;
  std::vector<std::pair<std::string, ExprPtr>> named;
};
struct Unary {
  Operator op;
  ExprPtr operand;
};
struct Binary {
  Operator op;
  ExprPtr left;
  ExprPtr right;
};
/// first op0 rest0 op1 rest1 ...: all must hold.
struct Comparison {
  ExprPtr first;
  std::vector<std::pair<Operator, ExprPtr>> rest;
};
struct Conditional {
  ExprPtr condition;
  ExprPtr then;
  ExprPtr otherwise;  // null: undefined
};
struct ListDisplay {
  std::vector<ExprPtr> items;
  bool is_tuple = false;
};
struct DictDisplay {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};

struct Expr {
  uint32_t line = 0;
  uint32_t depth = 1;  // 1 + the deepest operand's; bounded by the parser, for recursion
  std::variant<Literal, Name, Attribute, Subscript, Slice, Invocation, NamedCall, Unary, Binary,
               Comparison, Conditional, ListDisplay, DictDisplay>
      node;
};

struct Statement;
using Body = std::vector<Statement>;

struct Output {
  std::string text;
};
struct Print {
  ExprPtr value;
};
struct If {
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct For {
  std::vector<std::string> targets;  // several: each item is unpacked
  ExprPtr items;
  ExprPtr filter;  // may be null
  Body body;
  Body otherwise;  // when nothing was walked
};
struct Set {
  std::vector<std::string> targets;  // several: the value is unpacked
  std::string attribute;             // not empty: targets[0].attribute, a namespace's
  ExprPtr value;
};
/// {% set name %} ... {% endset %}, and {% filter ... %} ... {% endfilter %}, which has no target
/// and prints. `filters` applies the filters to the variable kCaptured; null: none.
inline constexpr std::string_view kCaptured = "{captured}";
struct Capture {
  std::string target;
  ExprPtr filters;
  Body body;
};
/// {% macro name(a, b=1) %} ... {% endmacro %}
struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // by parameter; null: none
  Body body;
  // What the body reads of what it was called with beyond its parameters; others are refused.
  bool reads_varargs = false, reads_kwargs = false, reads_caller = false;
};
/// {% call(parameters) macro(...) %} ... {% endcall %}: the macro may call the body as caller().
struct CallBlock {
  ExprPtr call;  // a NamedCall
  Macro body;
};
/// {% with a = 1, b = 2 %} ... {% endwith %}: all values are read before any name is set.
struct With {
  std::vector<std::string> targets;
  std::vector<ExprPtr> values;
  Body body;
};
/// A body in a scope of its own: {% generation %}.
struct Block {
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  uint32_t line = 0;
  std::variant<Output, Print, If, For, Set, Capture, Macro, CallBlock, With, Block, Break, Continue>
      node;
};

}  // namespace pagewise::text::jinja
