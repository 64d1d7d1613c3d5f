#include "kernels/base/check.h"
#include "kernels/ops/checks.h"
#include "kernels/quant/quant_types.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {

void embed(void*, const EmbedArgs& args) {
  check_args(args);
  const auto& table = static_cast<const StoredWeight&>(*args.table);
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    const int32_t token = args.batch->token_ids[t];
    HEARTH_CHECK(token >= 0 && token < table.rows, "token {} of {}", token, table.rows);
    float* out = args.out.row<float>(t);
    dequantize(table.tensor_of(token).dtype, table.row_bytes(token),
               {out, static_cast<size_t>(table.cols)});
    for (int64_t c = 0; c < table.cols; ++c) out[c] *= args.scale;
  }
}

}  // namespace hearth::kernels::reference
