// Ops with a state per sequence: every CPU variant against the reference, and each with itself
// however the rows are cut into steps, with drafts, replays and snapshots.

#include "kernels/ops/recurrent_ops.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>

#include "tests/op/state_steps.h"

namespace hearth::kernels::testing {
namespace {

std::vector<NamedTable> tables_under_test() {
  std::vector<NamedTable> tables = cpu_tables(2);
  tables.push_back({"reference", reference()});
  return tables;
}

Problem conv(int32_t taps, int64_t channels, bool silu, bool gated, bool biased) {
  Problem p;
  p.name =
      fmt::format("short_conv taps {} channels {} silu {} gated {}", taps, channels, silu, gated);
  p.in_width = gated ? 3 * channels : channels;
  p.out_width = p.kept_width = channels;
  p.state_values = (taps - 1) * channels;
  p.weights = {vector_of(1, taps * channels, -1, 1), vector_of(2, channels, -1, 1)};
  p.run = [=, weights = p.weights](const OpTable& table, const BatchIndex& batch,
                                   const StatePart& state, const TensorView& in,
                                   const TensorView& kept, const TensorView& out) {
    const auto weight = pack(table, {weights[0]}, WeightRole::kVector);
    const auto bias = pack(table, {weights[1]}, WeightRole::kVector);
    TensorView in_gate, out_gate;
    if (gated) {
      in_gate = in.columns(channels, channels);
      out_gate = in.columns(2 * channels, channels);
    }
    table.recurrent->short_conv(table.state.get(), {.batch = &batch,
                                                    .x = in.columns(0, channels),
                                                    .weight = weight.get(),
                                                    .bias = biased ? bias.get() : nullptr,
                                                    .taps = taps,
                                                    .silu = silu,
                                                    .in_gate = gated ? &in_gate : nullptr,
                                                    .out_gate = gated ? &out_gate : nullptr,
                                                    .state = state,
                                                    .kept = kept,
                                                    .out = out});
  };
  return p;
}

Problem heads(int32_t num_heads, int32_t num_k_heads, int32_t k_dim, int32_t v_dim, bool delta,
              bool tiled, bool row_decays = false, bool has_dt = true) {
  Problem p;
  p.name =
      fmt::format("head_scan {} heads of ({}, {}), {} of keys, delta {} tiled {} rows {} dt {}",
                  num_heads, k_dim, v_dim, num_k_heads, delta, tiled, row_decays, has_dt);
  const int64_t keys = int64_t{num_k_heads} * k_dim, values = int64_t{num_heads} * v_dim;
  const int64_t decays = int64_t{num_heads} * (row_decays ? k_dim : 1);
  p.in_width = 2 * keys + values + decays + num_heads;
  p.out_width = values;
  p.kept_width = HeadScanArgs::kept_width(num_heads, num_k_heads, k_dim, v_dim, row_decays);
  p.state_values = values * k_dim;
  p.weights = {vector_of(3, decays, -1, 1), vector_of(4, num_heads, -1.5f, -0.1f),
               vector_of(5, num_heads, 0, 2)};
  p.run = [=, weights = p.weights](const OpTable& table, const BatchIndex& batch,
                                   const StatePart& state, const TensorView& in,
                                   const TensorView& kept, const TensorView& out) {
    const auto dt_bias = pack(table, {weights[0]}, WeightRole::kVector);
    const auto a = pack(table, {weights[1]}, WeightRole::kVector);
    const auto skip = pack(table, {weights[2]}, WeightRole::kVector);
    const TensorView dt = in.columns(2 * keys + values, decays);
    const TensorView beta = in.columns(2 * keys + values + decays, num_heads);
    table.recurrent->head_scan(table.state.get(), {.batch = &batch,
                                                   .num_heads = num_heads,
                                                   .num_k_heads = num_k_heads,
                                                   .k_dim = k_dim,
                                                   .v_dim = v_dim,
                                                   .tiled = tiled,
                                                   .q = in.columns(0, keys),
                                                   .k = in.columns(keys, keys),
                                                   .v = in.columns(2 * keys, values),
                                                   .dt = has_dt ? dt : TensorView{},
                                                   .dt_bias = has_dt ? dt_bias.get() : nullptr,
                                                   .a = a.get(),
                                                   .row_decays = row_decays,
                                                   .beta = delta ? &beta : nullptr,
                                                   .skip = delta ? nullptr : skip.get(),
                                                   .unit_keys = delta,
                                                   .eps = 1e-6f,
                                                   .q_scale = delta ? 0.25f : 1.0f,
                                                   .state = state,
                                                   .kept = kept,
                                                   .out = out});
  };
  return p;
}

Problem channels_of(int64_t channels, int64_t d_state) {
  Problem p;
  p.name = fmt::format("channel_scan {} channels, state {}", channels, d_state);
  p.in_width = 2 * channels + 2 * d_state;
  p.out_width = channels;
  p.kept_width = 2 * channels + d_state;
  p.state_values = channels * d_state;
  p.weights = {vector_of(6, channels, -1, 1), vector_of(7, channels * d_state, -1.5f, -0.1f),
               vector_of(8, channels, 0, 2)};
  p.run = [=, weights = p.weights](const OpTable& table, const BatchIndex& batch,
                                   const StatePart& state, const TensorView& in,
                                   const TensorView& kept, const TensorView& out) {
    const auto dt_bias = pack(table, {weights[0]}, WeightRole::kVector);
    const auto a = pack(table, {weights[1]}, WeightRole::kVector);
    const auto skip = pack(table, {weights[2]}, WeightRole::kVector);
    table.recurrent->channel_scan(table.state.get(),
                                  {.batch = &batch,
                                   .x = in.columns(0, channels),
                                   .dt = in.columns(channels, channels),
                                   .b = in.columns(2 * channels, d_state),
                                   .c = in.columns(2 * channels + d_state, d_state),
                                   .dt_bias = dt_bias.get(),
                                   .a = a.get(),
                                   .skip = skip.get(),
                                   .state = state,
                                   .kept = kept,
                                   .out = out});
  };
  return p;
}

std::vector<Problem> problems() {
  std::vector<Problem> all = {conv(4, 256, true, false, true),
                              conv(3, 32, false, true, false),
                              conv(2, 16, true, false, false),
                              conv(8, 272, true, false, true),
                              heads(4, 2, 32, 64, true, true),
                              heads(4, 2, 32, 64, true, false),
                              heads(2, 1, 128, 128, true, false),
                              heads(3, 3, 5, 16, true, false),
                              heads(4, 1, 16, 32, false, false),
                              heads(2, 2, 128, 80, false, false),
                              heads(3, 3, 32, 32, false, false, false, false),
                              heads(2, 1, 16, 48, true, false, false, false),
                              heads(2, 1, 200, 16, true, false),
                              heads(1, 1, 300, 32, true, false),
                              heads(2, 2, 32, 32, true, false, true),
                              heads(4, 2, 21, 16, true, true, true),
                              heads(1, 1, 130, 80, true, false, true),
                              heads(1, 1, 300, 16, true, false, true),
                              channels_of(64, 16),
                              channels_of(16, 1),
                              channels_of(176, 5),
                              channels_of(32, 40)};
  for (Problem& problem : wkv_problems()) all.push_back(std::move(problem));
  return all;
}

TEST_CASE(
    "recurrent ops: every variant equals the reference, the fused ones each other to the bit") {
  constexpr int32_t kRows = 23;
  for (const Problem& problem : problems()) {
    const std::vector<Matrix> texts = texts_of(problem, kRows);
    Steps want(problem, reference(), texts);
    in_one_go(want, kRows);
    double most = 1;
    for (int32_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < problem.out_width; ++c) {
        most = std::max(most, std::fabs(double{want.outs[0].at(r, c)}));
      }
    }
    std::optional<Matrix> fused;
    for (const NamedTable& table : cpu_tables(2)) {
      INFO(problem.name << " on " << table.name);
      Steps met(problem, table.ops, texts);
      in_one_go(met, kRows);
      for (int seq = 0; seq < 2; ++seq) {
        // Sums over at most 128 products, through 23 rows whose states depend on each other.
        const std::string error =
            worst(met.outs[seq], want.outs[seq], constant(static_cast<float>(most * 2e-5)));
        CHECK_MESSAGE(error.empty(), error);
      }
      if (!table.ops.numerics_id.starts_with("cpu-fma/")) continue;
      if (fused) CHECK(same_bits(*fused, met.outs[0]));
      fused = met.outs[0];
    }
  }
}

TEST_CASE("recurrent ops: the bits do not depend on how rows are cut into steps, nor on blocks") {
  constexpr int32_t kRows = 23;
  for (const Problem& problem : problems()) {
    const std::vector<Matrix> texts = texts_of(problem, kRows);
    for (const NamedTable& table : tables_under_test()) {
      INFO(problem.name << " on " << table.name);
      Steps want(problem, table.ops, texts);
      in_one_go(want, kRows);
      for (const int32_t chunk : {1, 4, 9}) {
        Steps met(problem, table.ops, texts);
        // Both at once, each with its own pace; the first changes its block at every step.
        int32_t done = 0, other = 0;
        while (done < kRows || other < kRows) {
          std::vector<Part> parts;
          if (const int32_t count = std::min(chunk, kRows - done); count > 0) {
            StateStep state = stays(0, done, count);
            if (done > 0) state.from = 2 + (done / chunk - 1) % 2;
            state.to = 2 + done / chunk % 2;
            parts.push_back({0, done, count, state});
            done += count;
          }
          if (const int32_t count = std::min(2 * chunk, kRows - other); count > 0) {
            parts.push_back({1, other, count, stays(1, other, count)});
            other += count;
          }
          met.step(parts);
        }
        for (int seq = 0; seq < 2; ++seq) CHECK(same_bits(met.outs[seq], want.outs[seq]));
        CHECK(met.state(2 + (kRows - 1) / chunk % 2) == want.state(0));
        CHECK(met.state(1) == want.state(1));
      }
    }
  }
}

TEST_CASE(
    "recurrent ops: drafts change no state, and replaying accepted ones gives the same bits") {
  constexpr int32_t kRows = 21;
  for (const Problem& problem : problems()) {
    const std::vector<Matrix> texts = texts_of(problem, kRows);
    for (const NamedTable& table : tables_under_test()) {
      INFO(problem.name << " on " << table.name);
      Steps want(problem, table.ops, texts);
      in_one_go(want, kRows);
      Steps met(problem, table.ops, texts);
      met.step({{0, 0, 5, stays(0, 0, 5)}});
      // Each step computes one row and `width` drafts, of which `accepted` turn out right.
      int32_t done = 5, replay = 0, kept = 0;
      for (int32_t round = 0; done < kRows; ++round) {
        const int32_t width = std::min(round % 4, kRows - done - 1);
        const int32_t accepted = width == 0 ? 0 : (round * 3) % (width + 1);
        const int32_t keep = round % 2 == 0 ? 0 : kKeptRows;
        met.step({{0,
                   done,
                   1 + width,
                   {.from = 0,
                    .to = 0,
                    .advance = 1,
                    .replay = replay,
                    .replay_first = kept,
                    .keep_first = keep}}});
        done += 1 + accepted;
        replay = accepted;
        kept = keep;
      }
      CHECK(same_bits(met.outs[0], want.outs[0]));
    }
  }
}

TEST_CASE("recurrent ops: a snapshot within a step is the state of a step that ends there") {
  constexpr int32_t kRows = 19;
  for (const Problem& problem : problems()) {
    const std::vector<Matrix> texts = texts_of(problem, kRows);
    for (const NamedTable& table : tables_under_test()) {
      INFO(problem.name << " on " << table.name);
      Steps want(problem, table.ops, texts);
      want.step({{0, 0, 7, stays(0, 0, 7)}});
      const std::vector<float> at_7 = want.state(0);
      want.step({{0, 7, 6, stays(0, 7, 6)}});
      const std::vector<float> at_13 = want.state(0);

      Steps met(problem, table.ops, texts);
      StateStep first = stays(0, 0, 10);
      first.saved = 3;
      first.saved_after = 7;
      met.step({{0, 0, 10, first}});
      CHECK(met.state(3) == at_7);
      // Two rows as drafts, both accepted: the next step's snapshot comes after them.
      met.step({{0, 10, 2, {.from = 0, .to = 0, .advance = 0, .keep_first = 4}}});
      met.step({{0,
                 12,
                 3,
                 {.from = 0,
                  .to = 2,
                  .advance = 3,
                  .replay = 2,
                  .replay_first = 4,
                  .saved = 4,
                  .saved_after = 3}}});
      CHECK(met.state(4) == at_13);
      // Two sequences continue from one snapshot.
      met.step({{0, 13, 6, {.from = 4, .to = 0, .advance = 6}},
                {0, 13, 6, {.from = 4, .to = 1, .advance = 6}}});
      want.step({{0, 13, 6, stays(0, 13, 6)}});
      CHECK(met.state(0) == want.state(0));
      CHECK(met.state(1) == want.state(0));
      CHECK(met.state(4) == at_13);
    }
  }
}

TEST_CASE("head_scan equals the formula") {
  // One head, keys of one value, values of 16 equal ones: the state is one number.
  const Problem problem = heads(1, 1, 1, 16, false, false);
  std::vector<Matrix> texts(1, Matrix(2, problem.in_width));
  const float rows[2][4] = {{2, 3, 0.5f, 1}, {1, -1, 4, -2}};  // q, k, v, dt
  for (int r = 0; r < 2; ++r) {
    texts[0].at(r, 0) = rows[r][0];
    texts[0].at(r, 1) = rows[r][1];
    for (int c = 0; c < 16; ++c) texts[0].at(r, 2 + c) = rows[r][2];
    texts[0].at(r, 18) = rows[r][3];
  }
  Steps steps(problem, reference(), texts);
  steps.step({{0, 0, 2, stays(0, 0, 2)}});
  const auto value = [&](size_t i) {
    float out;
    std::memcpy(&out, problem.weights[i].bytes.data(), 4);
    return double{out};
  };
  double state = 0;
  for (int r = 0; r < 2; ++r) {
    const double d = std::log1p(std::exp(rows[r][3] + value(0)));
    state = state * std::exp(value(1) * d) + rows[r][1] * d * rows[r][2];
    CHECK(steps.outs[0].at(r, 5) ==
          doctest::Approx(state * rows[r][0] + value(2) * rows[r][2]).epsilon(1e-6));
  }
}

}  // namespace
}  // namespace hearth::kernels::testing
