// Ops that compute each row separately, compared with the reference.

#include <functional>

#include "kernels/ops/encoder_ops.h"
#include "tests/cuda/rig.h"

namespace hearth::tests {
namespace {

using RunOp = std::function<std::vector<float>(const OpTable&)>;

void same_as_reference(const OpTable& ops, const RunOp& run, double tolerance) {
  const std::vector<float> want = run(kernels::reference_ops());
  in_every_order([&] { check_close(run(ops), want, tolerance); });
}

const int32_t kRowCounts[] = {1, 2, 9};
const int64_t kWidths[] = {1, 31, 64, 300, 1030};

}  // namespace

TEST_CASE("rms_norm") {
  HEARTH_CUDA_TABLE(ops);
  for (const Rows rows : {Rows::kTokens, Rows::kOutputs}) {
    for (const int32_t num_rows : kRowCounts) {
      for (const int64_t width : kWidths) {
        CAPTURE(num_rows);
        CAPTURE(width);
        same_as_reference(
            ops,
            [&](const OpTable& table) {
              const Step step(table, num_rows);
              const DeviceRows x(table, step.bound(), width,
                                 Random(1).floats(step.bound() * width));
              const DeviceRows out(table, step.bound(), width);
              const auto weight =
                  pack(table, {random_tensor(2, DType::kF16, 1, width)}, WeightRole::kVector);
              table.rms_norm(table.state.get(),
                             {&step.batch(), rows, x.view(), weight.get(), 1e-5f, out.view()});
              return out.read(rows == Rows::kTokens ? step.num_tokens() : step.num_outputs());
            },
            2e-6);
      }
    }
  }
}

TEST_CASE("rms_norm of each head, add_scaled, soft_cap") {
  HEARTH_CUDA_TABLE(ops);
  same_as_reference(
      ops,
      [&](const OpTable& table) {
        const Step step(table, 7);
        const DeviceRows x(table, step.bound(), 5 * 80, Random(1).floats(step.bound() * 400));
        const DeviceRows sum(table, step.bound(), 400, Random(2).floats(step.bound() * 400));
        const auto weight =
            pack(table, {random_tensor(2, DType::kF32, 1, 80)}, WeightRole::kVector);
        table.rms_norm(table.state.get(),
                       {&step.batch(), Rows::kTokens, x.view(), weight.get(), 1e-6f, x.view()});
        table.add_scaled(table.state.get(), {&step.batch(), x.view(), 0.22f, sum.view()});
        const DeviceRows gates(table, step.bound(), 1, Random(9).floats(step.bound()));
        const kernels::TensorView gate = gates.view();
        table.add_scaled(table.state.get(), {&step.batch(), x.view(), 0.5f, sum.view(), &gate});
        table.soft_cap(table.state.get(), {&step.batch(), Rows::kTokens, 2.0f, 1.5f, sum.view()});
        return sum.read(step.num_tokens());
      },
      4e-6);
}

TEST_CASE("add_bias, joined vectors of several types") {
  HEARTH_CUDA_TABLE(ops);
  same_as_reference(
      ops,
      [](const OpTable& table) {
        const Step step(table, 5);
        const DeviceRows out(table, step.bound(), 317, Random(3).floats(step.bound() * 317));
        const auto bias = pack(
            table, {random_tensor(4, DType::kF32, 1, 300), random_tensor(5, DType::kBF16, 1, 17)},
            WeightRole::kVector);
        table.add_bias(table.state.get(), {&step.batch(), bias.get(), out.view()});
        return out.read(step.num_tokens());
      },
      0);
}

TEST_CASE("layer_norm and gelu") {
  HEARTH_CUDA_TABLE(ops);
  for (const int64_t width : kWidths) {
    CAPTURE(width);
    same_as_reference(
        ops,
        [&](const OpTable& table) {
          const Step step(table, 9);
          std::vector<float> values = Random(5).floats(step.bound() * width);
          for (float& value : values) value = value * 6 + 2;
          const DeviceRows x(table, step.bound(), width, values);
          const auto weight =
              pack(table, {random_tensor(2, DType::kF32, 1, width)}, WeightRole::kVector);
          const auto bias =
              pack(table, {random_tensor(3, DType::kF32, 1, width)}, WeightRole::kVector);
          table.encoder->layer_norm(table.state.get(), {&step.batch(), x.view(), weight.get(),
                                                        bias.get(), 1e-3f, x.view()});
          table.encoder->gelu(table.state.get(), {&step.batch(), x.view()});
          return x.read(step.num_tokens());
        },
        6e-6);
  }
}

TEST_CASE("layer_norm without a bias, gelu by tanh, scale by position, sigmoid gate") {
  HEARTH_CUDA_TABLE(ops);
  for (const int64_t width : kWidths) {
    CAPTURE(width);
    same_as_reference(
        ops,
        [&](const OpTable& table) {
          const Step step(table, 9);
          const DeviceRows x(table, step.bound(), width, Random(7).floats(step.bound() * width));
          const DeviceRows gate(table, step.bound(), width, Random(8).floats(step.bound() * width));
          const auto weight =
              pack(table, {random_tensor(2, DType::kF32, 1, width)}, WeightRole::kVector);
          const kernels::EncoderOps& more = *table.encoder;
          more.layer_norm(table.state.get(),
                          {&step.batch(), x.view(), weight.get(), nullptr, 1e-3f, x.view()});
          more.gelu(table.state.get(), {&step.batch(), x.view(), true});
          more.scale_by_position(table.state.get(), {&step.batch(), x.view(), 0.5f, 3});
          more.sigmoid_gate(table.state.get(), {&step.batch(), x.view(), gate.view()});
          return x.read(step.num_tokens());
        },
        8e-6);
  }
}

TEST_CASE("gather_rows") {
  HEARTH_CUDA_TABLE(ops);
  same_as_reference(
      ops,
      [](const OpTable& table) {
        const Step step(table, 7);
        const DeviceRows x(table, step.bound(), 270, Random(6).floats(step.bound() * 270));
        const DeviceRows out(table, step.bound(), 270);
        table.gather_rows(table.state.get(), {&step.batch(), x.view(), out.view()});
        return out.read(step.num_outputs());
      },
      0);
}

TEST_CASE("gated_activation") {
  HEARTH_CUDA_TABLE(ops);
  for (const auto activation : {kernels::Activation::kSilu, kernels::Activation::kGeluTanh,
                                kernels::Activation::kClampedSwish}) {
    for (const int64_t width : {1, 70, 4500}) {
      same_as_reference(
          ops,
          [&](const OpTable& table) {
            const Step step(table, 2);
            std::vector<float> values = Random(7).floats(step.bound() * 2 * width);
            for (float& value : values) value *= 20;
            values[0] = 1e4f;  // expf overflows and underflows
            values[static_cast<size_t>(2 * width)] = -1e4f;
            const DeviceRows gate_up(table, step.bound(), 2 * width, values);
            const DeviceRows out(table, step.bound(), width);
            table.gated_activation(table.state.get(),
                                   {&step.batch(), gate_up.view(), activation, out.view()});
            return out.read(step.num_tokens());
          },
          2e5 * 0x1p-22);  // the largest output is 1e4 * 20
    }
  }
}

TEST_CASE("rope: table and rotation") {
  HEARTH_CUDA_TABLE(ops);
  struct Shape {
    int32_t heads, head_dim, rope_dim;
  };
  for (const Shape shape : {Shape{1, 8, 8}, Shape{3, 64, 64}, Shape{5, 80, 32}}) {
    for (const auto pairs : {kernels::RopePairs::kNeighbours, kernels::RopePairs::kHalves}) {
      same_as_reference(
          ops,
          [&](const OpTable& table) {
            const Step step(table, 6);
            const int64_t cols = int64_t{shape.heads} * shape.head_dim;
            const DeviceRows x(table, step.bound(), cols, Random(8).floats(step.bound() * cols));
            const DeviceRows cos_sin(table, step.bound(), shape.rope_dim);
            const auto freq = pack(table, {random_tensor(9, DType::kF32, 1, shape.rope_dim / 2)},
                                   WeightRole::kVector);
            table.rope_table(table.state.get(), {&step.batch(), freq.get(), 1.25f, cos_sin.view()});
            table.rope(table.state.get(), {&step.batch(), x.view(), shape.heads, shape.head_dim,
                                           cos_sin.view(), pairs});
            std::vector<float> all = cos_sin.read(step.num_tokens());
            const std::vector<float> rotated = x.read(step.num_tokens());
            all.insert(all.end(), rotated.begin(), rotated.end());
            return all;
          },
          1e-6);
    }
  }
}

TEST_CASE("embed reads rows out of panels") {
  HEARTH_CUDA_TABLE(ops);
  for (const DType dtype : weight_types()) {
    const int64_t block = kernels::info(dtype).block_elements;
    const std::vector<int64_t> widths = block == 1    ? std::vector<int64_t>{1, 31, 300}
                                        : block == 32 ? std::vector<int64_t>{32, 320}
                                                      : std::vector<int64_t>{256, 768};
    for (const int64_t width : widths) {
      CAPTURE(width);
      same_as_reference(
          ops,
          [&](const OpTable& table) {
            const Step step(table, 12);  // ids 0 .. 10
            const auto weight =
                pack(table, {random_tensor(10, dtype, 11, width)}, WeightRole::kEmbedding);
            const DeviceRows out(table, step.bound(), width);
            table.embed(table.state.get(), {&step.batch(), weight.get(), 3.5f, out.view()});
            return out.read(step.num_tokens());
          },
          0);
    }
  }
}

TEST_CASE("copy_blocks") {
  HEARTH_CUDA_TABLE(ops);
  same_as_reference(
      ops,
      [](const OpTable& table) {
        const std::vector<float> values = Random(11).floats(6 * 24);
        const kernels::DeviceBuffer pool = upload(table, values);
        const std::vector<int32_t> src = {0, 3, 5, 2};
        const std::vector<int32_t> dst = {4, 1, 5, 0};  // in order: 5 onto itself, 2 over 0
        table.copy_blocks(table.state.get(), {pool.data(), 24 * sizeof(float), src, dst});
        std::vector<float> after(values.size());
        table.copy_to_host(table.state.get(), after.data(), pool.data(), pool.size());
        return after;
      },
      0);
}

TEST_CASE("memory is zeroed, and an allocation that is too large is refused") {
  HEARTH_CUDA_TABLE(ops);
  for (int round = 0; round < 2; ++round) {  // the second reuses memory that the first has written
    auto buffer = kernels::DeviceBuffer::allocate(ops, 1000, "test");
    REQUIRE(buffer.ok());
    std::vector<unsigned char> bytes(1000, 1);
    ops.copy_to_host(ops.state.get(), bytes.data(), buffer->data(), bytes.size());
    CHECK(bytes == std::vector<unsigned char>(1000, 0));
    bytes.assign(1000, 7);
    ops.copy_to_device(ops.state.get(), buffer->data(), bytes.data(), bytes.size());
  }
  const auto too_much = kernels::DeviceBuffer::allocate(ops, size_t{1} << 50, "pool");
  REQUIRE_FALSE(too_much.ok());
  CHECK(too_much.error().code == ErrorCode::kOutOfMemory);
  ops.synchronize(ops.state.get());  // and the device still works
}

}  // namespace hearth::tests
