#pragma once
// The tokens with which a model is asked for the text between two others (fill in the middle).
// Source: Bavarian et al. 2022; the names are those of published models.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::models {

class GgufFile;
class Tokenizer;

struct FillMarks {
  int32_t prefix = 0;
  int32_t suffix = 0;
  /// Stands before the text to be made; absent: it follows the prefix, which comes last.
  std::optional<int32_t> middle{};
  /// Tokens that end such a text, in addition to those that end any: these marks, and those that
  /// begin another file.
  std::vector<int32_t> ends{};

  /// The prompt, without BOS: prefix, suffix, then the mark of the middle; without such a mark
  /// suffix, then prefix.
  std::vector<int32_t> prompt(std::span<const int32_t> before,
                              std::span<const int32_t> after) const;
};

/// From tokenizer.ggml.fim_{pre,suf,mid}_token_id, or by the tokens' names. Nothing if the model
/// has no such tokens. kCorrupt names a key with an id that is not in the vocabulary.
Result<std::optional<FillMarks>> load_fill_marks(const GgufFile& file, const Tokenizer& tokenizer);

}  // namespace hearth::models
