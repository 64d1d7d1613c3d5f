#pragma once
// How often each expert of a model was chosen, kept for the next worker, and the experts that are
// put next to the other weights because of it.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/model.h"

namespace hearth::worker {

/// Of each layer, of each expert.
using ExpertCounts = std::vector<std::vector<uint64_t>>;

/// Creates `folder` if it does not exist.
std::filesystem::path expert_count_file(const std::filesystem::path& folder,
                                        const std::string& name);
/// Empty if the file is absent or invalid.
ExpertCounts load_expert_counts(const std::filesystem::path& file);
/// Half of what the file has, and `counts`. Best effort: without the file no expert is hot.
void add_expert_counts(const std::filesystem::path& file, const ExpertCounts& counts);

/// The experts chosen most often that fit, each of so many bytes; none that never was.
models::HotExperts hot_experts(const ExpertCounts& counts, uint64_t bytes_each, uint64_t bytes);

}  // namespace hearth::worker
