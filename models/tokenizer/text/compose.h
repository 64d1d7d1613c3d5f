#pragma once
// Unicode's normalization form C, for the tokenizers that require it.

#include <string>
#include <string_view>

namespace hearth::models {

/// `text` in form NFC. Bytes that are not UTF-8 stay unchanged. Takes linear time: if one character
/// has more than 1 KiB of marks, the marks past each 1 KiB are composed separately.
/// Source: Unicode Standard Annex 15.
std::string compose(std::string_view text);

}  // namespace hearth::models
