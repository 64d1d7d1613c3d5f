#include "kernels/cpu/op_table.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/encoder_kernels.h"

namespace hearth::kernels::cpu {

void layer_norm(void* state, const LayerNormArgs& args) {
  check_args(args);
  auto& s = *static_cast<CpuState*>(state);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  s.for_each(rows, rows * args.x.cols / 2, [&](int64_t t, int32_t) {
    s.rows.layer_norm(args.x.row<float>(t), args.weight->vector, args.bias->vector, args.eps,
                      args.x.cols, args.out.row<float>(t));
  });
}

void gelu(void* state, const GeluArgs& args) {
  check_args(args);
  auto& s = *static_cast<CpuState*>(state);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  s.for_each(rows, rows * args.x.cols * 2,
             [&](int64_t t, int32_t) { s.rows.gelu_erf(args.x.row<float>(t), args.x.cols); });
}

const EncoderOps kEncoderOps = {layer_norm, gelu, attention_to_all};

}  // namespace hearth::kernels::cpu
