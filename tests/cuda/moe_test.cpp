// Mixture of experts compared with the reference, and its batch invariance by ==.

#include <algorithm>
#include <cmath>

#include "tests/cuda/rig.h"

namespace hearth::tests {
namespace {

/// Expert ids in device memory: choice j of token t is (3 t + 5 j) % experts.
class Ids {
 public:
  Ids(const OpTable& ops, int32_t rows, int32_t top_k, int32_t experts) {
    std::vector<int32_t> values;
    for (int32_t t = 0; t < rows; ++t) {
      for (int32_t j = 0; j < top_k; ++j) values.push_back((3 * t + 5 * j) % experts);
    }
    buffer_ = upload(ops, values);
    view_ = {buffer_.data(), DType::kI32, rows, top_k, top_k};
  }
  const kernels::TensorView& view() const { return view_; }

 private:
  kernels::DeviceBuffer buffer_;
  kernels::TensorView view_;
};

struct Case {
  std::vector<DType> types;
  int64_t outputs = 37;  ///< of each joined tensor and expert
  int64_t cols = 256;
  int32_t experts = 7;
  int32_t top_k = 2;
  int32_t tokens = 5;
  bool per_choice = false;
};

std::vector<float> run(const OpTable& ops, const Case& c) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < c.types.size(); ++i) {
    parts.push_back(random_tensor(60 + i, c.types[i], c.outputs * c.experts, c.cols));
    parts.back().num_experts = c.experts;
  }
  const auto weight = pack(ops, parts, WeightRole::kExperts);
  const Step step(ops, c.tokens);
  const int32_t per_token = c.per_choice ? c.top_k : 1;
  std::vector<float> inputs;
  for (int32_t row = 0; row < step.bound() * per_token; ++row) {
    const std::vector<float> values = Random(100 + static_cast<uint64_t>(row)).floats(c.cols);
    inputs.insert(inputs.end(), values.begin(), values.end());
  }
  const DeviceRows x(ops, step.bound() * per_token, c.cols, inputs);
  const DeviceRows out(ops, step.bound() * c.top_k, weight->rows);
  const Ids ids(ops, step.bound(), c.top_k, c.experts);
  ops.moe_matmul(ops.state.get(),
                 {&step.batch(), x.view(), c.per_choice, weight.get(), ids.view(), out.view()});
  return out.read(step.num_tokens() * c.top_k);
}

void same_as_reference(const OpTable& ops, const Case& c) {
  CAPTURE(kernels::info(c.types[0]).name);
  CAPTURE(c.tokens);
  const std::vector<float> want = run(reference_ops(), c);
  double tolerance = 4.0 * 0x1p-24 * double(c.cols);
  // Inputs are rounded to f16: errors have both signs.
  for (const DType type : c.types) {
    if (type == DType::kF16) tolerance = std::max(tolerance, 0x1p-10 * std::sqrt(double(c.cols)));
  }
  in_every_order([&] { check_close(run(ops, c), want, tolerance); });
}

}  // namespace

TEST_CASE("moe_matmul: types, few and many rows, inputs per token and per choice") {
  HEARTH_CUDA_TABLE(ops);
  for (const DType type : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_K, DType::kMXFP4}) {
    for (const bool per_choice : {false, true}) {
      for (const int32_t tokens : {1, 3, 50}) {
        same_as_reference(ops, {.types = {type}, .tokens = tokens, .per_choice = per_choice});
      }
    }
  }
  same_as_reference(ops, {.types = {DType::kQ4_K, DType::kQ4_K, DType::kF16, DType::kQ6_K}});
  same_as_reference(ops, {.types = {DType::kQ8_0}, .cols = 32, .experts = 40, .top_k = 8});
  // Runs of several rounds per warp; so many experts that two warps count the choices.
  for (const int32_t experts : {40, 2500}) {
    const Case c = {.types = {DType::kQ8_0},
                    .outputs = 3,
                    .cols = 32,
                    .experts = experts,
                    .top_k = 7,
                    .tokens = 290};
    check_close(run(ops, c), run(reference_ops(), c), 1e-4);
  }
}

TEST_CASE("moe_matmul: a row's value does not depend on the other rows") {
  HEARTH_CUDA_TABLE(ops);
  for (const DType type : {DType::kF16, DType::kQ4_K}) {
    const Case many{.types = {type}, .cols = 2560, .tokens = 30};
    const std::vector<float> all = run(ops, many);
    for (const int32_t tokens : {1, 2, 9, 17}) {
      Case few = many;
      few.tokens = tokens;
      const std::vector<float> some = run(ops, few);
      CHECK(std::equal(some.begin(), some.end(), all.begin()));
    }
  }
}

TEST_CASE("moe_route by sigmoid, bias and groups; the bias of experts") {
  HEARTH_CUDA_TABLE(ops);
  constexpr int32_t kExperts = 40, kTopK = 6;
  for (const bool sigmoid : {false, true}) {
    for (const bool biased : {false, true}) {
      for (const int32_t groups : {1, 8}) {
        CAPTURE(groups);
        const auto route = [&](const OpTable& table) {
          const Step step(table, 9);
          std::vector<float> values = Random(3).floats(step.bound() * kExperts);
          for (float& value : values) value *= 3;
          const DeviceRows logits(table, step.bound(), kExperts, values);
          const DeviceRows weights(table, step.bound(), kTopK);
          const Ids ids(table, step.bound(), kTopK, kExperts);
          const auto bias =
              pack(table, {random_tensor(6, DType::kF32, 1, kExperts)}, WeightRole::kVector);
          table.moe_route(
              table.state.get(),
              {&step.batch(), logits.view(), kTopK, sigmoid, 1.5f, ids.view(), weights.view(),
               sigmoid, biased ? bias.get() : nullptr, groups, groups == 1 ? 1 : 3});
          const DeviceRows x(table, step.bound() * kTopK, 13,
                             Random(4).floats(step.bound() * kTopK * 13));
          const auto added =
              pack(table, {random_tensor(7, DType::kF32, 1, kExperts * 13)}, WeightRole::kVector);
          const kernels::TensorView chosen = ids.view();
          table.add_bias(table.state.get(), {&step.batch(), added.get(), x.view(), &chosen});
          std::vector<float> all = weights.read(step.num_tokens());
          const std::vector<float> rows = x.read(step.num_tokens() * kTopK);
          all.insert(all.end(), rows.begin(), rows.end());
          return all;
        };
        const std::vector<float> want = route(reference_ops());
        in_every_order([&] { check_close(route(ops), want, 2e-6); });
      }
    }
  }
}

TEST_CASE("moe_route and moe_combine") {
  HEARTH_CUDA_TABLE(ops);
  for (const int32_t experts : {1, 8, 60, 200}) {
    for (const bool normalize : {false, true}) {
      CAPTURE(experts);
      const int32_t top_k = std::min(experts, 6);
      const auto route = [&](const OpTable& table) {
        const Step step(table, 9);
        std::vector<float> values = Random(3).floats(step.bound() * experts);
        for (float& value : values) value = std::round(value * 16);  // ties
        const DeviceRows logits(table, step.bound(), experts, values);
        const DeviceRows weights(table, step.bound(), top_k);
        const Ids ids(table, step.bound(), top_k, experts);
        table.moe_route(table.state.get(), {&step.batch(), logits.view(), top_k, normalize, 1.5f,
                                            ids.view(), weights.view()});
        const DeviceRows x(table, step.bound() * top_k, 70,
                           Random(4).floats(step.bound() * top_k * 70));
        const DeviceRows out(table, step.bound(), 70, Random(5).floats(step.bound() * 70));
        table.moe_combine(table.state.get(), {&step.batch(), x.view(), weights.view(), out.view()});
        std::vector<float> all = weights.read(step.num_tokens());
        std::vector<int32_t> chosen(static_cast<size_t>(step.num_tokens() * top_k));
        table.copy_to_host(table.state.get(), chosen.data(), ids.view().data, chosen.size() * 4);
        all.insert(all.end(), chosen.begin(), chosen.end());
        const std::vector<float> combined = out.read(step.num_tokens());
        all.insert(all.end(), combined.begin(), combined.end());
        return all;
      };
      const std::vector<float> want = route(reference_ops());
      in_every_order([&] { check_close(route(ops), want, 2e-6); });
    }
  }
}

}  // namespace hearth::tests
