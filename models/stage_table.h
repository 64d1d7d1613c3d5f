#pragma once
// The op tables of a model that several devices compute: in stages (staged_model.h), or split
// (split_model.h).

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/host/op_thread.h"
#include "kernels/ops.h"
#include "models/model.h"

namespace hearth::models {

/// Where a stage is computed.
struct StageTable {
  std::string device;  ///< its name, for reports
  kernels::OpTable ops;
  /// Makes all calls of `ops`. Null: the caller's thread.
  std::shared_ptr<kernels::OpThread> thread;
};

/// Makes the call on the table's thread and waits.
void run_on(const StageTable& table, const std::function<void()>& call);

/// Whether a table's device has memory that the host cannot address.
bool has_own_memory(const kernels::OpTable& ops);

/// The table for an engine with such a model, which makes no op call of it: memory and copies.
/// `numerics_id`: what the tables compute together.
kernels::OpTable joint_table(std::span<const StageTable* const> tables, std::string numerics_id);

/// Loads a part of the model into each table; those with threads load at the same time. Errors:
/// those of load_model; kUnsupported, with `field`, for a model that has no parts.
Result<std::vector<std::unique_ptr<Model>>> load_on_tables(
    const GgufFile& file, std::span<const StageTable* const> tables,
    std::span<const LoadOptions> options, const std::string& field, const LoadProgressFn& progress);

}  // namespace hearth::models
