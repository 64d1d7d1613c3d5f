#pragma once
// Draws the token of one masked place from its row of logits, and how sure that is.

#include <span>

#include "engine/sampling/canvas.h"
#include "kernels/base/result.h"

namespace hearth::engine {

class Sampler;
struct SampleArgs;

/// Of a place that `args` addresses. `args.banned` has the mask token: it is part of no
/// distribution, so every place that is filled stays filled. The row is changed. kInternal when a
/// logit is not a finite number.
///   confidence  p of the drawn token
///   rank        by the rule: p; the sum of p log p; p of the best less p of the second; else p
/// p is softmax(logits), or the distribution that was drawn from if `model.tempered` (at
/// temperature 0, that of temperature 1).
Result<CanvasDraw> draw_place(Sampler& sampler, std::span<float> logits, const SampleArgs& args,
                              const models::CanvasModel& model, models::Remasking rule);

}  // namespace hearth::engine
