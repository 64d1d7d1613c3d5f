#pragma once
// UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing above U+10FFFF.

#include <cstddef>
#include <string>
#include <string_view>

namespace hearth::ipc {

/// Length of the longest prefix of `text` that consists of complete, valid characters.
size_t valid_utf8_prefix(std::string_view text);

inline bool is_valid_utf8(std::string_view text) { return valid_utf8_prefix(text) == text.size(); }

/// `text` with every byte outside a valid character replaced by U+FFFD. For bytes quoted in our own
/// messages, such as a file name; never for model output.
std::string to_valid_utf8(std::string_view text);

}  // namespace hearth::ipc
