#pragma once
// Matrix products on the CPU pool: rows of activations that share one matrix, divided into tiles.
// Used by matmul, matmuls and moe_matmul. Private to kernels/.

#include <algorithm>
#include <span>

#include "kernels/cpu/op_table.h"

namespace hearth::kernels::cpu {

/// Token rows divided into as few tiles as the widest kernel allows (for more than two tiles, the
/// kernel that is fastest for many rows). Full tiles are as narrow as possible for that count; the
/// last tile uses the narrowest width that holds the remaining rows.
struct Tiles {
  int32_t rows;
  int32_t full_width;
  int32_t last_width;
  int32_t count;

  Tiles(const MatmulKernels& kernels, int32_t num_rows) : rows(num_rows), full_width(1) {
    for (const int32_t width : kernels.widths) full_width = std::max(full_width, width);
    if (rows > 2 * full_width) full_width = kernels.many_width;
    count = (rows + full_width - 1) / full_width;
    for (const int32_t width : kernels.widths) {
      if (width * count >= rows) full_width = std::min(full_width, width);
    }
    last_width = full_width;
    for (const int32_t width : kernels.widths) {
      if (width >= rows_of(count - 1)) last_width = std::min(last_width, width);
    }
  }
  int32_t rows_of(int32_t tile) const { return std::min(full_width, rows - tile * full_width); }
  int32_t width_of(int32_t tile) const { return tile + 1 < count ? full_width : last_width; }
};

/// Rows of x that are multiplied with the matrix of one expert (expert 0: the whole weight).
struct RowSet {
  int32_t expert;
  const int32_t* x_rows;    ///< indices of the rows in x; null: 0, 1, ..
  const int32_t* out_rows;  ///< index of each in `out`; null: 0, 1, ..
  Tiles tiles;
};

/// out[out_rows[i]] = x[x_rows[i]] times the set's matrix, plus residual if given, for all sets.
/// Every set has at least one row.
struct Product {
  const TensorView* x;  ///< (rows, weight->cols)
  const PackedWeight* weight;
  std::span<const RowSet> sets;
  const TensorView* residual;  ///< like out, may be it; null: none
  const TensorView* out;       ///< (rows, weight->rows)
};

/// Computes products, all in the same loops of the pool. None reads what another writes.
void multiply_rows(CpuState& state, std::span<const Product> products);

}  // namespace hearth::kernels::cpu
