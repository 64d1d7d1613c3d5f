#include "engine/sampling/canvas_draw.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "engine/sampling/logits.h"
#include "engine/sampling/sampler.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

using models::Remasking;

/// What a rule looks at.
struct Shape {
  double chosen = 0;  ///< p of the drawn token
  double best = 0, second = 0;
  double negative_entropy = 0;
};

bool truncates(const SamplingParams& params, size_t vocab_size) {
  return (params.top_k > 0 && std::cmp_less(params.top_k, vocab_size)) || params.top_p < 1 ||
         params.min_p > 0 || params.typical_p < 1;
}

Shape shape_of(const std::vector<TokenProbability>& kept, int32_t token) {
  Shape out;
  for (const auto& [id, p] : kept) {
    if (id == token) out.chosen = p;
    if (p > 0) out.negative_entropy += p * std::log(p);
    if (p > out.best) {
      out.second = std::exchange(out.best, p);
    } else {
      out.second = std::max(out.second, p);
    }
  }
  return out;
}

// Of softmax(logits / temperature): only what the rule needs.
Shape shape_of(std::span<float> logits, int32_t token, double temperature, Remasking rule) {
  const double inverse = 1 / temperature;
  const float max = largest(logits);
  const double sum = sum_weights(logits, max, inverse);
  const double top = max;
  const auto p = [&](float logit) { return exp_negative((logit - top) * inverse) / sum; };
  Shape out;
  out.chosen = p(logits[token]);
  if (rule == Remasking::kEntropy) {
    out.negative_entropy = sum_weighted(logits, max, inverse) / sum - std::log(sum);
  }
  if (rule == Remasking::kMargin) {
    float& best = logits[argmax(logits)];
    const float kept = std::exchange(best, std::numeric_limits<float>::lowest());
    out.best = p(kept);
    out.second = p(largest(logits));
    best = kept;
  }
  return out;
}

double rank_of(const Shape& shape, Remasking rule) {
  switch (rule) {
    case Remasking::kEntropy: return shape.negative_entropy;
    case Remasking::kMargin: return shape.best - shape.second;
    case Remasking::kConfidence:
    case Remasking::kRandom:
    case Remasking::kOrigin: break;
  }
  return shape.chosen;
}

}  // namespace

Result<CanvasDraw> draw_place(Sampler& sampler, std::span<float> logits, const SampleArgs& args,
                              const models::CanvasModel& model, Remasking rule) {
  HEARTH_ASSIGN_OR_RETURN(const Sampled sampled, sampler.sample(logits, args));
  const SamplingParams& params = *args.params;
  SamplingParams drawn_from = params;
  if (params.temperature <= 0) drawn_from.temperature = 1;
  Shape shape;
  if (model.tempered && (truncates(params, logits.size()) || !params.logit_bias.empty())) {
    SampleArgs of = args;
    of.params = &drawn_from;
    std::vector<TokenProbability> kept;
    HEARTH_TRY(sampler.probabilities(logits, of, &kept));
    shape = shape_of(kept, sampled.token);
  } else {
    for (const int32_t id : args.banned) {
      if (std::cmp_less(id, logits.size())) logits[id] = std::numeric_limits<float>::lowest();
    }
    const double temperature = model.tempered ? drawn_from.temperature : 1;
    shape = shape_of(logits, sampled.token, temperature, rule);
  }
  return CanvasDraw{sampled.token, rank_of(shape, rule), shape.chosen};
}

}  // namespace hearth::engine
