// Ops with a state per sequence, compared with the reference: two sequences with a snapshot and
// drafts, then a step that replays some of them. (tests/op/recurrent_ops_test.cpp has more cases,
// where device memory is host memory.)

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "kernels/ops/encoder_ops.h"
#include "kernels/ops/recurrent_ops.h"
#include "tests/cuda/rig.h"

namespace hearth::tests {
namespace {

using kernels::BatchIndex;
using kernels::kKeptRows;
using kernels::StatePart;
using kernels::StateStep;
using kernels::TensorView;

constexpr int32_t kBlocks = 5;

/// An op on rows of `in_width` values, and the sizes of what it needs.
struct StateOp {
  int64_t in_width;
  int64_t out_width;
  int64_t kept_width;
  int64_t state_values;
  std::function<void(const OpTable&, const BatchIndex&, const StatePart&, const TensorView& in,
                     const TensorView& kept, const TensorView& out)>
      run;
};

std::unique_ptr<kernels::Weight> vector_of(const OpTable& ops, uint64_t seed, int64_t size) {
  return pack(ops, {random_tensor(seed, DType::kF32, 1, size)}, WeightRole::kVector);
}

StateOp conv(int32_t taps, int64_t channels) {
  const auto run = [=](const OpTable& ops, const BatchIndex& batch, const StatePart& state,
                       const TensorView& in, const TensorView& kept, const TensorView& out) {
    const auto weight = vector_of(ops, 1, taps * channels);
    const auto bias = vector_of(ops, 2, channels);
    ops.recurrent->short_conv(ops.state.get(), {.batch = &batch,
                                                .x = in,
                                                .weight = weight.get(),
                                                .bias = bias.get(),
                                                .taps = taps,
                                                .silu = true,
                                                .state = state,
                                                .kept = kept,
                                                .out = out});
    ops.synchronize(ops.state.get());  // before the weights are freed
  };
  return {channels, channels, channels, (taps - 1) * channels, run};
}

StateOp heads(int32_t num_heads, int32_t num_k_heads, int32_t k_dim, int32_t v_dim, bool delta) {
  const int64_t keys = int64_t{num_k_heads} * k_dim, values = int64_t{num_heads} * v_dim;
  const auto run = [=](const OpTable& ops, const BatchIndex& batch, const StatePart& state,
                       const TensorView& in, const TensorView& kept, const TensorView& out) {
    const auto dt_bias = vector_of(ops, 3, num_heads);
    // Zeros: no decay. The cases of tests/op have some.
    const auto a = pack(ops,
                        {{"a", DType::kF32, 1, num_heads,
                          std::vector<std::byte>(sizeof(float) * static_cast<size_t>(num_heads))}},
                        WeightRole::kVector);
    const auto skip = vector_of(ops, 5, num_heads);
    const TensorView beta = in.columns(2 * keys + values + num_heads, num_heads);
    ops.recurrent->head_scan(ops.state.get(), {.batch = &batch,
                                               .num_heads = num_heads,
                                               .num_k_heads = num_k_heads,
                                               .k_dim = k_dim,
                                               .v_dim = v_dim,
                                               .q = in.columns(0, keys),
                                               .k = in.columns(keys, keys),
                                               .v = in.columns(2 * keys, values),
                                               .dt = in.columns(2 * keys + values, num_heads),
                                               .dt_bias = dt_bias.get(),
                                               .a = a.get(),
                                               .beta = delta ? &beta : nullptr,
                                               .skip = delta ? nullptr : skip.get(),
                                               .unit_keys = delta,
                                               .eps = 1e-6f,
                                               .q_scale = delta ? 0.25f : 1.0f,
                                               .state = state,
                                               .kept = kept,
                                               .out = out});
    ops.synchronize(ops.state.get());
  };
  return {2 * keys + values + 2 * num_heads, values,
          kernels::HeadScanArgs::kept_width(num_heads, num_k_heads, k_dim, v_dim), values * k_dim,
          run};
}

StateOp channels(int64_t count, int64_t d_state) {
  const auto run = [=](const OpTable& ops, const BatchIndex& batch, const StatePart& state,
                       const TensorView& in, const TensorView& kept, const TensorView& out) {
    const auto dt_bias = vector_of(ops, 6, count);
    std::vector<float> decays = Random(7).floats(count * d_state);
    for (float& value : decays) value = -std::abs(value);
    Tensor a{"a", DType::kF32, 1, count * d_state, {}};
    const auto bytes = std::as_bytes(std::span(decays));
    a.bytes.assign(bytes.begin(), bytes.end());
    const auto packed = pack(ops, {a}, WeightRole::kVector);
    const auto skip = vector_of(ops, 8, count);
    ops.recurrent->channel_scan(ops.state.get(), {.batch = &batch,
                                                  .x = in.columns(0, count),
                                                  .dt = in.columns(count, count),
                                                  .b = in.columns(2 * count, d_state),
                                                  .c = in.columns(2 * count + d_state, d_state),
                                                  .dt_bias = dt_bias.get(),
                                                  .a = packed.get(),
                                                  .skip = skip.get(),
                                                  .state = state,
                                                  .kept = kept,
                                                  .out = out});
    ops.synchronize(ops.state.get());
  };
  return {2 * count + 2 * d_state, count, 2 * count + d_state, count * d_state, run};
}

/// Outputs of two steps, then all states.
std::vector<float> run_steps(const OpTable& ops, const StateOp& op) {
  const int64_t block_values = op.state_values + 16;
  const std::vector<float> initial(static_cast<size_t>(kBlocks * block_values), 0.25f);
  const kernels::DeviceBuffer pool = upload(ops, initial);
  const StatePart part{pool.data(), block_values * int64_t{sizeof(float)}, 64};
  const DeviceRows kept(ops, 2 * kKeptRows, op.kept_width);
  std::vector<float> all;
  const auto step = [&](const std::vector<SeqPart>& parts, const std::vector<StateStep>& states) {
    const std::vector<std::vector<int32_t>> tables(parts.size(), std::vector<int32_t>(4, 0));
    Step rows(ops, parts, tables, 16);
    BatchIndex batch = rows.batch();
    const kernels::DeviceBuffer steps = upload(ops, states);
    batch.states = steps.as<StateStep>();
    const DeviceRows in(
        ops, rows.bound(), op.in_width,
        Random(static_cast<uint64_t>(parts[0].cached)).floats(rows.bound() * op.in_width));
    const DeviceRows out(ops, rows.bound(), op.out_width);
    op.run(ops, batch, part, in.view(), kept.view(), out.view());
    const std::vector<float> values = out.read(rows.num_tokens());
    all.insert(all.end(), values.begin(), values.end());
  };
  // A new sequence with three drafts; another continues from a snapshot and saves one.
  step({{1, 0, 9}, {2, 16, 21}},
       {{.from = -1, .to = 0, .advance = 6, .keep_first = 1},
        {.from = 3, .to = 1, .advance = 21, .saved = 2, .saved_after = 17}});
  // Two of the drafts were right; the other sequence's rows are all drafts.
  step({{1, 8, 4}, {2, 37, 2}}, {{.from = 0, .to = 4, .advance = 4, .replay = 2, .replay_first = 1},
                                 {.from = 1, .to = 1, .advance = 0, .keep_first = kKeptRows + 2}});
  std::vector<float> states(initial.size());
  ops.copy_to_host(ops.state.get(), states.data(), pool.data(), states.size() * sizeof(float));
  all.insert(all.end(), states.begin(), states.end());
  return all;
}

}  // namespace

TEST_CASE("ops with a state: outputs and states are the reference's") {
  HEARTH_CUDA_TABLE(ops);
  const std::vector<StateOp> all = {conv(4, 272),
                                    conv(2, 16),
                                    heads(4, 2, 24, 48, true),
                                    heads(2, 1, 128, 64, true),
                                    heads(3, 1, 200, 16, false),
                                    heads(1, 1, 300, 16, true),
                                    channels(144, 16),
                                    channels(32, 37)};
  for (size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    const std::vector<float> want = run_steps(kernels::reference_ops(), all[i]);
    float most = 1;
    for (const float value : want) most = std::max(most, std::abs(value));
    in_every_order([&] { check_close(run_steps(ops, all[i]), want, 2e-5 * most); });
  }
}

TEST_CASE("copy_heads, times_rms, keep_peaks and relu_squared") {
  HEARTH_CUDA_TABLE(ops);
  for (const int64_t width : {int64_t{64}, int64_t{1030}}) {
    CAPTURE(width);
    const auto run = [&](const OpTable& table) {
      void* state = table.state.get();
      const Step step(table, 7);
      const BatchIndex* batch = &step.batch();
      const DeviceRows x(table, step.bound(), width, Random(1).floats(step.bound() * width));
      const DeviceRows like(table, step.bound(), 300, Random(2).floats(step.bound() * 300));
      const DeviceRows out(table, step.bound(), 3 * width);
      table.times_rms(state, {batch, x.view(), like.view(), 1e-5f});
      // Two heads of half the width each, into the middle of heads of 3/2 of the width.
      const auto half = static_cast<int32_t>(width / 2);
      table.copy_heads(state, {.batch = batch,
                               .x = x.view(),
                               .x_dim = half,
                               .x_first = 1,
                               .out = out.view(),
                               .out_dim = 3 * half,
                               .out_first = half,
                               .num_heads = 2,
                               .count = half - 1});
      table.keep_peaks(state, {batch, x.view(), 0.5f});
      table.encoder->relu_squared(state, {.batch = batch, .x = like.view()});
      std::vector<float> all = x.read(step.num_tokens());
      for (const DeviceRows* rows : {&like, &out}) {
        const std::vector<float> values = rows->read(step.num_tokens());
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    const std::vector<float> want = run(kernels::reference_ops());
    in_every_order([&] { check_close(run(ops), want, 1e-6); });
  }
}

}  // namespace hearth::tests
