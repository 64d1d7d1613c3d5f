#pragma once
// Whether a JSON text is valid against a schema: a plain reading of the specification that shares
// no code with the compiler of schemas.

#include <nlohmann/json.hpp>
#include <string>

namespace hearth::golden {

/// `schema` has only keywords that the compiler knows. False for text that is not JSON.
bool is_valid_against(const nlohmann::json& schema, const std::string& text);

}  // namespace hearth::golden
