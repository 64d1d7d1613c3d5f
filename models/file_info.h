#pragma once
// General information from a model file of any family.

#include "models/gguf/gguf_file.h"
#include "models/model.h"

namespace hearth::models {

/// name, architecture, title, file_type, fingerprint (computed where the file has none yet: reads
/// all of it), num_parameters and file_bytes; the rest stays as it is. kCorrupt names the key.
Result<ModelInfo> describe_file(const GgufFile& file);

}  // namespace hearth::models
