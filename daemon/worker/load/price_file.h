#pragma once
// What a model's steps were measured to cost on this machine, kept from one worker to the next.

#include <filesystem>
#include <string>

#include "engine/cost/step_cost.h"

namespace hearth::worker {

struct PriceFile {
  std::filesystem::path path;  ///< empty: nothing is kept
  std::string device;          ///< "cpu avx512vnni, AMD EPYC, 2 threads": other prices elsewhere
};

/// `folder` is made where it is absent; a model's prices are found by its fingerprint and the
/// device's numerics.
PriceFile price_file(const std::filesystem::path& folder, const std::string& fingerprint,
                     const std::string& numerics, std::string device);

/// None where there is no file, or one of another device, or one that makes no sense.
engine::MeasuredCosts load_prices(const PriceFile& file);
/// With today's date. Best effort: it only saves guessing.
void save_prices(const PriceFile& file, const engine::MeasuredCosts& prices);

}  // namespace hearth::worker
