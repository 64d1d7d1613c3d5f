#include "kernels/cpu/matmul/rows.h"
#include "kernels/ops/checks.h"

namespace hearth::kernels::cpu {

void matmul(void* state_pointer, const MatmulArgs& args) {
  check_args(args);
  auto& state = *static_cast<CpuState*>(state_pointer);
  const int32_t rows = num_rows(*args.batch, args.rows);
  if (rows == 0) return;
  const RowSet all{0, nullptr, nullptr, Tiles(state.matmul, rows)};
  multiply_rows(state, args.x, static_cast<const PackedWeight&>(*args.w), {&all, 1}, args.residual,
                args.out);
}

}  // namespace hearth::kernels::cpu
