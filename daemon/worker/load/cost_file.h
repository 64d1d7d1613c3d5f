#pragma once
// What a model's steps were measured to cost on this machine, kept from one worker to the next.
//
// A cost is of the machine that it was measured on. Two things identify a machine: the device's
// name, and its ceilings (bytes read and int8 operations per second), which a worker measures when
// it is idle, once after each start of the machine. Costs that were measured under other ceilings
// are dropped.

#include <filesystem>
#include <string>

#include "engine/cost/step_cost.h"
#include "kernels/host/ceilings.h"

namespace hearth::worker {

/// Ceilings further apart than this factor are those of different machines. A step's cost that is
/// wrong by less corrects itself in a few steps (engine/cost/step_cost.h), and a busy machine can
/// halve what is measured.
inline constexpr double kOtherMachine = 2;

struct CostFile {
  std::filesystem::path path;      ///< empty: nothing is kept
  std::string device;              ///< "cpu avx512vnni, AMD EPYC, 2 threads"
  std::filesystem::path ceilings;  ///< the machine's, for all models
};

/// `folder` is made where it is absent; a model's costs are found by its fingerprint and the
/// device's numerics.
CostFile cost_file(const std::filesystem::path& folder, const std::string& fingerprint,
                   const std::string& numerics, std::string device);

/// None where there is no file, or one of another device or of other ceilings than were noted last,
/// or one that makes no sense.
engine::MeasuredCosts load_costs(const CostFile& file);
/// With today's date and the ceilings, where those were noted since the machine started. Best
/// effort: it only saves guessing.
void save_costs(const CostFile& file, const engine::MeasuredCosts& costs);

/// Whether the device's ceilings were noted since the machine started.
bool has_ceilings(const CostFile& file);
void note_ceilings(const CostFile& file, const kernels::Ceilings& ceilings);

}  // namespace hearth::worker
