#pragma once
// The part of a request that only models that denoise have.

#include <cstdint>
#include <optional>
#include <string_view>

#include "daemon/worker/serve/prep.h"

namespace hearth::worker {

/// kUnsupported: the field needs a text that is written from left to right.
Error no_canvas(const PrepModel& model, std::string_view field);

/// How the canvas is filled; nothing for a model that writes from left to right. Steps, blocks and
/// rule are the request's, else the model's. kUnsupported names a field that does not fit the
/// model.
Result<std::optional<models::CanvasParams>> canvas_of(const PrepModel& model,
                                                      const ipc::GenerateRequest& request,
                                                      int32_t max_tokens);

}  // namespace hearth::worker
