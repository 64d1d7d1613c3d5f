#pragma once
// Sampling defaults of a model, for requests that do not set them: from the file
// (general.sampling.*), else from the configuration, else hearth's.

#include "ipc/schema/sampling.h"
#include "models/canvas.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {

/// The file's general.sampling.temp, top_k, top_p, min_p, penalty_repeat and penalty_last_n. A
/// value of the wrong type or out of range is skipped with a warning in the log.
ipc::SamplingSettings sampling_of_file(const models::GgufFile& file);

/// The file's values, else the configured ones, else those of a model that denoises, else hearth's
/// own.
ipc::SamplingDefaults sampling_defaults(const models::GgufFile& file,
                                        const ipc::SamplingSettings& configured,
                                        const models::CanvasModel& canvas = {});

}  // namespace hearth::worker
