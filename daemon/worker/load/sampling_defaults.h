#pragma once
// How tokens of a model are drawn where a request does not say: the file's own word
// (general.sampling.*), else the configuration's, else hearth's.

#include "ipc/schema/sampling.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {

/// The file's general.sampling.temp, top_k, top_p, min_p, penalty_repeat and penalty_last_n. A
/// value of another type or out of the field's range is left out, with a warning in the log.
ipc::SamplingSettings sampling_of_file(const models::GgufFile& file);

/// The file's over the configuration's over hearth's own.
ipc::SamplingDefaults sampling_defaults(const models::GgufFile& file,
                                        const ipc::SamplingSettings& configured);

}  // namespace hearth::worker
