// SPDX-License-Identifier: Apache-2.0
// What an answer may be: a language of byte strings, built from parts.
//
// A grammar describes bytes, not tokens: any vocabulary can be held to it (vocabulary.h), and a
// token that ends in the middle of a word, a character or an escape is as good as any other. Parts
// are built bottom up and may be used any number of times; recursion goes through forward().
//
//   Builder builder;
//   const NodeId call = builder.sequence({builder.literal("{\"name\":\"f\",\"arguments\":"),
//                                         *builder.json_schema(schema, "tools.0.input_schema"),
//                                         builder.literal("}</tool_call>")});
//   const NodeId root = builder.repeat(
//       builder.text_until({{"<tool_call>", call}}, /*may_end=*/true), std::nullopt, 0,
//       kUnbounded);
//   Result<std::shared_ptr<const Grammar>> grammar = builder.build(root);
//
// Nesting is bounded (kNestMax), so that whatever is built can be finished: a part that needs more
// levels than are left is not begun.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "grammar/node.h"

namespace pagewise::grammar {

/// For repeat: as often as one likes.
inline constexpr uint32_t kUnbounded = std::numeric_limits<uint32_t>::max();
/// The largest finite bound of a repeat.
inline constexpr uint32_t kRepeatMax = 1U << 28;
/// Levels of JSON objects and arrays inside each other, recursion included.
inline constexpr uint32_t kNestMax = 32;
/// Parts of one grammar. A schema that needs more is refused.
inline constexpr uint32_t kNodesMax = 200'000;

/// A part of a grammar. Means something only to the Builder that it came from.
using NodeId = StrongId<struct GrammarNodeTag, uint32_t>;

/// Where free text ends: at the first place where `text` is complete; `then` must follow.
struct Trigger {
  std::string text;  // at least one byte
  NodeId then;
};

/// The bytes that stand for a control token in a grammar; no text contains them.
std::string control_spelling(TokenId token);

/// Thread: immutable, any number of threads at once.
class Grammar {
 public:
  /// By Builder::build.
  explicit Grammar(Program program) : program_(std::move(program)) {}

  const Program& program() const { return program_; }

 private:
  Program program_;
};

/// Thread: one at a time.
class Builder {
 public:
  Builder();

  /// Exactly these bytes; none of them is the empty string.
  NodeId literal(std::string_view bytes);
  /// One of these byte strings: as a choice of literals, but however many they are. At least one.
  NodeId words(const std::vector<std::string>& words);
  /// One byte of a set.
  NodeId byte_of(const ByteSet& set);
  /// Exactly this control token (<|tool_call|> and kin), which is no text. May stand in literal()
  /// and Trigger::text as control_spelling(token), too.
  NodeId control(TokenId token);

  NodeId sequence(std::vector<NodeId> parts);
  /// At least one alternative.
  NodeId choice(std::vector<NodeId> alternatives);
  NodeId optional(NodeId part);
  /// `min` to `max` times `item`, with `separator` between two of them. Neither may be able to be
  /// empty. Requires: min <= max; finite bounds up to
  /// kRepeatMax.
  NodeId repeat(NodeId item, std::optional<NodeId> separator, uint32_t min, uint32_t max);

  /// A part that is defined later; before build(). What it stands for must begin with a byte of its
  /// own before it comes to itself again.
  NodeId forward();
  void define(NodeId forward, NodeId part);
  /// One level of nesting: within kNestMax of these recursion ends.
  NodeId nest(NodeId part);

  /// Free text: any bytes, no control token, up to and including the first place where a trigger is
  /// complete; of several that end there, the longest. may_end: the whole output may instead end
  /// anywhere in the text, whatever would follow this part. Without triggers and without may_end
  /// nothing could ever end: refused by build().
  NodeId text_until(std::vector<Trigger> triggers, bool may_end);

  // JSON. Strings are valid UTF-8 with valid escapes (no lone surrogates); between two parts white
  // space is at most one space, behind a comma and behind a colon; numbers have at most 15 digits
  // before and behind the point and 2 in the exponent.
  NodeId json_value();
  NodeId json_object();  // any
  NodeId json_string();
  /// What validates against a JSON schema (docs/structured-output.md has the keywords).
  /// `where` is the schema's place in the request, for messages.
  /// Errors: kInvalidArgument or kUnsupported, "WHERE.properties.a.pattern: ...": one line that
  /// names the keyword. The builder is then as it was.
  Result<NodeId> json_schema(const json::value& schema, std::string_view where);

  /// Errors: kInvalidArgument for parts that can come to themselves without a byte, repeat nothing,
  /// or can never end within kNestMax levels; kUnsupported for more than kNodesMax parts. The
  /// builder is then empty.
  Result<std::shared_ptr<const Grammar>> build(NodeId root);

 private:
  friend class SchemaCompiler;

  /// Parts that are made once and used by all that need them.
  struct Common {
    std::optional<NodeId> value, object, string, integer, number, comma, colon;
  };
  /// How far the builder had come: everything is appended, so this is all that there was.
  struct Mark {
    std::size_t text, nodes, children, sets, tries, strings, texts;
    Common common;
  };
  Mark mark() const;
  void go_back(const Mark& mark);

  Status check_part(NodeId part);
  bool is_full() const { return program_.nodes.size() > kNodesMax; }
  NodeId add(const Node& node);
  NodeId add_with_children(Node::Kind kind, const std::vector<NodeId>& children);
  NodeId string_node(const StringRule& rule);
  uint32_t add_words(const std::vector<std::string>& words);
  NodeId digits(uint32_t min, uint32_t max);
  NodeId json_integer();
  NodeId json_number();
  NodeId json_array_of(NodeId item, uint32_t min, uint32_t max);
  NodeId comma();
  NodeId colon();

  Program program_;
  Common common_;
};

/// An output that validates against `schema`, and nothing else.
Result<std::shared_ptr<const Grammar>> grammar_of_schema(const json::value& schema,
                                                         std::string_view where);
/// An output that is one JSON object.
std::shared_ptr<const Grammar> any_json_object();

}  // namespace pagewise::grammar
