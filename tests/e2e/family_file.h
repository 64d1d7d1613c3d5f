#pragma once
// The tiny models of tests/golden as files that the daemon serves.

#include <filesystem>

#include "tests/golden/family_model.h"

namespace hearth::e2e {

/// Writes the model with a vocabulary of printable ASCII, weights in F32; fails the test if that
/// fails.
void write_family(const golden::FamilyModel& model, const std::filesystem::path& path);

}  // namespace hearth::e2e
