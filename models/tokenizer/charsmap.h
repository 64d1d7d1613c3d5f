#pragma once
// SentencePiece's compiled normalization: what runs of bytes are replaced by, the longest run
// first. tokenizer.ggml.precompiled_charsmap, layout (little endian):
//
//   u32 bytes of the index | index: a double array of u32 units | texts, each ended by a NUL
//
// A unit of the double array: bits 0..7 the byte that leads to it (with bit 31: a value instead),
// bit 8 whether a value hangs below, bits 10..30 the offset to its children, in units of 256 where
// bit 9 is set. The unit of byte b below unit u is u ^ offset(u) ^ b; its value is at its offset
// itself: where the replacing text begins. Source: Yata et al. (Darts-clone); SentencePiece's
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
    size_t bytes = 0;  ///< of the text that is replaced; 0: nothing is
    std::string_view replacement;
  };

  /// An empty one where the file has none. kCorrupt names the key.
  static Result<Charsmap> load(const GgufFile& file);

  /// What replaces the front of `text`. Follows no link that leaves the map.
  Match match_front(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::vector<char> texts_;  // ends with a NUL
};

}  // namespace hearth::models
