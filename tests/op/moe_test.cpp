// Mixture of experts: routing, products by expert, and the weighted sum.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "tests/op/op_testing.h"

namespace hearth::kernels::testing {
namespace {

struct Ids {
  std::vector<int32_t> values;
  int64_t top_k;

  TensorView view() {
    return {values.data(), DType::kI32, static_cast<int64_t>(values.size()) / top_k, top_k, top_k};
  }
};

std::vector<OpTable> all_tables(int32_t threads) {
  std::vector<OpTable> all{reference()};
  for (const NamedTable& table : cpu_tables(threads)) all.push_back(table.ops);
  return all;
}

struct Route {
  Ids ids;
  Matrix weights;
};

Route route(const OpTable& ops, Matrix& logits, int32_t top_k, bool normalize, float scale) {
  const auto tokens = static_cast<int32_t>(logits.rows());
  const Batch batch(tokens);
  Route out{{std::vector<int32_t>(static_cast<size_t>(tokens * top_k), -1), top_k},
            Matrix(tokens, top_k, 1, 2)};
  ops.moe_route(ops.state.get(), {.batch = &batch.index(),
                                  .logits = logits.view(),
                                  .top_k = top_k,
                                  .normalize = normalize,
                                  .scale = scale,
                                  .ids = out.ids.view(),
                                  .weights = out.weights.view()});
  CHECK(out.weights.guards_intact());
  return out;
}

TEST_CASE("moe_route: the largest logits in descending order, with their share of the softmax") {
  Random random(seed_or(51));
  for (const int32_t experts : {1, 2, 8, 60, 128}) {
    for (const int32_t top_k : {1, 2, 8}) {
      if (top_k > experts) continue;
      Matrix logits(23, experts, 3, 1);
      logits.fill(random, -6, 6);
      for (const bool normalize : {false, true}) {
        for (const OpTable& ops : all_tables(3)) {
          const Route got = route(ops, logits, top_k, normalize, 2.5f);
          for (int64_t t = 0; t < 23; ++t) {
            std::vector<int32_t> order(static_cast<size_t>(experts));
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
              return logits.at(t, a) > logits.at(t, b);
            });
            double sum = 0;
            for (int32_t i = 0; i < (normalize ? top_k : experts); ++i) {
              sum += std::exp(double{logits.at(t, order[static_cast<size_t>(i)])});
            }
            for (int32_t j = 0; j < top_k; ++j) {
              const int32_t id = got.ids.values[static_cast<size_t>(t * top_k + j)];
              CHECK(id == order[static_cast<size_t>(j)]);
              CHECK(got.weights.at(t, j) ==
                    doctest::Approx(2.5 * std::exp(double{logits.at(t, id)}) / sum).epsilon(1e-6));
            }
          }
        }
      }
    }
  }
}

/// Experts by share plus bias, in the groups used; computed anew for each expert, in double.
std::vector<std::pair<int32_t, double>> routed(const Matrix& logits, int64_t row,
                                               const MoeRouteArgs& args, const float* bias) {
  const auto experts = static_cast<int32_t>(logits.cols());
  const auto raw = [&](int32_t e) {
    const double x = logits.at(row, e);
    return args.sigmoid ? 1 / (1 + std::exp(-x)) : std::exp(x);
  };
  double total = 0;
  for (int32_t e = 0; e < experts; ++e) total += args.sigmoid ? 0 : raw(e);
  const auto share = [&](int32_t e) { return args.sigmoid ? raw(e) : raw(e) / total; };
  const auto key = [&](int32_t e) { return share(e) + (bias != nullptr ? double{bias[e]} : 0.0); };
  const int32_t size = experts / args.num_groups;
  const auto score = [&](int32_t group) {
    std::vector<double> keys;
    for (int32_t e = group * size; e < (group + 1) * size; ++e) keys.push_back(key(e));
    std::sort(keys.rbegin(), keys.rend());
    return bias != nullptr && size > 1 ? keys[0] + keys[1] : keys[0];
  };
  std::vector<int32_t> order;
  for (int32_t e = 0; e < experts; ++e) {
    int32_t better = 0;
    for (int32_t g = 0; g < args.num_groups; ++g) better += score(g) > score(e / size) ? 1 : 0;
    if (better < args.groups_used) order.push_back(e);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return key(a) > key(b); });
  std::vector<std::pair<int32_t, double>> out;
  double sum = 0;
  for (int32_t j = 0; j < args.top_k; ++j) sum += share(order[static_cast<size_t>(j)]);
  for (int32_t j = 0; j < args.top_k; ++j) {
    const int32_t e = order[static_cast<size_t>(j)];
    out.emplace_back(e, share(e) / (args.normalize ? sum : 1) * double{args.scale});
  }
  return out;
}

TEST_CASE("moe_route: sigmoid shares, a bias that only selects, and groups") {
  Random random(seed_or(57));
  constexpr int32_t kExperts = 24;
  for (const OpTable& ops : all_tables(3)) {
    for (const bool sigmoid : {false, true}) {
      for (const bool biased : {false, true}) {
        for (const auto& [groups, used] :
             std::vector<std::pair<int32_t, int32_t>>{{1, 1}, {4, 2}, {24, 5}, {8, 8}}) {
          Matrix logits(11, kExperts, 2, 1);
          logits.fill(random, -3, 3);
          const Tensor bias = random_tensor(58, DType::kF32, 1, kExperts);
          const auto packed = pack(ops, {bias}, WeightRole::kVector);
          const Batch batch(11);
          Route out{{std::vector<int32_t>(11 * 5, -1), 5}, Matrix(11, 5, 1, 2)};
          const MoeRouteArgs args{.batch = &batch.index(),
                                  .logits = logits.view(),
                                  .top_k = 5,
                                  .normalize = groups == 4,
                                  .scale = 1.5f,
                                  .ids = out.ids.view(),
                                  .weights = out.weights.view(),
                                  .sigmoid = sigmoid,
                                  .selection_bias = biased ? packed.get() : nullptr,
                                  .num_groups = groups,
                                  .groups_used = used};
          ops.moe_route(ops.state.get(), args);
          for (int64_t t = 0; t < 11; ++t) {
            const auto want = routed(logits, t, args, biased ? packed->vector : nullptr);
            for (int64_t j = 0; j < 5; ++j) {
              CHECK(out.ids.values[static_cast<size_t>(t * 5 + j)] == want[j].first);
              CHECK(out.weights.at(t, j) == doctest::Approx(want[j].second).epsilon(1e-6));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("moe_route: a chosen expert's weight is multiplied by its scale") {
  Random random(seed_or(60));
  const Tensor scales = random_tensor(61, DType::kF32, 1, 12);
  for (const OpTable& ops : all_tables(3)) {
    for (const bool sigmoid : {false, true}) {
      Matrix logits(7, 12);
      logits.fill(random, -3, 3);
      const auto packed = pack(ops, {scales}, WeightRole::kVector);
      const Batch batch(7);
      Route plain{{std::vector<int32_t>(7 * 3, -1), 3}, Matrix(7, 3)};
      Route scaled = plain;
      MoeRouteArgs args{.batch = &batch.index(),
                        .logits = logits.view(),
                        .top_k = 3,
                        .normalize = true,
                        .scale = 1.5f,
                        .ids = plain.ids.view(),
                        .weights = plain.weights.view(),
                        .sigmoid = sigmoid};
      ops.moe_route(ops.state.get(), args);
      args.ids = scaled.ids.view();
      args.weights = scaled.weights.view();
      args.expert_scale = packed.get();
      ops.moe_route(ops.state.get(), args);
      CHECK(scaled.ids.values == plain.ids.values);
      for (int64_t t = 0; t < 7; ++t) {
        for (int64_t j = 0; j < 3; ++j) {
          const float scale = packed->vector[plain.ids.values[static_cast<size_t>(t * 3 + j)]];
          CHECK(std::fabs(scaled.weights.at(t, j) - plain.weights.at(t, j) * scale) < 1e-6);
        }
      }
    }
  }
}

TEST_CASE("add_bias of experts: each row gets its expert's") {
  Random random(seed_or(59));
  const Tensor bias = random_tensor(60, DType::kF32, 1, 4 * 19);
  const Batch batch(6);
  Ids ids{{}, 2};
  for (int32_t i = 0; i < 12; ++i) ids.values.push_back(i * 7 % 4);
  Matrix x(12, 19, 1, 2);
  x.fill(random, -3, 3);
  for (const OpTable& ops : all_tables(3)) {
    const auto packed = pack(ops, {bias}, WeightRole::kVector);
    Matrix out = x;
    const TensorView chosen = ids.view();
    ops.add_bias(
        ops.state.get(),
        {.batch = &batch.index(), .bias = packed.get(), .out = out.view(), .ids = &chosen});
    for (int64_t r = 0; r < 12; ++r) {
      for (int64_t c = 0; c < 19; ++c) {
        CHECK(out.at(r, c) ==
              x.at(r, c) + packed->vector[ids.values[static_cast<size_t>(r)] * 19 + c]);
      }
    }
  }
}

TEST_CASE("moe_route: ties go to the lower id; NaN and infinite logits still give experts") {
  for (const OpTable& ops : all_tables(2)) {
    Matrix logits(3, 6);
    for (int64_t e = 0; e < 6; ++e) {
      logits.at(0, e) = e % 2 == 0 ? 1.0f : 2.0f;
      logits.at(1, e) = NAN;
      logits.at(2, e) = e == 4 ? INFINITY : -INFINITY;
    }
    const Route got = route(ops, logits, 4, true, 1.0f);
    CHECK(std::vector<int32_t>(got.ids.values.begin(), got.ids.values.begin() + 4) ==
          std::vector<int32_t>{1, 3, 5, 0});
    CHECK(got.ids.values[8] == 4);
    for (int64_t t = 1; t < 3; ++t) {
      std::vector<int32_t> ids(got.ids.values.begin() + 4 * t, got.ids.values.begin() + 4 * t + 4);
      std::sort(ids.begin(), ids.end());
      CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
      CHECK(ids.front() >= 0);
      CHECK(ids.back() < 6);
    }
  }
}

/// One tensor of experts of `rows` outputs each.
Tensor experts_tensor(uint32_t seed, DType dtype, int32_t experts, int64_t rows, int64_t cols) {
  Tensor tensor = random_tensor(seed, dtype, experts * rows, cols);
  tensor.num_experts = experts;
  return tensor;
}

/// The matrix of one expert alone.
Tensor expert_of(const Tensor& tensor, int32_t expert) {
  const size_t bytes = tensor.bytes.size() / static_cast<size_t>(tensor.num_experts);
  const auto begin = tensor.bytes.begin() + static_cast<ptrdiff_t>(bytes) * expert;
  return {tensor.name,
          tensor.dtype,
          tensor.rows / tensor.num_experts,
          tensor.cols,
          {begin, begin + static_cast<ptrdiff_t>(bytes)}};
}

Ids random_ids(Random& random, int32_t tokens, int32_t top_k, int32_t experts) {
  Ids ids{{}, top_k};
  std::vector<int32_t> order(static_cast<size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  for (int32_t t = 0; t < tokens; ++t) {
    std::shuffle(order.begin(), order.end(), random.engine());
    ids.values.insert(ids.values.end(), order.begin(), order.begin() + top_k);
  }
  return ids;
}

struct MoeCase {
  std::vector<std::pair<DType, int64_t>> joined;  ///< type and rows per expert
  int64_t cols;
  int32_t experts;
  int32_t top_k;
  int32_t tokens;
  bool per_choice;
};

Matrix multiply(const OpTable& ops, const MoeCase& c, const Weight& w, Matrix& x, Ids ids) {
  const Batch batch(static_cast<int32_t>(ids.view().rows));
  Matrix out(batch.num_tokens() * c.top_k, w.rows, 1, 3);
  ops.moe_matmul(ops.state.get(), {.batch = &batch.index(),
                                   .x = x.view(),
                                   .x_per_choice = c.per_choice,
                                   .w = &w,
                                   .ids = ids.view(),
                                   .out = out.view()});
  CHECK(out.guards_intact());
  return out;
}

/// matmul of one row of x with one expert.
Matrix alone(const OpTable& ops, const std::vector<Tensor>& tensors, int32_t expert,
             const Matrix& x, int64_t row) {
  std::vector<Tensor> own;
  for (const Tensor& tensor : tensors) own.push_back(expert_of(tensor, expert));
  const auto weight = pack(ops, own, WeightRole::kMatmul);
  Matrix one(1, x.cols());
  for (int64_t k = 0; k < x.cols(); ++k) one.at(0, k) = x.at(row, k);
  Matrix out(1, weight->rows);
  const Batch batch(1);
  ops.matmul(ops.state.get(),
             {.batch = &batch.index(), .x = one.view(), .w = weight.get(), .out = out.view()});
  return out;
}

TEST_CASE("moe_matmul: each output row has the bits of matmul with that expert alone") {
  using enum DType;
  const std::vector<MoeCase> cases = {
      {{{kF32, 20}}, 40, 4, 2, 3, false},
      {{{kF16, 16}}, 24, 3, 1, 1, false},
      {{{kQ8_0, 24}, {kQ8_0, 24}}, 64, 8, 2, 9, false},
      {{{kQ4_K, 32}, {kQ4_K, 32}}, 256, 8, 4, 17, true},
      {{{kQ6_K, 17}}, 512, 2, 2, 45, true},
      {{{kMXFP4, 33}}, 96, 5, 3, 12, false},
      {{{kQ4_K, 20}, {kQ6_K, 12}}, 256, 16, 8, 2, false},
  };
  for (const MoeCase& c : cases) {
    Random random(seed_or(52));
    Matrix x(c.per_choice ? c.tokens * c.top_k : c.tokens, c.cols, 1, 1);
    x.fill(random, -2, 2);
    const Ids ids = random_ids(random, c.tokens, c.top_k, c.experts);
    std::vector<Tensor> tensors;
    uint32_t seed = 60;
    for (const auto& [dtype, rows] : c.joined) {
      tensors.push_back(experts_tensor(seed++, dtype, c.experts, rows, c.cols));
    }
    std::optional<Matrix> fused;
    for (const OpTable& ops : all_tables(2)) {
      CAPTURE(ops.device.variant);
      const auto weight = pack(ops, tensors, WeightRole::kExperts);
      CHECK(weight->num_experts == c.experts);
      const Matrix got = multiply(ops, c, *weight, x, ids);
      for (int64_t choice = 0; choice < c.tokens * c.top_k; ++choice) {
        const int32_t expert = ids.values[static_cast<size_t>(choice)];
        const int64_t row = c.per_choice ? choice : choice / c.top_k;
        const Matrix want = alone(ops, tensors, expert, x, row);
        Matrix part(1, want.cols());
        for (int64_t o = 0; o < want.cols(); ++o) part.at(0, o) = got.at(choice, o);
        CHECK_MESSAGE(same_bits(part, want), fmt::format("choice {}", choice));
      }
      if (!ops.numerics_id.starts_with("cpu-fma/")) continue;
      if (fused) CHECK(same_bits(*fused, got));
      fused = got;
    }
  }
}

TEST_CASE("moe_matmul: any number of threads, all rows on one expert, no rows") {
  const MoeCase c{{{DType::kQ5_K, 40}}, 512, 6, 2, 50, false};
  Random random(seed_or(53));
  Matrix x(c.tokens, c.cols);
  x.fill(random, -2, 2);
  const std::vector<Tensor> tensors = {experts_tensor(70, DType::kQ5_K, 6, 40, c.cols)};
  for (const NamedTable& table : cpu_tables(3)) {
    const auto weight = pack(table.ops, tensors, WeightRole::kExperts);
    Ids one{std::vector<int32_t>(100, 5), 2};
    const Matrix all = multiply(table.ops, c, *weight, x, one);
    for (int64_t t = 0; t < c.tokens; ++t) CHECK(all.at(2 * t, 7) == all.at(2 * t + 1, 7));
    table.ops.set_num_threads(table.ops.state.get(), 1);
    CHECK(same_bits(multiply(table.ops, c, *weight, x, one), all));
    table.ops.set_num_threads(table.ops.state.get(), 3);

    Batch batch(4);
    BatchIndex index = batch.index();
    const int32_t counts[3] = {0, 1, 1};
    index.counts = counts;
    Matrix out(8, 40);
    table.ops.moe_matmul(
        table.ops.state.get(),
        {.batch = &index, .x = x.view(), .w = weight.get(), .ids = one.view(), .out = out.view()});
    CHECK(out.at(0, 0) == 0.0f);
  }
}

TEST_CASE("moe_combine: one weighted sum per value, added to the residual once") {
  Random random(seed_or(54));
  for (const int64_t width : {int64_t{1}, int64_t{7}, int64_t{16}, int64_t{33}, int64_t{2048}}) {
    for (const int32_t top_k : {1, 2, 8}) {
      const int32_t tokens = width > 1000 ? 40 : 5;
      const Batch batch(tokens);
      Matrix x(tokens * top_k, width, 1, 3);
      x.fill(random, -2, 2);
      Matrix weights(tokens, top_k, 2, 1);
      weights.fill(random, 0, 1);
      Matrix residual(tokens, width, 3, 2);
      residual.fill(random, -4, 4);
      std::optional<Matrix> want;
      std::optional<Matrix> fused;
      for (const OpTable& ops : all_tables(2)) {
        Matrix out = residual;
        ops.moe_combine(
            ops.state.get(),
            {.batch = &batch.index(), .x = x.view(), .weights = weights.view(), .out = out.view()});
        CHECK(out.guards_intact());
        Matrix sum = residual;
        Matrix none(tokens, width);
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t c = 0; c < width; ++c) none.at(t, c) = 0;
        }
        for (const bool add : {false, true}) {
          ops.moe_combine(ops.state.get(), {.batch = &batch.index(),
                                            .x = x.view(),
                                            .weights = weights.view(),
                                            .out = add ? none.view() : sum.view(),
                                            .add = add});
        }
        CHECK(same_bits(sum, none));  // the sum alone is the sum added to nothing
        if (!want) want = out;
        const std::string error = worst(
            out, *want, constant(static_cast<float>((2 * top_k + 4) * (top_k + 2) * 0x1p-24)));
        CHECK_MESSAGE(error.empty(), fmt::format("{} {}", ops.device.variant, error));
        if (!ops.numerics_id.starts_with("cpu-fma/")) continue;
        if (fused) CHECK(same_bits(*fused, out));
        fused = out;
      }
    }
  }
}

}  // namespace
}  // namespace hearth::kernels::testing
