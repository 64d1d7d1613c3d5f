#pragma once
// Coordinates of ImGui, which are floats.

namespace hearth::monitor {

/// A whole or precise number of pixels as a coordinate.
template <typename Number>
constexpr float pixels(Number number) {
  return static_cast<float>(number);
}

}  // namespace hearth::monitor
