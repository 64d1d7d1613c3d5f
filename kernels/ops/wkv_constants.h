#pragma once
// Constants of WkvInputsArgs. Plain data, because files built for one instruction set include this
// header.

namespace hearth::kernels {

inline constexpr float kWkvLeastNorm = 1e-12f;
inline constexpr float kWkvDecay = 0.60653066f;  ///< exp(-1/2)

}  // namespace hearth::kernels
