#pragma once
// One budget of disk over the databases of all models. A worker keeps its own database within its
// share; what this adds up is what is left behind by models that are not resident. Databases of
// models that are gone go first, then those that were used longest ago; one that a worker has open
// never goes. Owned by the io thread.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace hearth::broker {

struct PrefixDatabase {
  std::filesystem::path file;
  std::string model;   ///< as its file name has it: see database_name
  uint64_t bytes = 0;  ///< with its journals
  int64_t used_s = 0;  ///< seconds since 1970
};

/// How the file names of databases begin for that model (engine/store/stored_row.h).
std::string database_name(const std::string& model);
/// The databases in `folder`; empty where it cannot be read.
std::vector<PrefixDatabase> find_databases(const std::filesystem::path& folder);
/// Those that have to go, first to last. `open` and `known`: names of models that are resident, and
/// of those that there are.
std::vector<PrefixDatabase> databases_to_drop(std::vector<PrefixDatabase> all,
                                              uint64_t budget_bytes,
                                              const std::set<std::string>& open,
                                              const std::set<std::string>& known);

class DiskBudget {
 public:
  /// `folder` empty: nothing is kept. `names` gives the models as databases_to_drop wants them.
  using Names = std::function<void(std::set<std::string>& open, std::set<std::string>& known)>;
  DiskBudget(std::filesystem::path folder, uint64_t budget_bytes, Names names)
      : folder_(std::move(folder)), budget_bytes_(budget_bytes), names_(std::move(names)) {}

  /// Call often; looks once a minute.
  void tick(int64_t now_us);

 private:
  const std::filesystem::path folder_;
  const uint64_t budget_bytes_;
  const Names names_;
  int64_t next_us_ = 0;
};

}  // namespace hearth::broker
