// SPDX-License-Identifier: Apache-2.0
// What an expression of the template language evaluates to. Strings are ropes; everything that can
// be large is shared and never changes, except namespaces, which the session owns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/jinja/rope.h"

namespace pagewise::text::jinja {

class Value;
struct List;
struct Dict;
struct Loop;
struct Namespace;
struct Builtin;
struct Macro;
struct Closure;

/// A missing variable, key or index: prints as nothing, is false, has no attributes.
struct Undefined {
  std::string name;  // for the error message of its first real use
};
struct None {};
/// What a name can be called as: a macro of the template, or a function that a rendering was given.
struct Callable {
  const Macro* macro = nullptr;
  const Builtin* builtin = nullptr;
  std::size_t scopes = 1;  // a macro sees the scopes around its definition
  std::shared_ptr<const Closure> closure =
      nullptr;  // of a {% call %} body: those scopes themselves
};

using RopePtr = std::shared_ptr<const Rope>;
using ListPtr = std::shared_ptr<const List>;
using DictPtr = std::shared_ptr<const Dict>;
using LoopPtr = std::shared_ptr<const Loop>;

class Value {
 public:
  Value() : data_(Undefined{}) {}
  // NOLINTBEGIN: implicit by design, as the alternatives of a variant are
  Value(Undefined value) : data_(std::move(value)) {}
  Value(None value) : data_(value) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(Rope value) : data_(std::make_shared<const Rope>(std::move(value))) {}
  Value(ListPtr value) : data_(std::move(value)) {}
  Value(DictPtr value) : data_(std::move(value)) {}
  Value(LoopPtr value) : data_(std::move(value)) {}
  Value(Namespace* value) : data_(value) {}
  Value(Callable value) : data_(std::move(value)) {}
  // NOLINTEND

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }

  // Null when the value is of another type.
  const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&data_); }
  const double* floating() const { return std::get_if<double>(&data_); }
  const Rope* text() const { return get_shared<RopePtr>(); }
  const List* list() const { return get_shared<ListPtr>(); }
  const Dict* dict() const { return get_shared<DictPtr>(); }
  const Loop* loop() const { return get_shared<LoopPtr>(); }
  Namespace* name_space() const {
    const auto* pointer = std::get_if<Namespace*>(&data_);
    return pointer != nullptr ? *pointer : nullptr;
  }
  const Callable* callable() const { return std::get_if<Callable>(&data_); }
  /// Requires: list() is not null.
  ListPtr shared_list() const { return *std::get_if<ListPtr>(&data_); }

  /// Booleans count as 0 and 1. Empty for what is no number.
  bool is_integral() const { return integer() != nullptr || boolean() != nullptr; }
  bool is_number() const { return is_integral() || floating() != nullptr; }
  int64_t integral() const { return integer() != nullptr ? *integer() : (*boolean() ? 1 : 0); }
  double number() const {
    return floating() != nullptr ? *floating() : static_cast<double>(integral());
  }

 private:
  template <typename Pointer>
  auto get_shared() const -> decltype(std::declval<Pointer>().get()) {
    const auto* pointer = std::get_if<Pointer>(&data_);
    return pointer != nullptr ? pointer->get() : nullptr;
  }

  std::variant<Undefined, None, bool, int64_t, double, RopePtr, ListPtr, DictPtr, LoopPtr,
               Namespace*, Callable>
      data_;
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;  // only printing tells
  bool is_group = false;  // of groupby: its two items also have the names grouper and list
  uint32_t depth = 1;     // 1 + the deepest item's
  uint64_t weight = 0;    // the items', see weight_of()
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // keys are text, in order of insertion
  uint32_t depth = 1;
  uint64_t weight = 0;

  const Value* find(std::string_view key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> values;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

/// The `loop` variable of one iteration.
struct Loop {
  /// What loop.changed() was last asked about, for all iterations of one walk.
  struct State {
    std::shared_ptr<const Value> seen;
  };

  ListPtr items;
  std::size_t index = 0;
  std::shared_ptr<State> state;

  /// Undefined for an unknown name.
  Value attribute(std::string_view name) const;
};

/// Containers nest at most so deep: they are compared, printed and destroyed recursively.
inline constexpr uint32_t kValueDepthMax = 64;

/// Errors: kInvalidArgument when the nesting gets too deep.
Result<Value> make_list(std::vector<Value> items, bool is_tuple = false);
/// A pair of groupby.
Result<Value> make_group(Value grouper, Value members);
Result<Value> make_dict(std::vector<std::pair<Value, Value>> entries);
/// Text of the template's own origin.
Value make_text(std::string_view text);

/// About the bytes that printing takes; an item that stands in a list twice counts twice.
/// Saturates.
uint64_t weight_of(const Value& value);
/// How deep containers nest in it; 0 for what is no container.
uint32_t depth_of(const Value& value);

bool truthy(const Value& value);
/// Numbers by value, text by bytes (origins do not matter), containers element by element.
/// Cost: the lesser weight.
bool equal(const Value& a, const Value& b);
/// "int", "str", ...: the names that template authors know.
std::string_view type_name(const Value& value);

/// What {{ value }} prints. Cost: the weight, as of the other text forms. Errors: kInvalidArgument
/// for what has no text form here.
Result<Rope> to_text(const Value& value);
/// What a value looks like inside a printed list.
Result<Rope> to_literal(const Value& value);
struct JsonStyle {
  int indent = -1;  // < 0: one line
  bool ascii = false;
  bool sort_keys = false;
  std::string comma = ", ";
  std::string colon = ": ";
};
/// JSON as in Python's json.dumps().
Result<Rope> to_json(const Value& value, const JsonStyle& style);
/// The shortest digits that read back as the same number, always with a point or an exponent.
std::string format_float(double value);

}  // namespace pagewise::text::jinja
