#pragma once
// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing past U+10FFFF.

#include <cstddef>
#include <string>
#include <string_view>

namespace hearth::ipc {

/// Length of the longest prefix of `text` that is whole, valid characters; text.size() when all is.
size_t valid_utf8_prefix(std::string_view text);

inline bool is_valid_utf8(std::string_view text) { return valid_utf8_prefix(text) == text.size(); }

/// `text` with every byte that belongs to no valid character replaced by U+FFFD. For bytes that go
/// into a message of ours (a file name, say), never for text of a model.
std::string to_valid_utf8(std::string_view text);

}  // namespace hearth::ipc
