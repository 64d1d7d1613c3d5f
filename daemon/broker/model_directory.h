#pragma once
// The models there are: files in the model directories, named without suffix. A client names a
// model or a role and never a path. Owned by the io thread.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::broker {

struct ModelFile {
  std::string name;  ///< file name without suffix
  std::filesystem::path path;
  uint64_t bytes = 0;
};

class ModelDirectory {
 public:
  ModelDirectory(std::vector<std::filesystem::path> dirs, std::map<std::string, std::string> roles);

  /// Reads the directories again where one has changed since. Directories that do not exist hold
  /// nothing; of two files of one name the first directory's counts.
  void rescan();

  /// What `name` means now: a role's model or that model itself. The role `default` without a
  /// configuration is the first model by name. kForbidden for a path, kNotFound otherwise; the
  /// message lists what there is.
  Result<ModelFile> resolve(const std::string& name);

  const std::map<std::string, ModelFile>& models() const { return models_; }
  /// The roles that point at this model now.
  std::vector<std::string> roles_of(const std::string& model) const;
  const std::vector<std::filesystem::path>& dirs() const { return dirs_; }

 private:
  std::string target_of(const std::string& name) const;
  Error not_found(const std::string& name, const std::string& target) const;

  std::vector<std::filesystem::path> dirs_;
  std::map<std::string, std::string> roles_;
  std::map<std::string, ModelFile> models_;
};

}  // namespace hearth::broker
