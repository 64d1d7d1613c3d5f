// A step's ops can be captured once and launched again with other counts, positions and tables: no
// op allocates, copies from the host or reads the step's values there.

#include <algorithm>

#include "tests/cuda/rig.h"

namespace hearth::tests {

TEST_CASE("a captured step replays with other counts") {
  HEARTH_CUDA_TABLE(ops);
  constexpr int32_t kTokens = 9;
  constexpr int64_t kWidth = 64;  // two heads of 32
  void* state = ops.state.get();
  const auto norm = pack(ops, {random_tensor(1, DType::kF32, 1, kWidth)}, WeightRole::kVector);
  const auto freq = pack(ops, {random_tensor(2, DType::kF32, 1, 16)}, WeightRole::kVector);
  const auto table = pack(ops, {random_tensor(3, DType::kF16, 11, kWidth)}, WeightRole::kEmbedding);
  const auto qkv = pack(ops,
                        {random_tensor(4, DType::kQ8_0, kWidth, kWidth),
                         random_tensor(5, DType::kF16, 2 * kWidth, kWidth)},
                        WeightRole::kMatmul);
  const std::vector<std::vector<int32_t>> tables = {{1, 0}};
  Step step(ops, {{1, 12, kTokens}}, tables, 16);
  const int64_t layer = kernels::kv_layer_bytes(DType::kF16, 16, kernels::KvShape::even(2, 32));
  const std::vector<unsigned char> zeros(static_cast<size_t>(2 * layer));
  const kernels::DeviceBuffer pool = upload(ops, zeros);
  const kernels::PagedKv kv = {pool.data(), layer, 0,
                               DType::kF16, 16,    kernels::KvShape::even(2, 32)};
  const DeviceRows x(ops, step.bound(), kWidth);
  const DeviceRows normed(ops, step.bound(), kWidth);
  const DeviceRows joined(ops, step.bound(), 3 * kWidth);
  const DeviceRows cos_sin(ops, step.bound(), 32);
  const DeviceRows attended(ops, step.bound(), kWidth);
  const DeviceRows out(ops, step.bound(), kWidth);

  const auto run_step = [&] {
    const kernels::BatchIndex* batch = &step.batch();
    ops.embed(state, {batch, table.get(), 1.0f, x.view()});
    ops.rms_norm(state, {batch, Rows::kTokens, x.view(), norm.get(), 1e-5f, normed.view()});
    ops.matmul(state, {batch, Rows::kTokens, normed.view(), qkv.get(), nullptr, joined.view()});
    ops.rope_table(state, {batch, freq.get(), 1.0f, cos_sin.view()});
    ops.rope(state, {batch, joined.view().columns(0, kWidth), 2, 32, cos_sin.view()});
    ops.kv_store(state, {batch, 0, joined.view().columns(kWidth, kWidth),
                         joined.view().columns(2 * kWidth, kWidth), kv});
    kernels::AttentionArgs attention{};
    attention.batch = batch;
    attention.q = joined.view().columns(0, kWidth);
    attention.kv = kv;
    attention.num_heads = 2;
    attention.scale = 0.2f;
    attention.out = attended.view();
    ops.attention(state, attention);
    ops.gather_rows(state, {batch, attended.view(), out.view()});
  };
  run_step();
  const std::vector<float> eager = out.read(step.num_outputs());

  ops.begin_capture(state);
  run_step();
  const auto captured = ops.end_capture(state);
  REQUIRE(captured != nullptr);

  const int32_t bound = step.batch().num_outputs;
  const std::vector<float> untouched(static_cast<size_t>(bound * kWidth), 7.0f);
  for (const int32_t tokens : {kTokens, 3, 1, kTokens}) {
    CAPTURE(tokens);
    for (int64_t row = 0; row < bound; ++row) {
      ops.copy_to_device(state, out.view().row<float>(row), untouched.data(),
                         kWidth * sizeof(float));
    }
    const int32_t outputs = (tokens + 1) / 2;
    step.set_counts(tokens, outputs);
    REQUIRE(ops.replay(state, *captured));
    const std::vector<float> all = out.read(bound);
    const int64_t written = outputs * kWidth;
    CHECK(std::equal(all.begin(), all.begin() + written, eager.begin()));
    CHECK(std::equal(all.begin() + written, all.end(), untouched.begin() + written));
  }
}

}  // namespace hearth::tests
