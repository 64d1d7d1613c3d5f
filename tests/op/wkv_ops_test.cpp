// What RWKV-7 adds to the ops with a state, as problems for recurrent_ops_test.cpp, and each op
// against its formula.

#include "kernels/ops/wkv_ops.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "tests/op/state_steps.h"

namespace hearth::kernels::testing {
namespace {

/// Several convolutions of the same rows.
Problem shifts(int32_t taps, int64_t channels, int32_t num_outs) {
  Problem p;
  p.name = fmt::format("short_conv taps {} channels {} outs {}", taps, channels, num_outs);
  p.in_width = p.kept_width = channels;
  p.out_width = num_outs * channels;
  p.state_values = (taps - 1) * channels;
  p.weights = {vector_of(1, num_outs * taps * channels, -1, 1)};
  p.run = [=, weights = p.weights](const OpTable& table, const BatchIndex& batch,
                                   const StatePart& state, const TensorView& in,
                                   const TensorView& kept, const TensorView& out) {
    const auto weight = pack(table, {weights[0]}, WeightRole::kVector);
    table.recurrent->short_conv(table.state.get(), {.batch = &batch,
                                                    .x = in,
                                                    .weight = weight.get(),
                                                    .bias = nullptr,
                                                    .taps = taps,
                                                    .state = state,
                                                    .kept = kept,
                                                    .out = out,
                                                    .num_outs = num_outs});
  };
  return p;
}

/// head_scan with keys that are erased.
Problem erasing_heads(int32_t num_heads, int32_t k_dim, int32_t v_dim) {
  Problem p;
  p.name = fmt::format("head_scan, erasing, {} heads of ({}, {})", num_heads, k_dim, v_dim);
  const int64_t keys = int64_t{num_heads} * k_dim, values = int64_t{num_heads} * v_dim;
  p.in_width = 5 * keys + values;
  p.out_width = values;
  p.kept_width = HeadScanArgs::kept_width_erasing(num_heads, k_dim, v_dim);
  p.state_values = values * k_dim;
  // Between sqrt(3 / k_dim) and its negative, so that erased keys have a length of about 1.
  const float small = std::sqrt(3.0f / static_cast<float>(k_dim));
  p.weights = {vector_of(3, 1, small, small)};
  p.run = [=](const OpTable& table, const BatchIndex& batch, const StatePart& state,
              const TensorView& in, const TensorView& kept, const TensorView& out) {
    Matrix erased(in.rows, keys), removed(in.rows, keys), decays(in.rows, keys);
    for (int64_t r = 0; r < batch.num_tokens; ++r) {
      for (int64_t i = 0; i < keys; ++i) {
        erased.at(r, i) = in.row<float>(r)[2 * keys + i] * small;
        removed.at(r, i) = erased.at(r, i) * (0.5f + in.row<float>(r)[3 * keys + i] / 2);
        decays.at(r, i) = 0.8f + in.row<float>(r)[4 * keys + i] / 5;
      }
    }
    const TensorView erased_view = erased.view(), removed_view = removed.view();
    table.recurrent->head_scan(table.state.get(), {.batch = &batch,
                                                   .num_heads = num_heads,
                                                   .num_k_heads = num_heads,
                                                   .k_dim = k_dim,
                                                   .v_dim = v_dim,
                                                   .q = in.columns(0, keys),
                                                   .k = in.columns(keys, keys),
                                                   .v = in.columns(5 * keys, values),
                                                   .dt = decays.view(),
                                                   .dt_bias = nullptr,
                                                   .a = nullptr,
                                                   .row_decays = true,
                                                   .erased = &erased_view,
                                                   .removed = &removed_view,
                                                   .state = state,
                                                   .kept = kept,
                                                   .out = out});
    table.synchronize(table.state.get());
  };
  return p;
}

/// The five rows of wkv_inputs in place: `in` has them and, with a first v, that and its gate.
Problem wkv_inputs(int32_t num_heads, int32_t head_dim, bool first_layer) {
  Problem p;
  p.name = fmt::format("wkv_inputs {} heads of {}, first {}", num_heads, head_dim, first_layer);
  const int64_t width = int64_t{num_heads} * head_dim;
  p.in_width = 7 * width;
  p.out_width = 5 * width;
  p.kept_width = 1;
  for (uint64_t seed = 9; seed < 14; ++seed) p.weights.push_back(vector_of(seed, width, -2, 2));
  p.run = [=, weights = p.weights](const OpTable& table, const BatchIndex& batch, const StatePart&,
                                   const TensorView& in, const TensorView&, const TensorView& out) {
    std::vector<std::unique_ptr<Weight>> packed;
    for (const Tensor& w : weights) packed.push_back(pack(table, {w}, WeightRole::kVector));
    for (int64_t r = 0; r < batch.num_tokens; ++r) {
      std::copy_n(in.row<float>(r), 5 * width, out.row<float>(r));
    }
    const TensorView first_v = in.columns(5 * width, width);
    const TensorView v_gate = in.columns(6 * width, width);
    table.recurrent->wkv_inputs(table.state.get(),
                                {.batch = &batch,
                                 .head_dim = head_dim,
                                 .k = out.columns(0, width),
                                 .v = out.columns(width, width),
                                 .decay = out.columns(2 * width, width),
                                 .rate = out.columns(3 * width, width),
                                 .erased = out.columns(4 * width, width),
                                 .erased_scale = packed[0].get(),
                                 .rate_bias = packed[1].get(),
                                 .k_scale = packed[2].get(),
                                 .decay_bias = packed[3].get(),
                                 .first_v = first_layer ? nullptr : &first_v,
                                 .v_gate = first_layer ? nullptr : &v_gate,
                                 .v_gate_bias = first_layer ? nullptr : packed[4].get()});
    table.synchronize(table.state.get());
  };
  return p;
}

Problem wkv_output(int32_t num_heads, int32_t head_dim, bool norm, bool gate) {
  Problem p;
  p.name =
      fmt::format("wkv_output {} heads of {}, norm {} gate {}", num_heads, head_dim, norm, gate);
  const int64_t width = int64_t{num_heads} * head_dim;
  p.in_width = 5 * width;
  p.out_width = width;
  p.kept_width = 1;
  for (uint64_t seed = 14; seed < 17; ++seed) p.weights.push_back(vector_of(seed, width, -1, 1));
  p.run = [=, weights = p.weights](const OpTable& table, const BatchIndex& batch, const StatePart&,
                                   const TensorView& in, const TensorView&, const TensorView& out) {
    std::vector<std::unique_ptr<Weight>> packed;
    for (const Tensor& w : weights) packed.push_back(pack(table, {w}, WeightRole::kVector));
    for (int64_t r = 0; r < batch.num_tokens; ++r) {
      std::copy_n(in.row<float>(r), width, out.row<float>(r));
    }
    const TensorView gates = in.columns(4 * width, width);
    table.recurrent->wkv_output(table.state.get(), {.batch = &batch,
                                                    .head_dim = head_dim,
                                                    .y = out,
                                                    .q = in.columns(width, width),
                                                    .k = in.columns(2 * width, width),
                                                    .v = in.columns(3 * width, width),
                                                    .bonus = packed[0].get(),
                                                    .norm = norm ? packed[1].get() : nullptr,
                                                    .norm_bias = norm ? packed[2].get() : nullptr,
                                                    .eps = 64e-5f,
                                                    .gate = gate ? &gates : nullptr});
    table.synchronize(table.state.get());
  };
  return p;
}

}  // namespace

std::vector<Problem> wkv_problems() {
  return {shifts(2, 64, 6),
          shifts(2, 272, 1),
          shifts(3, 16, 2),
          erasing_heads(2, 64, 64),
          erasing_heads(3, 21, 16),
          erasing_heads(1, 128, 80),
          erasing_heads(1, 300, 16),
          wkv_inputs(3, 64, false),
          wkv_inputs(2, 16, true),
          wkv_inputs(1, 144, false),
          wkv_output(3, 64, true, true),
          wkv_output(2, 16, false, true),
          wkv_output(1, 144, true, false)};
}

namespace {

TEST_CASE("head_scan with erased keys equals the formula") {
  // Keys of one value and values of 16 equal ones: the state is one number.
  const Problem problem = erasing_heads(1, 1, 16);
  const double small = std::sqrt(3.0);
  std::vector<Matrix> texts(1, Matrix(3, problem.in_width));
  double state = 0;
  std::vector<double> want;
  for (int r = 0; r < 3; ++r) {
    const double q = 0.5 * r + 1, k = 2 - r, erased = 0.25 + 0.125 * r, removed = 0.5, decay = -0.5;
    const double v = 3 - 2 * r;
    const double given[] = {q, k, erased, removed, decay};
    for (int i = 0; i < 5; ++i) texts[0].at(r, i) = static_cast<float>(given[i]);
    for (int i = 5; i < 21; ++i) texts[0].at(r, i) = static_cast<float>(v);
    const double key = erased * small;
    state = state * (0.8 + decay / 5) - key * (0.5 + removed / 2) * (state * key) + k * v;
    want.push_back(state * q);
  }
  Steps steps(problem, reference(), texts);
  steps.step({{0, 0, 3, stays(0, 0, 3)}});
  for (int r = 0; r < 3; ++r) {
    CHECK(steps.outs[0].at(r, 7) == doctest::Approx(want[static_cast<size_t>(r)]).epsilon(1e-5));
  }
}

TEST_CASE("wkv ops equal the formulas") {
  constexpr int kDim = 16;
  const Problem inputs = wkv_inputs(1, kDim, false);
  const auto weight = [](const Problem& problem, size_t i, int c) {
    float out;
    std::memcpy(&out, problem.weights[i].bytes.data() + 4 * c, 4);
    return double{out};
  };
  const auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::vector<Matrix> texts = texts_of(inputs, 1);
  const auto in = [&texts](int part, int c) { return double{texts[0].at(0, part * kDim + c)}; };
  Steps met(inputs, reference(), texts);
  met.step({{0, 0, 1, stays(0, 0, 1)}});
  double squares = 0;
  for (int c = 0; c < kDim; ++c) squares += std::pow(in(0, c) * weight(inputs, 0, c), 2);
  for (int c = 0; c < kDim; ++c) {
    const auto out = [&](int part) { return met.outs[0].at(0, part * kDim + c); };
    const double rate = logistic(in(3, c) + weight(inputs, 1, c));
    const double key = in(0, c) * weight(inputs, 0, c) / std::sqrt(squares);
    const double share = logistic(in(6, c) + weight(inputs, 4, c));
    const double power = logistic(in(2, c) + weight(inputs, 3, c));
    CHECK(out(0) == doctest::Approx(in(0, c) * (1 + (rate - 1) * weight(inputs, 2, c))));
    CHECK(out(1) == doctest::Approx(in(1, c) + (in(5, c) - in(1, c)) * share));
    CHECK(out(2) == doctest::Approx(std::exp(-std::exp(-0.5) * power)));
    CHECK(out(3) == doctest::Approx(key * rate));
    CHECK(out(4) == doctest::Approx(key));
  }

  const Problem output = wkv_output(1, kDim, true, true);
  const std::vector<Matrix> rows = texts_of(output, 1);
  const auto at = [&rows](int part, int c) { return double{rows[0].at(0, part * kDim + c)}; };
  Steps done(output, reference(), rows);
  done.step({{0, 0, 1, stays(0, 0, 1)}});
  double mean = 0, variance = 0, bonus = 0;
  for (int c = 0; c < kDim; ++c) mean += at(0, c) / kDim;
  for (int c = 0; c < kDim; ++c) variance += std::pow(at(0, c) - mean, 2) / kDim;
  for (int c = 0; c < kDim; ++c) bonus += at(1, c) * at(2, c) * weight(output, 0, c);
  for (int c = 0; c < kDim; ++c) {
    const double normed = (at(0, c) - mean) / std::sqrt(variance + 64e-5) * weight(output, 1, c) +
                          weight(output, 2, c);
    CHECK(done.outs[0].at(0, c) ==
          doctest::Approx((normed + bonus * at(3, c)) * at(4, c)).epsilon(1e-5));
  }
}

}  // namespace
}  // namespace hearth::kernels::testing
