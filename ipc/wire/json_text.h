#pragma once
// Pieces of JSON written straight into a text: for what is said once a token, where a tree of
// values would cost more than all the rest.

#include <string>
#include <string_view>

namespace hearth::ipc {

/// `text` (UTF-8) appended as a JSON string, quotes included.
void append_quoted(std::string_view text, std::string* out);
/// What the JSON string `quoted` says, appended. It is one, quotes included: see quoted_bytes().
void append_unquoted(std::string_view quoted, std::string* out);
/// The shortest decimal that reads back as this float; null of what is no number.
void append_number(float value, std::string* out);

/// Bytes of the JSON string at the front of `json`, quotes included; 0: there is none. Whether its
/// bytes are UTF-8 is not looked at.
size_t quoted_bytes(std::string_view json);
/// The same of a JSON number.
size_t number_bytes(std::string_view json);

}  // namespace hearth::ipc
