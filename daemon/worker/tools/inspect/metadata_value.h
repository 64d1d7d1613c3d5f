#pragma once
// Visits the elements of a metadata value, for inspect.

#include <cstdint>
#include <string_view>

#include "models/gguf/gguf_value.h"

namespace hearth::worker {

/// Calls `take(value)` for the first `most` elements of an entry (a scalar has one), with a bool,
/// int64_t, uint64_t, double or std::string_view. Arrays of arrays have no elements to show.
/// Returns the number of elements.
template <typename Take>
uint64_t each_element(const models::GgufEntry& entry, uint64_t most, const Take& take) {
  using models::GgufType;
  const bool array = entry.type == GgufType::kArray;
  const GgufType type = array ? entry.element_type : entry.type;
  if (type == GgufType::kArray) return 0;
  if (type == GgufType::kString) {
    if (!array) {
      take(models::as_text(entry.payload));
      return 1;
    }
    uint64_t done = 0;
    for (const std::string_view text : models::GgufStrings(entry)) {
      if (done == most) break;
      take(text);
      ++done;
    }
    return done;
  }
  const uint64_t count = entry.count < most ? entry.count : most;
  const uint32_t width = models::fixed_bytes(type);
  for (uint64_t i = 0; i < count; ++i) {
    const std::byte* at = entry.payload.data() + i * width;
    if (type == GgufType::kF32) {
      take(double{models::load_unaligned<float>(at)});
    } else if (type == GgufType::kF64) {
      take(models::load_unaligned<double>(at));
    } else if (type == GgufType::kBool) {
      take(*at != std::byte{0});
    } else {
      const models::GgufInteger value = models::load_integer(type, at);
      if (value.negative) {
        take(static_cast<int64_t>(value.bits));
      } else {
        take(value.bits);
      }
    }
  }
  return count;
}

}  // namespace hearth::worker
