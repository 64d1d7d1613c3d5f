#pragma once
// SentencePiece's compiled normalization: a map from byte strings to their replacements, of which
// the longest match applies. tokenizer.ggml.precompiled_charsmap, layout (little endian):
//
//   u32 bytes of the index | index: a double array of u32 units | texts, each ended by a NUL
//
// A unit of the double array: bits 0..7 the byte that leads to it (with bit 31: a value instead),
// bit 8 whether a key ends here, bits 10..30 the offset to its children, times 256 if bit 9 is set.
// The child of unit u for byte b is unit u ^ offset(u) ^ b; the value of u, the start of the
// replacement text, is in unit u ^ offset(u). Source: Yata et al. (Darts-clone); SentencePiece's
// normalizer.

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::models {

class GgufFile;

/// Immutable. Replaces nothing if empty.
class Charsmap {
 public:
  struct Match {
    size_t bytes = 0;  ///< length of the text that is replaced; 0: no match
    std::string_view replacement;
  };

  /// An empty map if the file has none. kCorrupt names the key.
  static Result<Charsmap> load(const GgufFile& file);

  /// The longest match at the front of `text`. Never follows a link out of the map.
  Match match_front(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::vector<char> texts_;  // ends with a NUL
};

}  // namespace hearth::models
