// SPDX-License-Identifier: Apache-2.0
// A JSON schema becomes a grammar: what validates against it, in the order in which the schema
// names the properties. docs/structured-output.md lists the keywords.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/number_range.h"

namespace pagewise::grammar {

/// Thread: one compilation on one thread.
class SchemaCompiler {
 public:
  /// Builder and schema must outlive the compiler.
  SchemaCompiler(Builder& builder, const json::value& schema, std::string_view where)
      : builder_(builder), root_(schema), where_(where) {}

  /// Errors: those of Builder::json_schema.
  Result<NodeId> compile();

 private:
  struct Property {
    std::string_view name;
    NodeId value;
    bool required = false;
  };

  Result<NodeId> schema_node(const json::value& schema, const std::string& path);
  Result<NodeId> reference(const json::value& target, const std::string& path);
  Result<NodeId> alternatives(const json::object& schema, std::string_view keyword,
                              const std::string& path);
  Result<NodeId> values(const json::object& schema, const std::string& path);
  Result<std::vector<std::string_view>> types(const json::object& schema, const std::string& path);
  Result<NodeId> of_type(std::string_view type, const json::object& schema,
                         const std::string& path);
  Result<NodeId> object(const json::object& schema, const std::string& path);
  Result<std::optional<NodeId>> additional(const json::object& schema, const std::string& path);
  NodeId members(const std::vector<Property>& properties, std::optional<NodeId> additional);
  Result<NodeId> array(const json::object& schema, const std::string& path);
  Result<NodeId> string(const json::object& schema, const std::string& path);
  Result<NodeId> number(bool integer, const json::object& schema, const std::string& path);
  Result<std::optional<NumberBound>> bound(const json::object& schema, bool lower, bool integer,
                                           const std::string& path);
  Result<std::optional<uint32_t>> count(const json::object& schema, std::string_view keyword,
                                        const std::string& path);
  NodeId fixed(const json::value& value);
  NodeId array_of(const std::vector<NodeId>& items, std::optional<NodeId> more);

  Builder& builder_;
  const json::value& root_;
  const std::string where_;
  std::map<std::string, NodeId> references_;  // by JSON pointer
  std::deque<std::pair<std::string, NodeId>> pending_;
};

}  // namespace pagewise::grammar
