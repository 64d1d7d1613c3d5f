#pragma once
// How tokens of a model are drawn where a request does not say: the file's own word
// (general.sampling.*), else the configuration's, else hearth's.

#include <string_view>

#include "ipc/schema/sampling.h"
#include "kernels/base/result.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {

/// The file's general.sampling.temp, top_k, top_p, min_p, penalty_repeat and penalty_last_n. A
/// value of another type or out of the field's range is left out, with a warning in the log.
ipc::SamplingSettings sampling_of_file(const models::GgufFile& file);

/// "temperature=0.7 top_k=20": the fields of ipc::SamplingSettings, separated by blanks.
/// kInvalidArgument names the field.
Result<ipc::SamplingSettings> parse_sampling(std::string_view text);

/// The file's over the configuration's over hearth's own.
ipc::SamplingDefaults sampling_defaults(const models::GgufFile& file,
                                        const ipc::SamplingSettings& configured);

}  // namespace hearth::worker
