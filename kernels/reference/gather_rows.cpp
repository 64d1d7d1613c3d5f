#include <cstring>

#include "kernels/base/check.h"
#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {

void gather_rows(void*, const GatherRowsArgs& args) {
  check_args(args);
  const int32_t num_tokens = num_rows(*args.batch, Rows::kTokens);
  for (int32_t i = 0; i < num_rows(*args.batch, Rows::kOutputs); ++i) {
    const int32_t row = args.batch->output_rows[i];
    HEARTH_CHECK(row >= 0 && row < num_tokens, "output row {} of {}", row, num_tokens);
    std::memcpy(args.out.row<float>(i), args.x.row<float>(row), args.x.cols * sizeof(float));
  }
}

}  // namespace hearth::kernels::reference
