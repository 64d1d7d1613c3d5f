#pragma once
// The models there are: files in the model directories, named without suffix. A client names a
// model or a role and never a path. Owned by the io thread.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ipc/files/model_file.h"
#include "kernels/base/result.h"

namespace hearth::broker {

struct ModelFile {
  std::string name;  ///< file name without suffix
  std::filesystem::path path;
  uint64_t bytes = 0;
  int64_t changed_ns = 0;
  std::string draft = "auto";  ///< who guesses for it, where a load said so; auto: as configured
};

class ModelDirectory {
 public:
  ModelDirectory(std::vector<std::filesystem::path> dirs, std::map<std::string, std::string> roles);

  /// Reads the directories again. Directories that do not exist hold nothing; of two files of one
  /// name the first directory's counts.
  void rescan();
  /// The same where one has changed since the last time, which costs a look at each directory. A
  /// file that only grew may be shown with the size it had.
  void refresh();

  /// What `name` means now: a role's model or that model itself, with or without suffix and in any
  /// capitals where that is unambiguous. The role `default` without a configuration is the first
  /// model by name. kForbidden for a path, kNotFound otherwise; the message lists what there is.
  Result<ModelFile> resolve(const std::string& name);

  /// Takes in a file outside of the directories, until the daemon ends, and returns its name: for
  /// the daemon's own user, who could put it there. kNotFound where there is no such file.
  Result<std::string> adopt(const std::filesystem::path& file);

  /// Other folders, and what these roles are now; "" in `roles`: no role any more.
  void configure(std::vector<std::filesystem::path> dirs,
                 const std::map<std::string, std::string>& roles);
  /// Points `role` at `model` from now on; returns the model that it pointed at. kNotFound lists
  /// the roles where there is none of that name.
  Result<std::string> set_role(const std::string& role, const std::string& model);
  /// The model that `role` points at, whether there is such a file or not. Errors as set_role.
  Result<std::string> model_of_role(const std::string& role) const;

  const std::map<std::string, ModelFile>& models() const { return models_; }
  /// The roles that point at this model now.
  std::vector<std::string> roles_of(const std::string& model) const;
  const std::vector<std::filesystem::path>& dirs() const { return dirs_; }

  /// The model that a role points at, or `name` itself.
  std::string target_of(const std::string& name) const;

 private:
  const ModelFile* find(const std::string& target) const;
  std::vector<std::string> names() const;
  Error not_found(const std::string& name, const std::string& target) const;

  std::vector<std::filesystem::path> dirs_;
  std::map<std::string, std::string> roles_;
  std::map<std::string, ModelFile> models_;
  std::vector<ModelFile> adopted_;
  std::vector<ipc::ModelFolder> folders_;
};

}  // namespace hearth::broker
