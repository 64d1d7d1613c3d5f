#pragma once
// Finds model files, names them, and resolves the name that a user gives.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::ipc {

/// Whether `name` may name a model; names go into logs, replies and a worker's arguments.
bool is_model_name(std::string_view name);
/// Whether the file name ends in .gguf, in any case.
bool has_model_suffix(std::string_view file_name);
/// Whether a word means a file: it contains a "/" or ends in .gguf.
bool is_written_as_file(std::string_view word);

struct FoundModel {
  std::string name;            ///< the file's name without suffix; "NAME@OWNER" if that is taken
  std::filesystem::path path;  ///< of a split model: its first part
  uint64_t bytes = 0;          ///< of all parts
  int64_t changed_ns = 0;      ///< of the part that changed last
  std::string problem{};       ///< parts that are missing, as a sentence; empty: none
};
/// The model that this file is or is a part of.
FoundModel model_of_file(const std::filesystem::path& file);
/// A model that is not listed because another has its name.
struct HiddenModel {
  std::string name;
  std::filesystem::path path;
  std::filesystem::path used;  ///< the file of the one that is listed
};
/// A folder that was read, and the time of its last change, ns; 0: it does not exist.
struct ModelFolder {
  std::filesystem::path path;
  int64_t changed_ns = 0;
};
/// When its content changed last, ns; 0: it is not there.
int64_t changed_ns(const std::filesystem::path& file_or_folder);
struct FoundModels {
  std::vector<FoundModel> models;    ///< if two files have the same name, the first folder's
  std::vector<HiddenModel> hidden;   ///< the others
  std::vector<ModelFolder> folders;  ///< subfolders included
  bool cut_short = false;            ///< a folder was not read for want of descriptors or memory
};
/// The .gguf files in `dirs` and two levels of subfolders (OWNER/NAME/file.gguf), ordered by folder
/// and then by name. The parts of a split model are one entry, which in its folder gives way to a
/// whole file of that name. Skips hidden files, names with control characters or a leading dash,
/// and image projectors (mmproj*). Reads at most 10,000 entries.
/// `others`: folders of other programs, searched after `dirs` and one level deeper, as a hub's
/// cache wants it.
FoundModels list_model_files(const std::vector<std::filesystem::path>& dirs,
                             const std::vector<std::filesystem::path>& others = {});

/// The name among `names` that `asked` means: the same name; else with or without .gguf and the
/// number of a part; else in another case, if only one fits. "" if none fits, or several do.
std::string match_model_name(std::string_view asked, const std::vector<std::string>& names);

/// `file_or_name` if it is an existing file; if it is written as one, the first part of the split
/// model of that name in its folder; else, unless it contains a "/", the model of that name in the
/// model directories (ipc/files/paths.h). kNotFound lists the folders searched. For command lines
/// only.
Result<std::filesystem::path> find_model_file(const std::string& file_or_name);

}  // namespace hearth::ipc
