#pragma once
// The grids of IQ1, IQ2 and IQ3: the groups of values that their codes stand for, as the format is
// published (ggml-common.h and the gguf Python package's quants module). An entry holds the level
// of each of its values, smallest first: eight fields of 2 bits, or four of 3 bits.

#include <cstdint>

namespace hearth::kernels {

// Levels 0, 1, 2 are 8, 25, 43.
extern const uint16_t kIq2XxsGrid[256];
extern const uint16_t kIq2XsGrid[512];
extern const uint16_t kIq2SGrid[1024];
// Levels 0 to 7 are 4, 12, 20, 28, 36, 44, 52, 62.
extern const uint16_t kIq3XxsGrid[256];
// Levels 0 to 7 are 1, 3, 5, .., 15.
extern const uint16_t kIq3SGrid[512];
// Levels 0, 1, 2 are -1, 0, 1; IQ1_S and IQ1_M.
extern const uint16_t kIq1Grid[2048];

}  // namespace hearth::kernels
