#pragma once
// Unicode's normalization form C, for the tokenizers that ask for it.

#include <string>
#include <string_view>

namespace hearth::models {

/// `text` in form NFC. What is not UTF-8 stays as it is. Linear: of a thousand and more marks on
/// one character, those past the first kibibyte are composed among themselves.
/// Source: Unicode Standard Annex 15.
std::string compose(std::string_view text);

}  // namespace hearth::models
