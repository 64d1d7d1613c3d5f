#pragma once
// What families with latent attention read alike (deepseek2.cpp).

#include "models/decoder/decoder_config.h"

namespace hearth::models {

/// The sizes of latent attention; gives all layers with attention their KV. Errors as of Metadata.
Result<void> load_latent(Metadata& metadata, DecoderConfig& config);
/// The experts, their groups, and the one that all tokens use. `normalize`: the default if the file
/// does not set it.
Result<void> load_routing(Metadata& metadata, DecoderConfig& config, bool normalize);

}  // namespace hearth::models
