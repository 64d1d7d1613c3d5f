#pragma once
// The text of a verb: words, a file or standard input.

#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::cli {

/// `words` joined by blanks; else the text of `file` ("-": stdin); else stdin where it is not a
/// terminal; else empty. A file's text and stdin's are less one newline at their end: echo and
/// editors write it, nobody means it. kTooLarge past the protocol's bound, kIo with the file and
/// the reason, kInvalidArgument for both words and file or for what is not UTF-8.
Result<std::string> read_text(const std::vector<std::string>& words, const std::string& file);

/// The same, but words, a file's text and what is piped in (or redirected from a file) follow each
/// other, a blank line between them.
Result<std::string> read_prompt(const std::vector<std::string>& words, const std::string& file);

bool stdin_is_terminal();

}  // namespace hearth::cli
