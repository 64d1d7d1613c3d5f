#pragma once
// Maps published tensors to the tensors of a GGUF file, with the changes made to their values.

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/result.h"
#include "models/convert/checkpoint.h"
#include "models/convert/family_keys.h"

namespace hearth::models {

struct PlannedTensor {
  enum class Change {
    kNone,
    kSwapPairs,  ///< rows of a head: interleaves its two halves
    kAddOne,
  };
  /// Whole rows of a published tensor, in elements.
  struct Part {
    const SafeTensor* tensor = nullptr;
    uint64_t first = 0;
    uint64_t count = 0;
  };
  std::string name;
  std::vector<uint64_t> dims;  ///< the contiguous one first
  Change change = Change::kNone;
  uint64_t num_heads = 0;     ///< kSwapPairs
  std::vector<Part> parts;    ///< one after another; all of one type
  std::vector<float> values;  ///< instead of parts
};

/// Every tensor of the file to be, in order. kUnsupported names a published tensor that none of
/// them needs, or one of a type that is not F32, F16 or BF16; kCorrupt one that is missing or has
/// the wrong shape.
Result<std::vector<PlannedTensor>> plan_tensors(const Checkpoint& checkpoint,
                                                const FamilyKeys& keys);

}  // namespace hearth::models
