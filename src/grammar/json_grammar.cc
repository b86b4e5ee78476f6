// SPDX-License-Identifier: Apache-2.0
// JSON's own grammar as parts. White space is bounded, digits too: a model that knows nothing must
// not be able to write them for ever.
#include "grammar/grammar.h"
#include "grammar/number_range.h"

namespace pagewise::grammar {
namespace {

constexpr uint32_t kDigitsMax = kIntegerDigitsMax;  // before the point and behind it
constexpr uint32_t kExponentDigitsMax = 2;

ByteSet bytes_of(std::string_view bytes) {
  ByteSet set;
  for (const char c : bytes) set.set(static_cast<uint8_t>(c));
  return set;
}

NodeId once(std::optional<NodeId>& kept, NodeId made) {
  kept = made;
  return made;
}

}  // namespace

NodeId Builder::comma() {
  return common_.comma ? *common_.comma
                       : once(common_.comma, sequence({literal(","), optional(literal(" "))}));
}

NodeId Builder::colon() {
  return common_.colon ? *common_.colon
                       : once(common_.colon, sequence({literal(":"), optional(literal(" "))}));
}

NodeId Builder::digits(uint32_t min, uint32_t max) {
  return repeat(byte_of(byte_range('0', '9')), std::nullopt, min, max);
}

NodeId Builder::json_integer() {
  if (common_.integer) return *common_.integer;
  const NodeId large = sequence({byte_of(byte_range('1', '9')), digits(0, kDigitsMax - 1)});
  return once(common_.integer, sequence({optional(literal("-")), choice({literal("0"), large})}));
}

NodeId Builder::json_number() {
  if (common_.number) return *common_.number;
  const NodeId fraction = sequence({literal("."), digits(1, kDigitsMax)});
  const NodeId exponent = sequence(
      {byte_of(bytes_of("eE")), optional(byte_of(bytes_of("+-"))), digits(1, kExponentDigitsMax)});
  return once(common_.number, sequence({json_integer(), optional(fraction), optional(exponent)}));
}

NodeId Builder::json_string() {
  return common_.string ? *common_.string : once(common_.string, string_node({}));
}

NodeId Builder::json_array_of(NodeId item, uint32_t min, uint32_t max) {
  return nest(sequence({literal("["), repeat(item, comma(), min, max), literal("]")}));
}

NodeId Builder::json_object() {
  if (common_.object) return *common_.object;
  const NodeId member = sequence({json_string(), colon(), json_value()});
  return once(common_.object,
              nest(sequence({literal("{"), repeat(member, comma(), 0, kUnbounded), literal("}")})));
}

NodeId Builder::json_value() {
  if (common_.value) return *common_.value;
  const NodeId value = once(common_.value, forward());
  define(value, choice({words({"true", "false", "null"}), json_number(), json_string(),
                        json_object(), json_array_of(value, 0, kUnbounded)}));
  return value;
}

std::shared_ptr<const Grammar> any_json_object() {
  static const std::shared_ptr<const Grammar> grammar = [] {
    Builder builder;
    const NodeId root = builder.json_object();
    Result<std::shared_ptr<const Grammar>> built = builder.build(root);
    PW_CHECK(built.has_value());
    return *built;
  }();
  return grammar;
}

}  // namespace pagewise::grammar
