#pragma once
// JSON written directly into a string, for messages sent once per token, where a tree of values
// would cost more than everything else.

#include <string>
#include <string_view>

namespace hearth::ipc {

/// Appends `text` (UTF-8) as a JSON string, quotes included.
void append_quoted(std::string_view text, std::string* out);
/// Appends the text of the JSON string `quoted` (quotes included; see quoted_bytes()). False: it
/// has half of a surrogate pair, in whose place there is U+FFFD.
bool append_unquoted(std::string_view quoted, std::string* out);
/// Appends the shortest decimal that reads back as this float; null for NaN and infinities.
void append_number(float value, std::string* out);

/// Length in bytes of the JSON string at the front of `json`, quotes included; 0: there is none.
/// Does not check that it is UTF-8.
size_t quoted_bytes(std::string_view json);
/// The same for a JSON number.
size_t number_bytes(std::string_view json);

}  // namespace hearth::ipc
