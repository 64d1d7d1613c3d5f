#pragma once
// Reads the text of a verb from its words, a file or standard input.

#include <optional>
#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::cli {

/// `words` joined by blanks; else the text of `file` ("-": stdin); else stdin if it is not a
/// terminal; else empty. One newline at the end of a file or of stdin is dropped, because echo and
/// editors add it. kTooLarge above the protocol's bound, kIo with the file and the reason,
/// kInvalidArgument for both words and a file, or for text that is not UTF-8.
Result<std::string> read_text(const std::vector<std::string>& words, const std::string& file);

/// The same for a verb: without a text, the reason is on stderr and the verb returns kUsage.
std::optional<std::string> text_of_verb(const std::vector<std::string>& words,
                                        const std::string& file);

/// As read_text(), but words, a file's text and piped or redirected input are all used, in this
/// order, with a blank line between them.
Result<std::string> read_prompt(const std::vector<std::string>& words, const std::string& file);

bool stdin_is_terminal();

}  // namespace hearth::cli
