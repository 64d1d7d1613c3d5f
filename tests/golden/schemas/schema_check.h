#pragma once
// Whether a JSON text is valid against a schema: an own, plain reading of the specification that
// shares nothing with what makes grammars of schemas.

#include <nlohmann/json.hpp>
#include <string>

namespace hearth::golden {

/// `schema` has only keywords that the compiler knows. False for what is no JSON.
bool is_valid_against(const nlohmann::json& schema, const std::string& text);

}  // namespace hearth::golden
