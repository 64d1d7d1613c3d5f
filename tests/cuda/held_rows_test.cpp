// Rows that a norm or an activation leaves quantized for the following product: the same bits, one
// launch less, and never those of other rows.

#include <algorithm>
#include <bit>
#include <functional>

#include "kernels/cuda/host/state.h"
#include "kernels/ops/side_copies.h"
#include "tests/cuda/rig.h"
#include "tests/cuda/shim/fake_cublaslt.h"
#include "tests/cuda/shim/shim.h"

namespace hearth::tests {

using kernels::Weight;

namespace {

constexpr int64_t kWidth = 288;  // not a whole number of chunks
constexpr int64_t kOutputs = 40;

/// The ops of these tests: norm, activation and products over rows of one step.
struct Parts {
  Parts(const OpTable& table, int32_t rows, DType type = DType::kQ8_0)
      : width(type == DType::kQ4_K || type == DType::kQ6_K ? 512 : kWidth),
        ops(table),
        step(table, rows),
        weight(pack(table, {random_tensor(1, type, kOutputs, width)}, WeightRole::kMatmul)),
        mixed(
            pack(table,
                 {random_tensor(2, DType::kF16, 8, width), random_tensor(3, DType::kQ4_0, 8, width),
                  random_tensor(4, DType::kQ8_0, 8, width)},
                 WeightRole::kMatmul)),
        plain(pack(table, {random_tensor(5, DType::kF16, kOutputs, width)}, WeightRole::kMatmul)),
        narrow(pack(table, {random_tensor(6, DType::kQ8_0, kOutputs, 64)}, WeightRole::kMatmul)),
        norm_weight(pack(table, {random_tensor(7, DType::kF32, 1, width)}, WeightRole::kVector)),
        x(table, step.bound(), width, Random(8).floats(step.bound() * width)),
        gate_up(table, step.bound(), 2 * width, Random(9).floats(step.bound() * 2 * width)),
        in(table, step.bound(), width),
        out(table, step.bound(), kOutputs) {}

  void norm(const Weight* reader, Rows rows = Rows::kTokens) const {
    ops.rms_norm(ops.state.get(),
                 {&step.batch(), rows, x.view(), norm_weight.get(), 1e-5f, in.view(), reader});
  }
  void gated(const Weight* reader) const {
    ops.gated_activation(ops.state.get(), {&step.batch(), gate_up.view(),
                                           kernels::Activation::kSilu, in.view(), 1, reader});
  }
  void product(const Weight* w, Rows rows = Rows::kTokens) const {
    const kernels::TensorView to = out.view().columns(0, w->rows);
    ops.matmul(ops.state.get(), {&step.batch(), rows, in.view(), w, nullptr, to});
  }
  /// All rows; the output rows of a smaller product keep their values.
  std::vector<float> read() const { return out.read(step.num_tokens()); }

  int64_t width;
  const OpTable& ops;
  Step step;
  std::unique_ptr<Weight> weight, mixed, plain, narrow, norm_weight;
  DeviceRows x, gate_up, in, out;
};

/// Launches of `body`.
template <typename Body>
int64_t launches(const Body& body) {
  const int64_t before = shim::num_launches();
  body();
  return shim::num_launches() - before;
}

}  // namespace

TEST_CASE("held rows: the same bits as without them, with one launch less") {
  HEARTH_CUDA_TABLE(ops);
  in_every_order([&] {
    for (const DType type : {DType::kQ8_0, DType::kQ5_1, DType::kQ4_K, DType::kQ6_K}) {
      for (const int32_t rows : {1, 9, 70}) {
        CAPTURE(rows);
        const Parts p(ops, rows, type);
        for (const Rows which : {Rows::kTokens, Rows::kOutputs}) {
          int64_t apart = launches([&] {
            p.norm(nullptr, which);
            p.product(p.weight.get(), which);
          });
          const std::vector<float> want = p.read();
          CHECK(apart == 3);
          CHECK(launches([&] {
                  p.norm(p.weight.get(), which);
                  p.product(p.weight.get(), which);
                }) == 2);
          CHECK(p.read() == want);
        }
        CHECK(launches([&] {
                p.gated(nullptr);
                p.product(p.weight.get());
              }) == 3);
        const std::vector<float> want = p.read();
        CHECK(launches([&] {
                p.gated(p.weight.get());
                p.product(p.weight.get());
              }) == 2);
        CHECK(p.read() == want);
      }
    }
  });
}

TEST_CASE("held rows: inputs that are zero, tiny or not finite") {
  HEARTH_CUDA_TABLE(ops);
  const Parts p(ops, 5);
  std::vector<float> values = Random(10).floats(2 * kWidth);
  for (const float special : {0.0f, 1e-38f, INFINITY, NAN}) {
    for (int64_t i = 0; i < 40; ++i) values[static_cast<size_t>(i)] = special;
    ops.copy_to_device(ops.state.get(), p.gate_up.view().row<float>(1), values.data(),
                       values.size() * sizeof(float));
    const auto bits = [&](const Weight* reader) {
      p.gated(reader);
      p.product(p.weight.get());
      std::vector<uint32_t> all;
      for (const float value : p.read()) all.push_back(std::bit_cast<uint32_t>(value));
      return all;
    };
    CHECK(bits(nullptr) == bits(p.weight.get()));
  }
}

TEST_CASE("held rows: several products read them, of mixed and of other types") {
  HEARTH_CUDA_TABLE(ops);
  const Parts p(ops, 9);
  const auto run = [&](const Weight* reader) {
    std::vector<std::vector<float>> all;
    for (const Weight* each : {p.weight.get(), p.mixed.get(), p.plain.get()}) {
      p.norm(reader);
      p.product(p.plain.get());  // in between, one that does not use them
      p.product(each);
      p.product(each);
      all.push_back(p.read());
    }
    return all;
  };
  const auto want = run(nullptr);
  for (const Weight* reader : {p.weight.get(), p.mixed.get(), p.plain.get(), p.narrow.get()}) {
    CHECK(run(reader) == want);  // also with a wrong hint
  }
  CHECK(launches([&] {
          p.norm(p.mixed.get());
          p.product(p.mixed.get());
          p.product(p.weight.get());
        }) == 1 + 3 + 1);
}

TEST_CASE("held rows: a weight of another table or kind does not read them") {
  HEARTH_CUDA_TABLE(ops);
  const Parts p(ops, 4);
  const auto foreign =
      pack(kernels::reference_ops(), {random_tensor(1, DType::kQ8_0, kOutputs, kWidth)},
           WeightRole::kMatmul);
  p.norm(nullptr);
  p.product(p.weight.get());
  const std::vector<float> want = p.read();
  for (const Weight* reader : {foreign.get(), p.norm_weight.get()}) {
    CHECK(launches([&] {
            p.norm(reader);
            p.product(p.weight.get());
          }) == 3);
    CHECK(p.read() == want);
  }
}

TEST_CASE("held rows: forgotten when their rows or the scratch are overwritten") {
  HEARTH_CUDA_TABLE(ops);
  Parts p(ops, 6);
  void* state = ops.state.get();
  const std::vector<float> others = Random(11).floats(kWidth);
  const kernels::SideCopies& side = *ops.side_copies;
  const auto bias = pack(ops, {random_tensor(12, DType::kF32, 1, kWidth)}, WeightRole::kVector);
  const auto back =
      pack(ops, {random_tensor(13, DType::kF16, kWidth, kOutputs)}, WeightRole::kMatmul);
  const auto own =
      pack(ops, {random_tensor(14, DType::kQ8_0, kWidth, kWidth)}, WeightRole::kMatmul);
  kernels::HostBuffer staging(ops, kWidth * sizeof(float));
  std::copy(others.begin(), others.end(), staging.as<float>());
  const std::vector<std::function<void()>> writes = {
      [&] {
        ops.copy_to_device(state, p.in.view().row<float>(2), others.data(), kWidth * sizeof(float));
      },
      [&] {
        side.after_ops(state);
        side.to_device(state, p.in.view().row<float>(2), staging.as<std::byte>(), staging.size());
        side.before_ops(state);
      },
      [&] {
        ops.add_bias(state, {&p.step.batch(), bias.get(), p.in.view()});
      },
      [&] { p.gated(nullptr); },
      [&] {  // a product that overwrites them
        ops.matmul(state, {&p.step.batch(), Rows::kTokens, p.out.view(), back.get(), nullptr,
                           p.in.view()});
      },
      [&] {  // and one that reads them first
        ops.matmul(state, {&p.step.batch(), Rows::kTokens, p.x.view(), own.get(), &p.in.view(),
                           p.in.view()});
      },
      [&] {  // the scratch, with other rows
        const DeviceRows more(ops, p.step.bound(), kOutputs);
        ops.matmul(state, {&p.step.batch(), Rows::kTokens, p.x.view(), p.weight.get(), nullptr,
                           more.view()});
      },
      [&] {  // the scratch moves
        pack(ops, {random_tensor(15, DType::kQ8_0, 1, 64 * 1024)}, WeightRole::kMatmul);
      },
      [&] { p.step.set_counts(3, 2); },
  };
  for (size_t i = 0; i < writes.size(); ++i) {
    CAPTURE(i);
    const auto run = [&](const Weight* reader) {
      p.step.set_counts(6, 3);
      p.norm(nullptr);  // so that `in` and `out` keep their addresses
      p.product(p.plain.get());
      p.norm(reader);
      writes[i]();
      p.product(p.weight.get());
      return p.read();
    };
    const std::vector<float> want = run(nullptr);
    CHECK(run(p.weight.get()) == want);
  }
}

TEST_CASE("held rows: kept while other memory is written, and by calls that write none") {
  HEARTH_CUDA_TABLE(ops);
  const Parts p(ops, 6);
  void* state = ops.state.get();
  p.norm(nullptr);
  p.product(p.weight.get());
  const std::vector<float> want = p.read();
  const std::vector<float> others = Random(11).floats(kWidth);
  const auto bias = pack(ops, {random_tensor(12, DType::kF32, 1, kOutputs)}, WeightRole::kVector);
  const DeviceRows more(ops, p.step.bound(), kOutputs);
  const std::vector<std::function<void()>> calls = {
      [&] { ops.copy_to_device(state, p.x.view().data, others.data(), kWidth * sizeof(float)); },
      [&] {
        ops.add_bias(state, {&p.step.batch(), bias.get(), more.view()});
      },
      [&] { ops.wait(state, ops.mark(state)); },
      [&] { ops.synchronize(state); },
      [&] { (void)kernels::cuda_memory_use(ops); },
      [&] { (void)kernels::cuda_state(state); },
      [&] { p.read(); },
      [&] { pack(ops, {random_tensor(15, DType::kQ8_0, 1, 64)}, WeightRole::kMatmul); },
  };
  p.norm(p.weight.get());
  for (size_t i = 0; i < calls.size(); ++i) {
    CAPTURE(i);
    calls[i]();
    CHECK(launches([&] { p.product(p.weight.get()); }) == 1);
    CHECK(p.read() == want);
  }
}

TEST_CASE("held rows: not used for other rows, counts or columns") {
  HEARTH_CUDA_TABLE(ops);
  const Parts p(ops, 8);
  const auto run = [&](const Weight* reader) {
    p.norm(nullptr);  // so that `out` keeps its address
    p.product(p.plain.get());
    p.norm(reader);
    p.product(p.weight.get(), Rows::kOutputs);
    std::vector<float> some = p.read();
    p.norm(reader, Rows::kOutputs);
    p.product(p.weight.get());
    const std::vector<float> all = p.read();
    some.insert(some.end(), all.begin(), all.end());
    p.norm(reader);
    // The first 64 columns of the same rows.
    ops.matmul(ops.state.get(), {&p.step.batch(), Rows::kTokens, p.in.view().columns(0, 64),
                                 p.narrow.get(), nullptr, p.out.view()});
    const std::vector<float> few = p.read();
    some.insert(some.end(), few.begin(), few.end());
    // Every other row.
    kernels::TensorView wide = p.in.view();
    wide.rows /= 2;
    wide.row_stride *= 2;
    const Step half(ops, 2);
    p.norm(reader);
    ops.matmul(ops.state.get(),
               {&half.batch(), Rows::kTokens, wide, p.weight.get(), nullptr, p.out.view()});
    const std::vector<float> other = p.read();
    some.insert(some.end(), other.begin(), other.end());
    return some;
  };
  const std::vector<float> want = run(nullptr);
  CHECK(run(p.weight.get()) == want);
}

TEST_CASE("held rows: more rows than one round, or many rows with fast numerics, are not held") {
  HEARTH_CUDA_TABLE(ops);
  {
    const Parts p(ops, static_cast<int32_t>(kernels::kQuantRows));  // the bound is larger
    p.gated(nullptr);
    p.product(p.weight.get());
    const std::vector<float> want = p.read();
    p.gated(p.weight.get());
    p.product(p.weight.get());
    CHECK(p.read() == want);
  }
  shim::set_cublaslt_faults({});
  const auto fast = kernels::cuda_ops({0, kernels::Numerics::kFast, &shim::fake_cublaslt()});
  REQUIRE(fast.ok());
  const Parts p(*fast, 20);
  CHECK(launches([&] {
          p.norm(p.weight.get());
          p.product(p.weight.get());
        }) == 2);
}

TEST_CASE("held rows: a captured step uses only its own and replays with other counts") {
  HEARTH_CUDA_TABLE(ops);
  Parts p(ops, 7);
  void* state = ops.state.get();
  p.norm(nullptr);
  p.product(p.weight.get());
  const std::vector<float> want = p.read();

  p.norm(p.weight.get());  // held, but from before the capture
  ops.begin_capture(state);
  CHECK(launches([&] { p.product(p.weight.get()); }) == 2);
  const auto alone = ops.end_capture(state);
  ops.begin_capture(state);
  CHECK(launches([&] {
          p.norm(p.weight.get());
          p.product(p.weight.get());
        }) == 2);
  const auto both = ops.end_capture(state);
  CHECK(launches([&] { p.product(p.weight.get()); }) == 2);  // nor is one known after it

  for (const int32_t tokens : {7, 3, 1, 7}) {
    p.step.set_counts(tokens, 1);
    REQUIRE(ops.replay(state, *both));
    const std::vector<float> got = p.out.read(7);
    CHECK(std::equal(got.begin(), got.begin() + tokens * kOutputs, want.begin()));
    REQUIRE(ops.replay(state, *alone));
    CHECK(p.out.read(7) == want);
  }
}

TEST_CASE("held rows: two models alternate on one table") {
  HEARTH_CUDA_TABLE(ops);
  const Parts a(ops, 5);
  const Parts b(ops, 9, DType::kQ4_0);
  a.norm(nullptr);
  a.product(a.weight.get());
  const std::vector<float> want_a = a.read();
  b.gated(nullptr);
  b.product(b.weight.get());
  const std::vector<float> want_b = b.read();
  a.norm(a.weight.get());
  b.gated(b.weight.get());
  a.product(a.weight.get());
  CHECK(a.read() == want_a);
  b.product(b.weight.get());
  CHECK(b.read() == want_b);
}

}  // namespace hearth::tests
