#pragma once
// Stores the measured costs of a model's steps on this machine, for the next worker.
//
// Costs are valid only for the machine on which they were measured. Two things identify a machine:
// the device's name, and its ceilings (bytes read and int8 operations per second), which a worker
// measures when it is idle, once after each boot. Costs measured under other ceilings are dropped.

#include <filesystem>
#include <string>

#include "engine/cost/step_cost.h"
#include "kernels/host/ceilings.h"

namespace hearth::worker {

/// Ceilings that differ by more than this factor belong to different machines. A smaller error in a
/// step's cost corrects itself in a few steps (engine/cost/step_cost.h), and load on the machine
/// can halve a measurement.
inline constexpr double kOtherMachine = 2;

struct CostFile {
  std::filesystem::path path;      ///< empty: nothing is stored
  std::string device;              ///< "cpu avx512vnni, AMD EPYC, 2 threads"
  std::filesystem::path ceilings;  ///< the machine's file, for all models
};

/// Creates `folder` if it does not exist. A model's costs are identified by its fingerprint and the
/// device's numerics.
CostFile cost_file(const std::filesystem::path& folder, const std::string& fingerprint,
                   const std::string& numerics, std::string device);

/// Empty if the file is absent or invalid, or is for another device or other ceilings than the
/// latest.
engine::MeasuredCosts load_costs(const CostFile& file);
/// Adds today's date, and the ceilings if they were recorded since boot. Best effort: without the
/// file, costs are estimated.
void save_costs(const CostFile& file, const engine::MeasuredCosts& costs);

/// Whether the device's ceilings were recorded since boot.
bool has_ceilings(const CostFile& file);
void note_ceilings(const CostFile& file, const kernels::Ceilings& ceilings);

}  // namespace hearth::worker
