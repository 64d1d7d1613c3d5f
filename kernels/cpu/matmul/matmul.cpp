#include <vector>

#include "kernels/cpu/matmul/rows.h"
#include "kernels/ops/checks.h"

namespace hearth::kernels::cpu {
namespace {

RowSet all_rows(const CpuState& state, int32_t rows) {
  return {0, nullptr, nullptr, Tiles(state.matmul, rows)};
}

Product product_of(const MatmulArgs& args, const RowSet& set) {
  return {&args.x, static_cast<const PackedWeight*>(args.w), {&set, 1}, args.residual, &args.out};
}

}  // namespace

void matmul(void* state_pointer, const MatmulArgs& args) {
  check_args(args);
  CpuState& state = state_of(state_pointer);
  const int32_t rows = num_rows(*args.batch, args.rows);
  if (rows == 0) return;
  const RowSet all = all_rows(state, rows);
  const Product product = product_of(args, all);
  multiply_rows(state, {&product, 1});
}

void matmuls(void* state_pointer, std::span<const MatmulArgs> many) {
  CpuState& state = state_of(state_pointer);
  std::vector<RowSet> sets;
  std::vector<Product> products;
  sets.reserve(many.size());  // products point into it
  for (const MatmulArgs& args : many) {
    check_args(args);
    const int32_t rows = num_rows(*args.batch, args.rows);
    if (rows == 0) continue;
    sets.push_back(all_rows(state, rows));
    products.push_back(product_of(args, sets.back()));
  }
  if (!products.empty()) multiply_rows(state, products);
}

}  // namespace hearth::kernels::cpu
