#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {

namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// What the share of a chosen expert is multiplied by.
double scale_of(const MoeRouteArgs& args, int32_t expert) {
  if (args.expert_scale == nullptr) return args.scale;
  return double{args.scale} * args.expert_scale->vector[expert];
}

/// What experts are chosen by: their share plus bias, minus infinity outside the groups used.
std::vector<double> keys_of(const float* logits, const MoeRouteArgs& args) {
  const int64_t num_experts = args.logits.cols;
  std::vector<double> keys(num_experts);
  double largest = logits[0];
  for (int64_t e = 1; e < num_experts; ++e) largest = std::max<double>(largest, logits[e]);
  double sum = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    keys[e] = args.sigmoid ? sigmoid(logits[e]) : std::exp(logits[e] - largest);
    sum += keys[e];
  }
  for (int64_t e = 0; e < num_experts; ++e) {
    if (!args.sigmoid) keys[e] /= sum;
    if (args.selection_bias != nullptr) keys[e] += args.selection_bias->vector[e];
  }
  if (args.num_groups == 1) return keys;

  const int64_t size = num_experts / args.num_groups;
  std::vector<std::pair<double, int32_t>> groups;  // its score, negated for sorting
  for (int32_t g = 0; g < args.num_groups; ++g) {
    std::vector<double> members(keys.begin() + g * size, keys.begin() + (g + 1) * size);
    std::sort(members.begin(), members.end(), std::greater<>());
    const bool two = args.selection_bias != nullptr && size > 1;
    groups.emplace_back(-(members[0] + (two ? members[1] : 0)), g);
  }
  std::sort(groups.begin(), groups.end());
  for (size_t i = args.groups_used; i < groups.size(); ++i) {
    std::fill_n(keys.begin() + groups[i].second * size, size,
                -std::numeric_limits<double>::infinity());
  }
  return keys;
}

}  // namespace

void route_row(const float* logits, const MoeRouteArgs& args, int32_t* ids, float* weights) {
  const int64_t num_experts = args.logits.cols;
  std::vector<double> keys(logits, logits + num_experts);
  if (args.selection_bias != nullptr || args.num_groups > 1) keys = keys_of(logits, args);
  // A NaN never compares larger, so the ids are valid experts for any input.
  for (int32_t j = 0; j < args.top_k; ++j) {
    int32_t best = -1;
    for (int32_t e = 0; e < num_experts; ++e) {
      if (std::find(ids, ids + j, e) != ids + j) continue;
      if (best < 0 || keys[e] > keys[best]) best = e;
    }
    ids[j] = best;
  }
  if (args.sigmoid) {
    double sum = 0;
    for (int32_t j = 0; j < args.top_k; ++j) sum += sigmoid(logits[ids[j]]);
    if (!args.normalize) sum = 1;
    for (int32_t j = 0; j < args.top_k; ++j) {
      const double scale = scale_of(args, ids[j]) / std::max(sum, 1e-20);
      weights[j] = static_cast<float>(sigmoid(logits[ids[j]]) * scale);
    }
    return;
  }
  double largest = logits[ids[0]];
  if (args.selection_bias != nullptr || args.num_groups > 1) {
    largest = *std::max_element(logits, logits + num_experts);
  }
  double sum = 0;
  for (int64_t e = 0; e < num_experts; ++e) sum += std::exp(logits[e] - largest);
  if (args.normalize) {
    sum = 0;
    for (int32_t j = 0; j < args.top_k; ++j) sum += std::exp(logits[ids[j]] - largest);
  }
  for (int32_t j = 0; j < args.top_k; ++j) {
    weights[j] =
        static_cast<float>(std::exp(logits[ids[j]] - largest) / sum * scale_of(args, ids[j]));
  }
}

void moe_route(void*, const MoeRouteArgs& args) {
  check_args(args);
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    route_row(args.logits.row<float>(t), args, args.ids.row<int32_t>(t),
              args.weights.row<float>(t));
  }
}

namespace {

void multiply(const MoeMatmulArgs& args, bool super) {
  check_args(args);
  const auto& w = static_cast<const StoredWeight&>(*args.w);
  const int32_t tokens = num_rows(*args.batch, Rows::kTokens);
  for (int32_t expert = 0; expert < w.num_experts; ++expert) {
    std::vector<Activations> inputs;
    std::vector<float*> outputs;
    for (int32_t t = 0; t < tokens; ++t) {
      for (int64_t j = 0; j < args.ids.cols; ++j) {
        const int32_t id = args.ids.row<int32_t>(t)[j];
        HEARTH_CHECK(id >= 0 && id < w.num_experts, "expert {} of {}", id, w.num_experts);
        if (id != expert) continue;
        const int64_t choice = t * args.ids.cols + j;
        inputs.emplace_back(args.x.row<float>(args.x_per_choice ? choice : t), w.cols, super,
                            w.outliers_from());
        outputs.push_back(args.out.row<float>(choice));
      }
    }
    for (int64_t o = 0; o < w.rows && !inputs.empty(); ++o) {
      multiply_row(w, o, expert, inputs,
                   [&](size_t i, double sum) { outputs[i][o] = static_cast<float>(sum); });
    }
  }
}

}  // namespace

void moe_matmul(void*, const MoeMatmulArgs& args) { multiply(args, false); }
void moe_matmul_super(void*, const MoeMatmulArgs& args) { multiply(args, true); }

void moe_combine(void*, const MoeCombineArgs& args) {
  check_args(args);
  const int64_t top_k = args.weights.cols;
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    for (int64_t c = 0; c < args.out.cols; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < top_k; ++j) {
        sum += double{args.weights.row<float>(t)[j]} * args.x.row<float>(t * top_k + j)[c];
      }
      float& out = args.out.row<float>(t)[c];
      out = static_cast<float>(args.add ? out + sum : sum);
    }
  }
}

}  // namespace hearth::kernels::reference
