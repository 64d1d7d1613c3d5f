// Ops of encoders and of decoders that resemble them: layer_norm, gelu, attention to the whole
// text, scale by position, sigmoid gate.

#include "kernels/ops/encoder_ops.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <optional>

#include "tests/op/op_testing.h"

namespace hearth::kernels::testing {
namespace {

using Op = std::function<Matrix(const OpTable&, const EncoderOps&)>;

Matrix run(const OpTable& table, const Op& op) {
  const Result<EncoderOps> ops = encoder_ops(table);
  REQUIRE(ops.ok());
  return op(table, *ops);
}

/// Every variant within `bound` of the reference, the fused ones equal to the bit. Attention over
/// KV of f16 may round its weights to f16.
void compare(const std::string& what, const Op& op, float bound, DType kv_type = DType::kF32) {
  const Matrix want = run(reference(), op);
  std::optional<Matrix> fused;
  for (const NamedTable& table : cpu_tables(2)) {
    const Matrix got = run(table.ops, op);
    const double rounding = kv_type == DType::kF16 ? 2 * table.f16_rounding : 0;
    const std::string error = worst(got, want, constant(bound + static_cast<float>(rounding)));
    CHECK_MESSAGE(error.empty(), fmt::format("{} {}: {}", table.name, what, error));
    CHECK_MESSAGE(got.guards_intact(), fmt::format("{} {}: wrote outside", table.name, what));
    if (!table.ops.numerics_id.starts_with("cpu-fma/")) continue;
    if (fused) CHECK_MESSAGE(same_bits(*fused, got), fmt::format("{} {}", table.name, what));
    fused = got;
  }
}

TEST_CASE("layer_norm: every width, in place, around a mean far from 0") {
  Random random(seed_or(51));
  for (const int64_t width : {1, 7, 8, 15, 16, 17, 64, 100, 384, 1024}) {
    const Tensor weight = random_tensor(52, DType::kF32, 1, width);
    const Tensor bias = random_tensor(53, DType::kF32, 1, width);
    for (const float mean : {0.0f, 3.0f}) {
      for (const bool in_place : {false, true}) {
        const Batch batch(5);
        Matrix x(5, width, 3, 1);
        x.fill(random, mean - 1, mean + 1);
        // A normalized value is at most sqrt(width); the mean's roundings move all of them.
        const auto bound =
            static_cast<float>((std::sqrt(static_cast<double>(width)) + 2) *
                               (static_cast<double>(width) / 16 + 20) * (1 + mean) * 0x1p-24);
        compare(
            fmt::format("layer_norm {} mean {}", width, mean),
            [&](const OpTable& table, const EncoderOps& ops) {
              const auto w = pack(table, {weight}, WeightRole::kVector);
              const auto b = pack(table, {bias}, WeightRole::kVector);
              Matrix in = x;
              Matrix out(5, width, 1, 0);
              ops.layer_norm(table.state.get(), {.batch = &batch.index(),
                                                 .x = in.view(),
                                                 .weight = w.get(),
                                                 .bias = b.get(),
                                                 .eps = 1e-12f,
                                                 .out = in_place ? in.view() : out.view()});
              return in_place ? in : out;
            },
            width == 1 ? 1e-3f : bound);
      }
    }
  }
}

TEST_CASE("layer_norm equals the formula") {
  const Tensor ones{"w", DType::kF32, 1, 2, std::vector<std::byte>(8)};
  const Batch batch(1);
  Tensor weight = ones, bias = ones;
  const float w[2] = {2, 3}, b[2] = {10, 20};
  std::memcpy(weight.bytes.data(), w, 8);
  std::memcpy(bias.bytes.data(), b, 8);
  const auto pw = pack(reference(), {weight}, WeightRole::kVector);
  const auto pb = pack(reference(), {bias}, WeightRole::kVector);
  Matrix x(1, 2);
  x.at(0, 0) = 4;
  x.at(0, 1) = 8;  // mean 6, deviation 2
  const EncoderOps ops = encoder_ops(reference()).value();
  ops.layer_norm(reference().state.get(), {.batch = &batch.index(),
                                           .x = x.view(),
                                           .weight = pw.get(),
                                           .bias = pb.get(),
                                           .eps = 0,
                                           .out = x.view()});
  CHECK(x.at(0, 0) == 8.0f);
  CHECK(x.at(0, 1) == 23.0f);
}

TEST_CASE("layer_norm without a bias, of the requested rows alone") {
  const Tensor weight = random_tensor(52, DType::kF32, 1, 33);
  Random random(seed_or(55));
  Matrix x(5, 33, 3, 1);
  x.fill(random, -2, 4);
  const Batch batch({{3, 3}, {2, 2}}, 16, 1);
  REQUIRE(batch.index().num_outputs == 2);
  compare(
      "layer_norm without a bias",
      [&](const OpTable& table, const EncoderOps& ops) {
        const auto w = pack(table, {weight}, WeightRole::kVector);
        Matrix out(5, 33);
        ops.layer_norm(table.state.get(), {.batch = &batch.index(),
                                           .x = x.view(),
                                           .weight = w.get(),
                                           .bias = nullptr,
                                           .eps = 1e-5f,
                                           .out = out.view(),
                                           .rows = Rows::kOutputs});
        for (int64_t c = 0; c < 33; ++c) CHECK(out.at(2, c) == 0.0f);
        return out;
      },
      1e-5f);
}

TEST_CASE("gelu: by erf, from far below 0 to far above") {
  Random random(seed_or(54));
  for (const int64_t width : {1, 15, 16, 33, 1000}) {
    for (const float range : {1e-3f, 1.0f, 6.0f, 50.0f}) {
      const Batch batch(3);
      Matrix x(3, width, 1, 2);
      x.fill(random, -range, range);
      // The polynomial's 1.5e-7 (Abramowitz and Stegun 7.1.26) times |x| / 2, which matters where
      // the tail is not yet 0; and roundings of the value.
      const float bound = 6e-7f * std::min(range, 6.0f) + range * 0x1p-22f;
      compare(
          fmt::format("gelu {} range {}", width, range),
          [&](const OpTable& table, const EncoderOps& ops) {
            Matrix in = x;
            ops.gelu(table.state.get(), {.batch = &batch.index(), .x = in.view()});
            return in;
          },
          bound);
    }
  }
  Matrix x(1, 3);
  x.at(0, 0) = 1;
  x.at(0, 1) = -1;
  x.at(0, 2) = 0;
  const Batch batch(1);
  encoder_ops(reference())
      .value()
      .gelu(reference().state.get(), {.batch = &batch.index(), .x = x.view()});
  CHECK(x.at(0, 0) == doctest::Approx(0.8413447460685429));
  CHECK(x.at(0, 1) == doctest::Approx(-0.15865525393145707));
  CHECK(x.at(0, 2) == 0.0f);
}

TEST_CASE("gelu by tanh, as in gated activations") {
  Random random(seed_or(56));
  for (const float range : {1e-3f, 1.0f, 6.0f, 50.0f}) {
    const Batch batch(3);
    Matrix x(3, 33, 1, 2);
    x.fill(random, -range, range);
    compare(
        fmt::format("gelu by tanh, range {}", range),
        [&](const OpTable& table, const EncoderOps& ops) {
          Matrix in = x;
          ops.gelu(table.state.get(), {.batch = &batch.index(), .x = in.view(), .by_tanh = true});
          return in;
        },
        range * 0x1p-20f);
  }
  Matrix x(1, 2);
  x.at(0, 0) = 1;
  x.at(0, 1) = -1;
  const Batch batch(1);
  encoder_ops(reference())
      .value()
      .gelu(reference().state.get(), {.batch = &batch.index(), .x = x.view(), .by_tanh = true});
  CHECK(x.at(0, 0) == doctest::Approx(0.8411919906));
  CHECK(x.at(0, 1) == doctest::Approx(-0.1588080094));
}

TEST_CASE("scale_by_position: a factor that grows with the logarithm of the position") {
  const Batch batch({{70, 70}}, 16, 1);
  Random random(seed_or(57));
  for (const int64_t width : {1, 17, 300}) {
    Matrix x(70, width, 1, 2);
    x.fill(random, -3, 3);
    const auto op = [&](const OpTable& table, const EncoderOps& ops) {
      Matrix in = x;
      ops.scale_by_position(table.state.get(),
                            {.batch = &batch.index(), .x = in.view(), .scale = 0.5f, .length = 16});
      return in;
    };
    compare(fmt::format("scale_by_position {}", width), op, 0x1p-21f);
    const Matrix out = run(reference(), op);
    CHECK(out.at(15, 0) == x.at(15, 0));
    CHECK(out.at(16, 0) == doctest::Approx(x.at(16, 0) * (1 + 0.5 * std::log(2.0))));
    CHECK(out.at(69, 0) == doctest::Approx(x.at(69, 0) * (1 + 0.5 * std::log(5.0))));
  }
}

TEST_CASE("sigmoid_gate: from closed to open") {
  Random random(seed_or(58));
  for (const float range : {1.0f, 20.0f, 500.0f}) {
    for (const int64_t width : {1, 16, 33}) {
      const Batch batch(3);
      Matrix x(3, width, 1, 2), gate(3, width, 2, 1);
      x.fill(random, -3, 3);
      gate.fill(random, -range, range);
      compare(
          fmt::format("sigmoid_gate {} range {}", width, range),
          [&](const OpTable& table, const EncoderOps& ops) {
            Matrix in = x;
            ops.sigmoid_gate(table.state.get(),
                             {.batch = &batch.index(), .x = in.view(), .gate = gate.view()});
            return in;
          },
          0x1p-20f);
      const auto alone = [&](const OpTable& table, const EncoderOps& ops) {
        Matrix in = gate;
        ops.sigmoid_gate(
            table.state.get(),
            {.batch = &batch.index(), .x = in.view(), .gate = in.view(), .alone = true});
        return in;
      };
      compare(fmt::format("sigmoid {} range {}", width, range), alone, 0x1p-20f);
      CHECK(run(reference(), alone).at(2, 0) ==
            doctest::Approx(1 / (1 + std::exp(-double{gate.at(2, 0)}))));
    }
  }
}

/// Attention of whole texts; rows of the first one.
Matrix attend(const OpTable& table, const EncoderOps& ops, const std::vector<int32_t>& lengths,
              DType kv_type, int32_t head_dim, uint32_t seed, int32_t wanted) {
  constexpr int32_t kHeads = 3;
  std::vector<SequenceShape> shapes;
  for (const int32_t length : lengths) shapes.push_back({length, length});
  const Batch batch(shapes, 16, seed);
  const int64_t layer = kv_layer_bytes(kv_type, 16, KvShape::even(kHeads, head_dim));
  std::vector<std::byte> memory(static_cast<size_t>(batch.num_blocks() * layer), std::byte{0xff});
  const PagedKv kv{memory.data(), layer, 0, kv_type, 16, KvShape::even(kHeads, head_dim)};
  const int64_t width = int64_t{kHeads} * head_dim;
  Matrix q(batch.num_tokens(), width, 1, 1), k(batch.num_tokens(), width),
      v(batch.num_tokens(), width), out(batch.num_tokens(), width, 2, 1);
  int64_t row = 0;
  for (size_t s = 0; s < lengths.size(); ++s) {
    Random random(1000 + static_cast<uint32_t>(lengths[s]));  // a text's values are its own
    for (int32_t p = 0; p < lengths[s]; ++p, ++row) {
      for (int64_t i = 0; i < width; ++i) {
        q.at(row, i) = random.uniform(-1, 1);
        k.at(row, i) = random.uniform(-1, 1);
        v.at(row, i) = random.uniform(-1, 1);
      }
    }
  }
  table.kv_store(table.state.get(),
                 {.batch = &batch.index(), .k = k.view(), .v = v.view(), .kv = kv});
  ops.attention_to_all(table.state.get(), {.batch = &batch.index(),
                                           .q = q.view(),
                                           .kv = kv,
                                           .num_heads = kHeads,
                                           .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                                           .out = out.view()});
  CHECK(out.guards_intact());
  int64_t first = 0;
  for (const int32_t length : lengths) {
    if (length == wanted) break;
    first += length;
  }
  Matrix rows(wanted, width);
  for (int64_t r = 0; r < wanted; ++r) {
    for (int64_t i = 0; i < width; ++i) rows.at(r, i) = out.at(first + r, i);
  }
  return rows;
}

TEST_CASE("attention to all: equals the reference, and has the same bits alone and in a batch") {
  for (const DType type : {DType::kF32, DType::kF16}) {
    for (const int32_t head_dim : {16, 24, 64}) {
      for (const int32_t length : {1, 2, 16, 33, 530}) {
        if (length == 530 && head_dim != 16) continue;
        const auto alone = [&](const OpTable& table, const EncoderOps& ops) {
          return attend(table, ops, {length}, type, head_dim, 7, length);
        };
        compare(fmt::format("attention of {} heads of {}", length, head_dim), alone,
                static_cast<float>(length + 2 * head_dim + 64) * 0x1p-23f, type);
        for (const NamedTable& table : cpu_tables(3)) {
          const EncoderOps ops = encoder_ops(table.ops).value();
          const Matrix mixed =
              attend(table.ops, ops, {40, 5, length, 70}, type, head_dim, 8, length);
          CHECK_MESSAGE(same_bits(alone(table.ops, ops), mixed),
                        fmt::format("{} {} of {}", table.name, length, head_dim));
        }
      }
    }
  }
}

TEST_CASE("attention to all sees later positions: the first row of two is a mean of both values") {
  const EncoderOps ops = encoder_ops(reference()).value();
  const Matrix one = attend(reference(), ops, {2}, DType::kF32, 16, 1, 2);
  // Attention only to earlier positions would give the first row the first value, which a mean of
  // the two cannot equal everywhere.
  const Batch batch({{2, 2}}, 16, 1);
  CHECK_FALSE(same_bits(one, Matrix(2, 48)));
  bool differs = false;
  Random random(1002);
  std::vector<float> v;
  for (int32_t p = 0; p < 2; ++p) {
    for (int64_t i = 0; i < 48; ++i) {
      random.uniform(-1, 1);
      random.uniform(-1, 1);
      v.push_back(random.uniform(-1, 1));
    }
  }
  for (int64_t i = 0; i < 48; ++i) {
    const float low = std::min(v[static_cast<size_t>(i)], v[static_cast<size_t>(48 + i)]);
    const float high = std::max(v[static_cast<size_t>(i)], v[static_cast<size_t>(48 + i)]);
    CHECK(one.at(0, i) >= low - 1e-6f);
    CHECK(one.at(0, i) <= high + 1e-6f);
    differs = differs || std::abs(one.at(0, i) - v[static_cast<size_t>(i)]) > 1e-3f;
  }
  CHECK(differs);
}

}  // namespace
}  // namespace hearth::kernels::testing
