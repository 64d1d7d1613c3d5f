#pragma once
// One disk budget for the databases of all models. A worker keeps its own database within its
// share; this adds the databases left by models that are not resident. Databases of models that no
// longer exist are dropped first, then the least recently used; a database that a worker has open
// is never dropped. Owned by the io thread.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace hearth::broker {

struct PrefixDatabase {
  std::filesystem::path file;
  std::string model;   ///< as in the file name: see database_name
  uint64_t bytes = 0;  ///< journals included
  int64_t used_s = 0;  ///< seconds since 1970
};

/// The prefix of database file names for that model (engine/store/stored_row.h).
std::string database_name(const std::string& model);
/// The databases in `folder`; empty if it cannot be read.
std::vector<PrefixDatabase> find_databases(const std::filesystem::path& folder);
/// The databases to drop, in this order. `open`: names of resident models; `known`: names of all
/// existing models.
std::vector<PrefixDatabase> databases_to_drop(std::vector<PrefixDatabase> all,
                                              uint64_t budget_bytes,
                                              const std::set<std::string>& open,
                                              const std::set<std::string>& known);

class DiskBudget {
 public:
  /// `folder` empty: nothing is stored. `names` fills the two sets for databases_to_drop().
  using Names = std::function<void(std::set<std::string>& open, std::set<std::string>& known)>;
  DiskBudget(std::filesystem::path folder, uint64_t budget_bytes, Names names)
      : folder_(std::move(folder)), budget_bytes_(budget_bytes), names_(std::move(names)) {}

  /// Call often; it checks once a minute.
  void tick(int64_t now_us);

 private:
  const std::filesystem::path folder_;
  const uint64_t budget_bytes_;
  const Names names_;
  int64_t next_us_ = 0;
};

}  // namespace hearth::broker
