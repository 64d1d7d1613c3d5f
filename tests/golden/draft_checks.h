#pragma once
// What holds for every draft layer and head that continues a model's rows, one sequence at a time.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tests/golden/family_model.h"
#include "tests/golden/step_runner.h"

namespace hearth::golden {

std::vector<int32_t> first_of(const std::vector<int32_t>& tokens, size_t count);

/// Logits of drafts, one row for each, equal those recorded within 5e-5 of the largest.
void check_logits(const std::vector<std::vector<float>>& met, const FamilyModel::Drafts& want);

/// Drafts after `tokens` with the runners of `make`: chunks of a prompt and another sequence change
/// no bit of them; and what was drafted no logit of the model, whose own runner is `plain`.
void check_drafts_alone(StepRunner& plain, const std::function<StepRunner()>& make,
                        const std::vector<int32_t>& tokens, const std::vector<int32_t>& drafts,
                        std::span<const int32_t> chunks);

}  // namespace hearth::golden
