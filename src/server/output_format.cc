// SPDX-License-Identifier: Apache-2.0
#include "server/output_format.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace pagewise::server {
namespace {

using GrammarPtr = std::shared_ptr<const grammar::Grammar>;

constexpr std::size_t kNameMax = 64;  // the vendor's own bound

bool is_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= kNameMax && std::all_of(name.begin(), name.end(), allowed);
}

/// `schema` of the object at `path`. `param`: which field a schema that cannot be followed is
/// blamed on.
GrammarPtr parse_schema(Fields& fields, const json::object& in, std::string_view path,
                        std::string_view param) {
  const json::object* schema = fields.object(in, path, "schema");
  const std::string where = fields.key(path, "schema");
  if (fields.failed()) return nullptr;
  if (schema == nullptr) {
    fields.missing(where);
    return nullptr;
  }
  const Result<GrammarPtr> built = grammar::grammar_of_schema(in.at("schema"), where);
  if (!built) fields.refuse(param, built.error().message);
  return built ? *built : nullptr;
}

}  // namespace

GrammarPtr parse_response_format(Fields& fields, const json::object& body) {
  constexpr std::string_view kPath = "response_format";
  const json::object* format = fields.object(body, "", kPath);
  if (format == nullptr) return nullptr;
  const auto type = fields.string(*format, kPath, "type");
  if (!type) {
    fields.missing("response_format.type");
    return nullptr;
  }
  if (*type == "text") return nullptr;
  if (*type == "json_object") return grammar::any_json_object();
  if (*type != "json_schema") {
    fields.invalid("response_format.type", "must be 'text', 'json_object' or 'json_schema'");
    return nullptr;
  }
  constexpr std::string_view kSchemaPath = "response_format.json_schema";
  const json::object* named = fields.object(*format, kPath, "json_schema");
  if (named == nullptr) {
    fields.missing(kSchemaPath);
    return nullptr;
  }
  const auto name = fields.string(*named, kSchemaPath, "name");
  if (!name) {
    fields.missing("response_format.json_schema.name");
  } else if (!is_name(*name)) {
    fields.invalid("response_format.json_schema.name",
                   "must be 1 to 64 letters, digits, underscores or hyphens");
  }
  // The answer follows the schema also where `strict` is false: that asks for no less.
  fields.boolean(*named, kSchemaPath, "strict");
  fields.string(*named, kSchemaPath, "description");
  return parse_schema(fields, *named, kSchemaPath, kPath);
}

GrammarPtr parse_output_config_format(Fields& fields, const json::object& body) {
  const json::object* config = fields.object(body, "", "output_config");
  const json::object* format =
      config == nullptr ? nullptr : fields.object(*config, "output_config", "format");
  if (format == nullptr) return nullptr;
  constexpr std::string_view kPath = "output_config.format";
  const auto type = fields.string(*format, kPath, "type");
  if (!type) {
    fields.missing("output_config.format.type");
    return nullptr;
  }
  if (*type != "json_schema") {
    fields.invalid("output_config.format.type", "must be 'json_schema'");
    return nullptr;
  }
  return parse_schema(fields, *format, kPath, kPath);
}

}  // namespace pagewise::server
