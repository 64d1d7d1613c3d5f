#pragma once
// Lists the files in the model directories, named without suffix. A client names a model or a role,
// never a path. Owned by the io thread.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/files/model_file.h"
#include "kernels/base/result.h"

namespace hearth::broker {

struct ModelFile {
  std::string name;            ///< file name without suffix
  std::filesystem::path path;  ///< of a split model: its first part
  uint64_t bytes = 0;          ///< of all parts
  int64_t changed_ns = 0;
  std::string problem{};       ///< why it cannot be loaded: parts are missing; empty: none
  std::string draft = "auto";  ///< the draft for it, if a load named one; auto: as configured
  // Of a replica (residency/replicas.h), whose `name` is its own:
  std::string replica_of{};           ///< the model; empty: it is none
  std::string device{};               ///< of its worker; empty: as configured
  std::vector<std::string> stages{};  ///< in place of it; empty: one device computes the model

  const std::string& model() const { return replica_of.empty() ? name : replica_of; }
};

/// The folder whose files are adapters, in any model directory.
inline constexpr std::string_view kAdapterFolder = "adapters";

class ModelDirectory {
 public:
  /// `others`: folders of other programs, searched after `dirs`.
  ModelDirectory(std::vector<std::filesystem::path> dirs, std::map<std::string, std::string> roles,
                 std::vector<std::filesystem::path> others = {});

  /// Reads the directories again. Missing directories count as empty; if two files have the same
  /// name, the first directory's is used. Without descriptors or memory to read them, nothing
  /// changes.
  void rescan();
  /// The same if a directory has changed since the last scan, which costs a check of each
  /// directory. A file that only grew may be listed with its earlier size.
  void refresh();

  /// Resolves `name` now: a role's model or the model itself, with or without suffix and in any
  /// case if that is unambiguous. If the role `default` is not configured, it is the first model by
  /// name that has no problem. kForbidden for a path; kNotFound if it has a problem, or otherwise,
  /// with a list of the models.
  Result<ModelFile> resolve(const std::string& name);

  /// Resolves the name of an adapter: a file in a folder kAdapterFolder of a model directory, or
  /// else one among the models. Errors as resolve, of field `adapter`.
  Result<ModelFile> resolve_adapter(const std::string& name);

  /// Adds a file outside of the directories, until the daemon ends, and returns its name. For the
  /// daemon's own user, which could also place the file there. kNotFound if the file is absent.
  Result<std::string> adopt(const std::filesystem::path& file);

  /// Replaces the directories and sets the given roles; "" in `roles` removes a role.
  void configure(std::vector<std::filesystem::path> dirs, std::vector<std::filesystem::path> others,
                 const std::map<std::string, std::string>& roles);
  /// Points `role` at `model` and returns the model it pointed at before. kNotFound lists the roles
  /// if none has that name.
  Result<std::string> set_role(const std::string& role, const std::string& model);
  /// The model that `role` points at, whether or not its file exists. Errors as set_role.
  Result<std::string> model_of_role(const std::string& role) const;

  const std::map<std::string, ModelFile>& models() const { return models_; }
  const std::map<std::string, ModelFile>& adapters() const { return adapters_; }
  /// MODEL-medusa, MODEL-eagle3 and MODEL-dflash next to MODEL have heads for drafting: a load may
  /// name one as its draft, and lists of models leave them out.
  bool is_heads(std::string_view name) const;
  /// The roles that point at this model.
  std::vector<std::string> roles_of(const std::string& model) const;
  /// Those that are searched, in order.
  std::vector<std::filesystem::path> dirs() const;

  /// The model that a role points at, or `name` itself.
  std::string target_of(const std::string& name) const;

 private:
  const ModelFile* find(const std::string& target) const;
  void log_news(const std::vector<ipc::HiddenModel>& hidden);
  std::vector<std::string> names() const;
  Error not_found(const std::string& name, const std::string& target) const;

  std::vector<std::filesystem::path> dirs_;
  std::vector<std::filesystem::path> others_;
  std::map<std::string, std::string> roles_;
  std::map<std::string, ModelFile> models_;
  std::map<std::string, ModelFile> adapters_;
  std::vector<ModelFile> adopted_;
  std::vector<ipc::ModelFolder> folders_;
  std::vector<std::filesystem::path> logged_;  ///< hidden and incomplete models that the log names
};

}  // namespace hearth::broker
