// The ops that compute each row separately: embed, rms_norm, add_bias, rope, gated activation, and
// the copies.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cmath>
#include <functional>
#include <optional>

#include "tests/op/op_testing.h"

namespace hearth::kernels::testing {
namespace {

/// Runs `op` on the reference and on every variant; compares within `bound`, and the fused variants
/// with each other to the bit.
void compare(const std::string& what, const std::function<Matrix(const OpTable&)>& op,
             const Matrix& bound) {
  const Matrix want = op(reference());
  std::optional<Matrix> fused;
  for (const NamedTable& table : cpu_tables(2)) {
    const Matrix got = op(table.ops);
    const std::string error = worst(got, want, bound);
    CHECK_MESSAGE(error.empty(), fmt::format("{} {}: {}", table.name, what, error));
    CHECK_MESSAGE(got.guards_intact(), fmt::format("{} {}: wrote outside", table.name, what));
    if (!table.ops.numerics_id.starts_with("cpu-fma/")) continue;
    if (fused) CHECK_MESSAGE(same_bits(*fused, got), fmt::format("{} {}", table.name, what));
    fused = got;
  }
}

const std::vector<int64_t> kWidths = {1, 7, 8, 15, 16, 17, 64, 100, 172, 2048};

TEST_CASE("embed: rows of every weight type, to the bit; a tied head reads the same weight") {
  for (const DType dtype :
       {DType::kF32,    DType::kF16,   DType::kBF16,    DType::kQ8_0,   DType::kQ4_0,
        DType::kQ4_1,   DType::kQ5_0,  DType::kQ5_1,    DType::kIQ4_NL, DType::kMXFP4,
        DType::kQ2_K,   DType::kQ3_K,  DType::kQ4_K,    DType::kQ5_K,   DType::kQ6_K,
        DType::kIQ4_XS, DType::kTQ1_0, DType::kTQ2_0,   DType::kNVFP4,  DType::kIQ2_XXS,
        DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S,  DType::kIQ1_S,
        DType::kIQ1_M}) {
    const int64_t unit = std::max(32, info(dtype).block_elements);
    for (const int64_t cols : {unit, 3 * unit}) {
      const Tensor tensor = random_tensor(31, dtype, 37, cols);
      for (const int32_t tokens : {1, 40}) {
        Batch batch(tokens);
        for (int32_t t = 0; t < tokens; ++t)
          batch.token_ids[static_cast<size_t>(t)] = (t * 17) % 37;
        batch.token_ids[0] = 36;
        compare(
            fmt::format("embed {} cols {}", info(dtype).name, cols),
            [&](const OpTable& ops) {
              const auto table = pack(ops, {tensor}, WeightRole::kEmbedding);
              CHECK(table->vector == nullptr);
              Matrix out(tokens, cols, 1, 1);
              ops.embed(ops.state.get(), {.batch = &batch.index(),
                                          .table = table.get(),
                                          .scale = 1.5f,
                                          .out = out.view()});
              return out;
            },
            constant(0));
      }
      const Batch batch(3);
      compare(
          fmt::format("tied head {} cols {}", info(dtype).name, cols),
          [&](const OpTable& ops) {
            const auto table = pack(ops, {tensor}, WeightRole::kEmbedding);
            Matrix x(3, cols);
            for (int64_t k = 0; k < cols; ++k) x.at(1, k) = k % 2 == 0 ? 1.0f : -0.5f;
            Matrix out(3, 37);
            ops.matmul(
                ops.state.get(),
                {.batch = &batch.index(), .x = x.view(), .w = table.get(), .out = out.view()});
            return out;
          },
          constant(1e-4f));
    }
  }
}

TEST_CASE("rms_norm: every width, in place, tiny and large values") {
  Random random(seed_or(32));
  for (const int64_t width : kWidths) {
    const Tensor weight = random_tensor(33, DType::kF32, 1, width);
    for (const float range : {1e-6f, 1.0f, 1e6f}) {
      for (const bool in_place : {false, true}) {
        const int32_t rows = width == 2048 ? 40 : 5;
        const Batch batch(rows);
        Matrix x(rows, width, 3, 1);
        x.fill(random, -range, range);
        // |out| <= sqrt(width) * |weight|: roundings of the sum, the root, and two products.
        const auto bound = static_cast<float>(std::sqrt(static_cast<double>(width)) *
                                              (static_cast<double>(width) / 32 + 10) * 0x1p-24);
        compare(
            fmt::format("rms_norm {} range {}", width, range),
            [&](const OpTable& ops) {
              const auto w = pack(ops, {weight}, WeightRole::kVector);
              Matrix in = x;
              Matrix out(rows, width, 1, 0);
              ops.rms_norm(ops.state.get(), {.batch = &batch.index(),
                                             .x = in.view(),
                                             .weight = w.get(),
                                             .eps = 1e-5f,
                                             .out = in_place ? in.view() : out.view()});
              return in_place ? in : out;
            },
            constant(bound));
      }
    }
  }
}

TEST_CASE("rms_norm: each head alone where the weight is as wide as a head") {
  Random random(seed_or(36));
  for (const int64_t head : {int64_t{1}, int64_t{8}, int64_t{17}, int64_t{128}}) {
    const Tensor weight = random_tensor(37, DType::kF32, 1, head);
    const Batch batch(4);
    Matrix x(4, 3 * head, 1, 2);
    x.fill(random, -2, 2);
    compare(
        fmt::format("rms_norm heads of {}", head),
        [&](const OpTable& ops) {
          const auto w = pack(ops, {weight}, WeightRole::kVector);
          Matrix out = x;
          ops.rms_norm(ops.state.get(), {.batch = &batch.index(),
                                         .x = out.view(),
                                         .weight = w.get(),
                                         .eps = 1e-6f,
                                         .out = out.view()});
          // One head's result does not depend on the other heads.
          Matrix alone(4, head);
          Matrix last(4, head);
          for (int64_t r = 0; r < 4; ++r) {
            for (int64_t c = 0; c < head; ++c) last.at(r, c) = x.at(r, 2 * head + c);
          }
          ops.rms_norm(ops.state.get(), {.batch = &batch.index(),
                                         .x = last.view(),
                                         .weight = w.get(),
                                         .eps = 1e-6f,
                                         .out = alone.view()});
          for (int64_t r = 0; r < 4; ++r) {
            for (int64_t c = 0; c < head; ++c) CHECK(alone.at(r, c) == out.at(r, 2 * head + c));
          }
          return out;
        },
        constant(1e-5f));
  }
}

TEST_CASE("add_scaled: one rounding, so the same bits as the reference") {
  Random random(seed_or(38));
  for (const int64_t width : kWidths) {
    const Batch batch(5);
    Matrix x(5, width, 2, 3);
    Matrix sum(5, width, 1, 1);
    x.fill(random, -3, 3);
    sum.fill(random, -3, 3);
    for (const float scale : {1.0f, 0.22f}) {
      compare(
          fmt::format("add_scaled {} scale {}", width, scale),
          [&](const OpTable& ops) {
            Matrix in = x;
            Matrix out = sum;
            ops.add_scaled(
                ops.state.get(),
                {.batch = &batch.index(), .x = in.view(), .scale = scale, .out = out.view()});
            return out;
          },
          constant(0));
    }
  }
}

TEST_CASE("add_scaled: a gate per row") {
  Random random(seed_or(40));
  const Batch batch(5);
  Matrix x(5, 70, 2, 3);
  Matrix sum(5, 70, 1, 1);
  Matrix gate(5, 1, 1, 1);
  x.fill(random, -3, 3);
  sum.fill(random, -3, 3);
  gate.fill(random, -4, 4);
  gate.at(0, 0) = 100;
  gate.at(1, 0) = -100;
  compare(
      "add_scaled gated",
      [&](const OpTable& ops) {
        Matrix in = x;
        Matrix out = sum;
        Matrix factors = gate;
        const TensorView view = factors.view();
        ops.add_scaled(ops.state.get(), {.batch = &batch.index(),
                                         .x = in.view(),
                                         .scale = 0.5f,
                                         .out = out.view(),
                                         .gate = &view});
        return out;
      },
      constant(1e-6f));
}

TEST_CASE("soft_cap: small and large values, output rows and all") {
  Random random(seed_or(39));
  for (const int64_t width : {int64_t{1}, int64_t{17}, int64_t{5000}}) {
    for (const float cap : {0.0f, 30.0f}) {
      for (const Rows rows : {Rows::kTokens, Rows::kOutputs}) {
        const Batch batch({{3, 3}, {2, 2}}, 16, 1);  // 5 rows, 2 of them outputs
        Matrix x(5, width, 1, 2);
        x.fill(random, -100, 100);
        x.at(0, 0) = 1e-6f;
        x.at(1, 0) = 1e9f;
        compare(
            fmt::format("soft_cap {} width {}", cap, width),
            [&](const OpTable& ops) {
              Matrix out = x;
              ops.soft_cap(ops.state.get(), {.batch = &batch.index(),
                                             .rows = rows,
                                             .scale = 0.125f,
                                             .soft_cap = cap,
                                             .x = out.view()});
              if (rows == Rows::kOutputs) CHECK(out.at(4, width - 1) == x.at(4, width - 1));
              return out;
            },
            constant(cap > 0 ? 3e-6f * cap : 0.0f));
      }
    }
  }
}

TEST_CASE("times_rms: a norm undone; keep_peaks: what exceeds the cutoff; the reference's bits") {
  Random random(seed_or(41));
  for (const int64_t width : kWidths) {
    const Batch batch(5);
    Matrix x(5, width, 2, 3);
    Matrix like(5, 3 * width, 1, 1);
    x.fill(random, -3, 3);
    like.fill(random, -9, 9);
    for (int64_t c = 0; c < width; ++c) x.at(3, c) = 0.25f;
    compare(
        fmt::format("times_rms {}", width),
        [&](const OpTable& ops) {
          Matrix out = x;
          Matrix other = like;
          // Null in a table without it.
          const OpTable& table = ops.times_rms != nullptr ? ops : reference();
          table.times_rms(
              table.state.get(),
              {.batch = &batch.index(), .x = out.view(), .like = other.view(), .eps = 1e-6f});
          double squares = 0;
          for (int64_t c = 0; c < 3 * width; ++c) squares += double{like.at(1, c)} * like.at(1, c);
          const double rms = std::sqrt(squares / static_cast<double>(3 * width) + 1e-6);
          CHECK(out.at(1, 0) == doctest::Approx(x.at(1, 0) * rms).epsilon(1e-6));
          return out;
        },
        constant(0));
    for (const float deviations : {-0.5f, 0.0f, 1.644f}) {
      compare(
          fmt::format("keep_peaks {} {}", width, deviations),
          [&](const OpTable& ops) {
            Matrix out = x;
            const OpTable& table = ops.keep_peaks != nullptr ? ops : reference();
            table.keep_peaks(table.state.get(),
                             {.batch = &batch.index(), .x = out.view(), .deviations = deviations});
            double mean = 0;
            for (int64_t c = 0; c < width; ++c) mean += x.at(2, c) / static_cast<double>(width);
            double variance = 0;
            for (int64_t c = 0; c < width; ++c) {
              variance += std::pow(x.at(2, c) - mean, 2) / static_cast<double>(width);
            }
            const double cutoff = mean + deviations * std::sqrt(variance);
            for (int64_t c = 0; c < width; ++c) {
              CHECK(std::fabs(out.at(2, c) - std::max(0.0, x.at(2, c) - cutoff)) < 1e-6);
            }
            CHECK(out.at(3, 0) == 0);  // equal values exceed no mean of theirs
            return out;
          },
          constant(0));
    }
  }
}

TEST_CASE("rms_norm: output rows only, where an op asks for them") {
  const Batch batch({{9, 9}, {4, 4}}, 16, 1);
  const Tensor weight = random_tensor(33, DType::kF32, 1, 24);
  Random random(1);
  Matrix x(2, 24);
  x.fill(random, -1, 1);
  compare(
      "rms_norm outputs",
      [&](const OpTable& ops) {
        const auto w = pack(ops, {weight}, WeightRole::kVector);
        Matrix out(2, 24);
        Matrix in = x;
        ops.rms_norm(ops.state.get(), {.batch = &batch.index(),
                                       .rows = Rows::kOutputs,
                                       .x = in.view(),
                                       .weight = w.get(),
                                       .eps = 1e-5f,
                                       .out = out.view()});
        return out;
      },
      constant(1e-5f));
}

TEST_CASE("add_bias: one rounding, so the same bits as the reference") {
  Random random(seed_or(34));
  for (const int64_t width : kWidths) {
    const Tensor bias = random_tensor(35, DType::kF32, 1, width);
    const Batch batch(6);
    Matrix x(6, width, 2, 5);
    x.fill(random, -3, 3);
    compare(
        fmt::format("add_bias {}", width),
        [&](const OpTable& ops) {
          const auto b = pack(ops, {bias}, WeightRole::kVector);
          Matrix out = x;
          ops.add_bias(ops.state.get(),
                       {.batch = &batch.index(), .bias = b.get(), .out = out.view()});
          return out;
        },
        constant(0));
  }
}

TEST_CASE("rope: both pairings, partial rotation, far positions") {
  for (const RopePairs pairs : {RopePairs::kNeighbours, RopePairs::kHalves}) {
    for (const auto& [head_dim, rope_dim] :
         std::vector<std::pair<int32_t, int32_t>>{{8, 8}, {64, 64}, {80, 32}, {128, 128}, {6, 2}}) {
      Tensor inv_freq{"inv_freq", DType::kF32, 1, rope_dim / 2, {}};
      for (int32_t i = 0; i < rope_dim / 2; ++i) {
        const auto f = static_cast<float>(std::pow(10000.0, -2.0 * i / rope_dim));
        const auto* bytes = reinterpret_cast<const std::byte*>(&f);
        inv_freq.bytes.insert(inv_freq.bytes.end(), bytes, bytes + 4);
      }
      // Positions 0 .. 19, and from 100 000.
      const Batch batch({{20, 20}, {100'003, 3}}, 16, 1);
      Random random(seed_or(36));
      Matrix x(23, 5 * head_dim, 1, 3);
      x.fill(random, -2, 2);
      compare(
          fmt::format("rope {}/{}", rope_dim, head_dim),
          [&](const OpTable& ops) {
            const auto f = pack(ops, {inv_freq}, WeightRole::kVector);
            Matrix table(23, rope_dim, 1, 1);
            Matrix out = x;
            ops.rope_table(ops.state.get(), {.batch = &batch.index(),
                                             .inv_freq = f.get(),
                                             .magnitude = 1.25f,
                                             .cos_sin = table.view()});
            ops.rope(ops.state.get(), {.batch = &batch.index(),
                                       .x = out.view(),
                                       .num_heads = 5,
                                       .head_dim = head_dim,
                                       .cos_sin = table.view(),
                                       .pairs = pairs});
            CHECK(table.guards_intact());
            return out;
          },
          constant(2 * 2 * 1.25f * 2 * 0x1p-24f));
    }
  }
}

TEST_CASE("gated activation: both kinds, far out on both sides") {
  for (const Activation activation :
       {Activation::kSilu, Activation::kGeluTanh, Activation::kClampedSwish}) {
    for (const int64_t width : kWidths) {
      const Batch batch(7);
      Random random(seed_or(37));
      Matrix x(7, 2 * width, 1, 1);
      x.fill(random, -1, 1);
      for (int64_t c = 0; c < width; ++c) {
        const float gates[7] = {-1e9f, -90, -10, -0.01f, 3, 100, 1e9f};
        for (int64_t r = 0; r < 7; ++r) x.at(r, c) = gates[r] * (1 + x.at(r, c) / 100);
      }
      // |up| <= 1; the activation is the gate times a value within a few roundings of 0 .. 1.
      Matrix bound(7, width);
      for (int64_t r = 0; r < 7; ++r) {
        for (int64_t c = 0; c < width; ++c) {
          const float gate = std::abs(x.at(r, c));
          bound.at(r, c) = std::max(gate * 16 * 0x1p-24f, x.at(r, c) < -80 ? 1e-28f : 0.0f);
        }
      }
      compare(
          fmt::format("gated {} width {}", static_cast<int>(activation), width),
          [&](const OpTable& ops) {
            Matrix in = x;
            Matrix out(7, width, 2, 2);
            ops.gated_activation(ops.state.get(), {.batch = &batch.index(),
                                                   .gate_up = in.view(),
                                                   .activation = activation,
                                                   .out = out.view()});
            return out;
          },
          bound);
    }
  }
}

TEST_CASE("gated activation: several rows for each token, and no more") {
  Random random(seed_or(40));
  Matrix x(9, 2 * 24);
  x.fill(random, -3, 3);
  const Batch three(3);
  const Batch nine(9);
  const auto run = [&x](const OpTable& ops, const Batch& batch, int32_t rows_per_token) {
    Matrix in = x;
    Matrix out(9, 24, 1, 1);
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t c = 0; c < 24; ++c) out.at(r, c) = 7;
    }
    ops.gated_activation(ops.state.get(), {.batch = &batch.index(),
                                           .gate_up = in.view(),
                                           .out = out.view(),
                                           .rows_per_token = rows_per_token});
    return out;
  };
  for (const NamedTable& table : cpu_tables(2)) {
    INFO(table.name);
    CHECK(same_bits(run(table.ops, three, 3), run(table.ops, nine, 1)));
    CHECK(run(table.ops, three, 2).at(6, 0) == 7);
  }
  CHECK(same_bits(run(reference(), three, 3), run(reference(), nine, 1)));
  CHECK(run(reference(), three, 2).at(6, 0) == 7);
}

TEST_CASE("gather_rows and copy_blocks move bytes") {
  Batch batch({{5, 5}, {3, 3}}, 16, 1);
  batch.output_rows = {7, 2};
  BatchIndex index = batch.index();
  index.output_rows = batch.output_rows.data();
  Random random(1);
  Matrix x(8, 33, 1, 1);
  x.fill(random, -1, 1);
  std::vector<OpTable> all{reference()};
  for (const NamedTable& table : cpu_tables(2)) all.push_back(table.ops);
  for (const OpTable& ops : all) {
    Matrix out(2, 33, 1, 0);
    ops.gather_rows(ops.state.get(), {.batch = &index, .x = x.view(), .out = out.view()});
    CHECK(out.guards_intact());
    for (int64_t c = 0; c < 33; ++c) {
      CHECK(out.at(0, c) == x.at(7, c));
      CHECK(out.at(1, c) == x.at(2, c));
    }

    std::vector<std::byte> pool(4 * 48);
    for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<std::byte>(i);
    const std::vector<std::byte> before = pool;
    const std::vector<int32_t> src{0, 2};
    const std::vector<int32_t> dst{3, 1};
    ops.copy_blocks(ops.state.get(),
                    {.base = pool.data(), .block_bytes = 48, .src = src, .dst = dst});
    for (size_t i = 0; i < 48; ++i) {
      CHECK(pool[i] == before[i]);
      CHECK(pool[3 * 48 + i] == before[i]);
      CHECK(pool[48 + i] == before[2 * 48 + i]);
    }
  }
}

TEST_CASE("row ops: a row has the same bits alone and in a batch") {
  Random random(seed_or(38));
  const Tensor weight = random_tensor(39, DType::kF32, 1, 300);
  Matrix x(40, 600);
  x.fill(random, -3, 3);
  for (const NamedTable& table : cpu_tables(3)) {
    CAPTURE(table.name);
    const auto w = pack(table.ops, {weight}, WeightRole::kVector);
    const auto run = [&](Matrix in) {
      const Batch batch(static_cast<int32_t>(in.rows()));
      Matrix out(in.rows(), 300);
      void* state = table.ops.state.get();
      table.ops.gated_activation(
          state, {.batch = &batch.index(), .gate_up = in.view(), .out = out.view()});
      table.ops.rms_norm(state, {.batch = &batch.index(),
                                 .x = out.view(),
                                 .weight = w.get(),
                                 .eps = 1e-6f,
                                 .out = out.view()});
      return out;
    };
    const Matrix all = run(x);
    for (int64_t r = 0; r < 40; ++r) {
      Matrix one(1, 600, 1);
      Matrix want(1, 300);
      for (int64_t c = 0; c < 600; ++c) one.at(0, c) = x.at(r, c);
      for (int64_t c = 0; c < 300; ++c) want.at(0, c) = all.at(r, c);
      CHECK(same_bits(run(one), want));
    }
  }
}

}  // namespace
}  // namespace hearth::kernels::testing
