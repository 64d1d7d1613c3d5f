#pragma once
// Reads general information from a model file of any family.

#include "models/gguf/gguf_file.h"
#include "models/model.h"
#include "models/pooling.h"

namespace hearth::models {

/// name, architecture, title, file_type, fingerprint (computed, by reading the whole file, if the
/// file has none set), num_parameters and file_bytes; the other fields keep their defaults.
/// kCorrupt names the key.
Result<ModelInfo> describe_file(const GgufFile& file);

/// ARCHITECTURE.pooling_type; kNone if it is missing. kCorrupt for an unknown number.
Result<Pooling> load_pooling(const GgufFile& file, std::string_view architecture);

}  // namespace hearth::models
