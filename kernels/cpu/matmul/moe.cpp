#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/cpu/matmul/rows.h"
#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::cpu {
void moe_route(void* state, const MoeRouteArgs& args) {
  check_args(args);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  const int64_t work = rows * args.logits.cols * (args.top_k + 20);
  state_of(state).for_each(rows, work, [&](int64_t t, int32_t) {
    reference::route_row(args.logits.row<float>(t), args, args.ids.row<int32_t>(t),
                         args.weights.row<float>(t));
  });
}

void moe_matmul(void* state, const MoeMatmulArgs& args) {
  check_args(args);
  const auto& weight = static_cast<const PackedWeight&>(*args.w);
  const int32_t tokens = num_rows(*args.batch, Rows::kTokens);
  const auto top_k = static_cast<int32_t>(args.ids.cols);
  if (tokens == 0 || top_k == 0) return;

  // Choices sorted by expert; those of one expert are in order of rows.
  const auto experts = static_cast<size_t>(weight.num_experts);
  std::vector<int32_t> end(experts + 1,
                           0);  // end of expert e - 1 at first, of e once its list is filled
  for (int32_t t = 0; t < tokens; ++t) {
    for (int32_t j = 0; j < top_k; ++j) {
      const int32_t id = args.ids.row<int32_t>(t)[j];
      HEARTH_CHECK(id >= 0 && id < weight.num_experts, "expert {} of {}", id, weight.num_experts);
      ++end[static_cast<size_t>(id) + 1];
    }
  }
  std::partial_sum(end.begin(), end.end(), end.begin());
  const std::vector<int32_t> begin = end;
  std::vector<int32_t> out_rows(static_cast<size_t>(tokens) * static_cast<size_t>(top_k));
  std::vector<int32_t> x_rows(out_rows.size());
  for (int32_t t = 0; t < tokens; ++t) {
    for (int32_t j = 0; j < top_k; ++j) {
      const auto id = static_cast<size_t>(args.ids.row<int32_t>(t)[j]);
      const auto at = static_cast<size_t>(end[id]++);
      out_rows[at] = t * top_k + j;
      x_rows[at] = args.x_per_choice ? out_rows[at] : t;
    }
  }

  std::vector<RowSet> sets;
  for (size_t e = 0; e < experts; ++e) {
    const int32_t rows = begin[e + 1] - begin[e];
    if (rows == 0) continue;
    sets.push_back({static_cast<int32_t>(e), x_rows.data() + begin[e], out_rows.data() + begin[e],
                    Tiles(state_of(state).matmul, rows)});
  }
  const Product product{&args.x, &weight, sets, nullptr, &args.out};
  multiply_rows(state_of(state), {&product, 1});
}

void moe_combine(void* state, const MoeCombineArgs& args) {
  check_args(args);
  CpuState& s = state_of(state);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  const int64_t top_k = args.weights.cols;
  s.for_each(rows, rows * args.out.cols * top_k / 4, [&](int64_t t, int32_t) {
    if (!args.add) std::fill_n(args.out.row<float>(t), args.out.cols, 0.0f);
    s.rows.combine(args.x.row<float>(t * top_k), args.x.row_stride, args.weights.row<float>(t),
                   static_cast<int32_t>(top_k), args.out.cols, args.out.row<float>(t));
  });
}

}  // namespace hearth::kernels::cpu
