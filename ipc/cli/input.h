#pragma once
// The text of a verb: words, a file or standard input.

#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::cli {

/// `words` joined by blanks; else `file`'s text as it is ("-": stdin); else stdin where it is not a
/// terminal, less one newline at its end (echo writes it, nobody means it); else empty. kTooLarge
/// past the protocol's bound, kIo with the file and the reason, kInvalidArgument for both words and
/// file or for what is not UTF-8.
Result<std::string> read_text(const std::vector<std::string>& words, const std::string& file);

}  // namespace hearth::cli
