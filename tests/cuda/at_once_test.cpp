// Launches that compute what two computed before, or more, with the same bits: a product with its
// activation, and products of one row by weights of two types. (Attention's: attention_test.cpp.)

#include <algorithm>

#include "kernels/ops/encoder_ops.h"
#include "tests/cuda/rig.h"

namespace hearth::tests {
namespace {

int64_t launched() { return runtime_counts().value_or(RuntimeCounts{}).launches; }

/// Gates and as many others from x, their activation, and a product of that.
struct FeedForward {
  FeedForward(const OpTable& table, int32_t rows, DType type, DType down_type, int64_t inputs,
              int64_t width)
      : ops(table),
        step(table, rows),
        up(pack(table,
                {random_tensor(1, type, width, inputs), random_tensor(2, type, width, inputs)},
                WeightRole::kMatmul)),
        down(pack(table, {random_tensor(3, down_type, 24, width)}, WeightRole::kMatmul)),
        norm(pack(table, {random_tensor(4, DType::kF32, 1, inputs)}, WeightRole::kVector)),
        x(table, step.bound(), inputs, Random(5).floats(step.bound() * inputs)),
        in(table, step.bound(), inputs),
        gate_up(table, step.bound(), 2 * width),
        gated(table, step.bound(), width),
        out(table, step.bound(), 24) {}

  void run(bool at_once, kernels::Activation activation) const {
    void* state = ops.state.get();
    ops.rms_norm(state,
                 {&step.batch(), Rows::kTokens, x.view(), norm.get(), 1e-5f, in.view(), up.get()});
    const kernels::MatmulArgs product{&step.batch(), Rows::kTokens, in.view(),
                                      up.get(),      nullptr,       gate_up.view()};
    const kernels::GatedActivationArgs then{
        &step.batch(), gate_up.view(), activation, gated.view(), 1, down.get()};
    if (at_once) {
      ops.encoder->multiply_and_gate(state, product, then);
    } else {
      ops.matmul(state, product);
      ops.gated_activation(state, then);
    }
    ops.matmul(state,
               {&step.batch(), Rows::kTokens, gated.view(), down.get(), nullptr, out.view()});
  }
  std::vector<float> read(int32_t rows) const {
    std::vector<float> all = out.read(rows);
    for (const DeviceRows* each : {&gated, &gate_up}) {
      const std::vector<float> more = each->read(rows);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  const OpTable& ops;
  Step step;
  std::unique_ptr<kernels::Weight> up, down, norm;
  DeviceRows x, in, gate_up, gated, out;
};

}  // namespace

TEST_CASE("at once: a product with its activation has the bits of two launches") {
  HEARTH_CUDA_TABLE(ops);
  const bool in_use = ops.encoder->multiply_and_gate != nullptr;
  CHECK_FALSE(in_use);
  const OpTable at_once = kernels::cuda_ops({.unconfirmed = true}).value();
  struct Shape {
    DType type, down_type;
    int64_t inputs, width;
    int launches;  ///< norm, product, product
  };
  using kernels::Activation;
  for (const Shape& s : {
           Shape{DType::kQ8_0, DType::kQ8_0, 96, 288,
                 3},  // the last activations do not fill a chunk
           Shape{DType::kQ4_K, DType::kQ6_K, 512, 768, 3},
           Shape{DType::kQ6_K, DType::kQ4_K, 256, 256, 3},
           Shape{DType::kQ3_K, DType::kQ8_0, 256, 512, 3},
           Shape{DType::kQ5_1, DType::kQ4_K, 64, 512, 3},
           Shape{DType::kMXFP4, DType::kF16, 320, 272, 3},
           Shape{DType::kQ2_K, DType::kQ2_K, 2304, 256, 3},
           Shape{DType::kF16, DType::kF16, 72, 144, 3},
           Shape{DType::kBF16, DType::kQ8_0, 64, 544, 3},
           Shape{DType::kF16, DType::kQ6_K, 64, 256, 3},
           Shape{DType::kF32, DType::kF32, 40, 48, 4},  // in two launches
           Shape{DType::kQ8_0, DType::kF16, 64, 40, 4},
           Shape{DType::kNVFP4, DType::kF16, 256, 256, 4},
           Shape{DType::kQ4_0, DType::kF16, 256, 256, 4},
       }) {
    CAPTURE(kernels::info(s.type).name);
    CAPTURE(s.width);
    for (const int32_t rows : {1, 2, 5}) {  // the step's bound is higher by Step::kSpareRows
      const auto activation = rows == 1   ? Activation::kSilu
                              : rows == 2 ? Activation::kGeluTanh
                                          : Activation::kClampedSwish;
      const FeedForward apart(ops, rows, s.type, s.down_type, s.inputs, s.width);
      apart.run(false, activation);
      const std::vector<float> want = apart.read(rows);
      const FeedForward both(at_once, rows, s.type, s.down_type, s.inputs, s.width);
      in_every_order([&] {
        const int64_t before = launched();
        both.run(true, activation);
        if (runtime_counts()) CHECK(launched() - before == s.launches);
        CHECK(both.read(rows) == want);
      });
    }
  }
}

TEST_CASE("at once: a product with its activation, captured, and with more rows than it takes") {
  HEARTH_CUDA_TABLE(ops);
  const OpTable at_once = kernels::cuda_ops({.unconfirmed = true}).value();
  void* state = at_once.state.get();
  using kernels::Activation;
  FeedForward both(at_once, 5, DType::kQ4_K, DType::kQ4_K, 256, 512);
  both.run(false, Activation::kSilu);
  const std::vector<float> want = both.out.read(5);
  at_once.begin_capture(state);
  both.run(true, Activation::kSilu);
  const auto captured = at_once.end_capture(state);
  for (const int32_t rows : {5, 1, 3, 5}) {
    both.step.set_counts(rows, 1);
    REQUIRE(at_once.replay(state, *captured));
    const std::vector<float> got = both.out.read(5);
    CHECK(std::equal(got.begin(), got.begin() + rows * 24, want.begin()));
  }
  for (const int32_t rows : {6, 40}) {  // a bound of nine, and more
    const FeedForward apart(ops, rows, DType::kQ8_0, DType::kQ4_K, 64, 256);
    apart.run(false, Activation::kSilu);
    const FeedForward many(at_once, rows, DType::kQ8_0, DType::kQ4_K, 64, 256);
    many.run(true, Activation::kSilu);
    CHECK(many.read(rows) == apart.read(rows));
  }
}

TEST_CASE("at once: one row by weights of two types has the bits of two launches") {
  HEARTH_CUDA_TABLE(ops);
  const OpTable at_once = kernels::cuda_ops({.unconfirmed = true}).value();
  struct Types {
    std::vector<DType> types;
    int launches;
  };
  for (const Types& t :
       {Types{{DType::kQ4_K, DType::kQ6_K}, 1}, Types{{DType::kQ6_K, DType::kQ4_K}, 1},
        Types{{DType::kQ5_K, DType::kQ6_K}, 1}, Types{{DType::kQ4_K, DType::kQ5_K}, 1},
        Types{{DType::kQ3_K, DType::kQ5_K}, 1}, Types{{DType::kQ3_K, DType::kQ4_K}, 1},
        Types{{DType::kQ2_K, DType::kQ4_K}, 1}, Types{{DType::kQ2_K, DType::kQ3_K}, 1},
        Types{{DType::kQ4_K, DType::kQ6_K, DType::kQ4_K}, 2},
        Types{{DType::kQ2_K, DType::kQ6_K, DType::kQ4_K}, 2},
        Types{{DType::kQ2_K, DType::kQ6_K}, 2},
        Types{{DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}, 2}}) {
    CAPTURE(kernels::info(t.types[0]).name);
    CAPTURE(kernels::info(t.types[1]).name);
    for (const int64_t cols : {256, 2560}) {
      const auto run = [&](const OpTable& table, bool residual) {
        std::vector<Tensor> parts;
        int64_t outputs = 0;
        for (size_t i = 0; i < t.types.size(); ++i) {
          parts.push_back(random_tensor(20 + i, t.types[i], i == 0 ? 50 : 21, cols));
          outputs += parts.back().rows;
        }
        const auto weight = pack(table, parts, WeightRole::kMatmul);
        Step step(table, 1);
        kernels::BatchIndex batch = step.batch();
        batch.num_tokens = 1;  // the bound, too
        const DeviceRows x(table, step.bound(), cols, Random(7).floats(step.bound() * cols));
        const DeviceRows out(table, step.bound(), outputs,
                             Random(8).floats(step.bound() * outputs));
        const int64_t before = launched();
        table.matmul(table.state.get(), {&batch, Rows::kTokens, x.view(), weight.get(),
                                         residual ? &out.view() : nullptr, out.view()});
        const int64_t launches = launched() - before;
        return std::pair{out.read(1), launches};
      };
      for (const bool residual : {false, true}) {
        const auto want = run(ops, residual);
        in_every_order([&] {
          const auto got = run(at_once, residual);
          CHECK(got.first == want.first);
          if (runtime_counts()) {
            CHECK(want.second - got.second == static_cast<int64_t>(t.types.size()) - t.launches);
          }
        });
      }
    }
  }
}

}  // namespace hearth::tests
