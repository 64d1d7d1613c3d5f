#pragma once
// Finds NaN and infinite weights while a model file is read for another reason.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/result.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {

/// Pass it every byte of the file in order, of a split model part after part, then call finish().
/// Blocks of quantized types are not dequantized: their values are finite if their f16 scales are,
/// so only two or four bytes of each block are checked. Types that this build cannot compute with
/// are not checked.
class WeightCheck {
 public:
  /// `file` outlives the check.
  explicit WeightCheck(const GgufFile& file);

  /// The next bytes of the file, in pieces of any size.
  void add(std::span<const std::byte> bytes);
  /// kCorrupt names the file, the first tensor that holds a NaN or an infinity, and the value's
  /// position. Reads only such a tensor again.
  Result<void> finish() const;

 private:
  enum class Field : uint8_t { kF32, kHalf, kTwoHalves, kSpreadHalf, kBF16, kE8M0 };
  /// The fields of one tensor that show whether its values are finite.
  struct Fields {
    size_t tensor = 0;
    Field kind = Field::kF32;
    uint64_t next = 0;  ///< offset in all parts of the first field not yet checked
    uint64_t end = 0;   ///< of the tensor
    uint64_t stride = 0;
    bool suspect = false;
  };
  static uint64_t width(Field kind);
  /// Whether one of `count` fields from `first` on is not finite.
  static bool any_suspect(Field kind, const std::byte* first, uint64_t count, uint64_t stride);

  const GgufFile& file_;
  std::vector<Fields> fields_;  ///< in file order
  size_t current_ = 0;          ///< index into fields_
  uint64_t at_ = 0;             ///< bytes added
  /// The beginning of a field that the previous piece cut off.
  std::vector<std::byte> begun_;
};

}  // namespace hearth::models
