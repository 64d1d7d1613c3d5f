#pragma once
// The adapters that a request names: NAME or NAME=SCALE, several with commas between them.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::ipc {

struct AdapterChoice {
  std::string name;  ///< not empty
  float scale = 1;   ///< finite, at most kMostAdapterScale in magnitude
  bool operator==(const AdapterChoice&) const = default;
};
inline constexpr size_t kMostAdapterChoices = 4;
inline constexpr float kMostAdapterScale = 100;

/// None if the text is empty. kInvalidArgument, of field `adapter`, gives the part met and what was
/// wanted.
Result<std::vector<AdapterChoice>> parse_adapters(std::string_view text);

}  // namespace hearth::ipc
