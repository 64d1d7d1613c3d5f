#pragma once
// The model files there are, what they are called, and the file that a user means by a name.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::ipc {

/// What may be a model's name: it goes into logs, replies and a worker's arguments.
bool is_model_name(std::string_view name);
/// Whether the name of a file ends in .gguf, in capitals or not.
bool has_model_suffix(std::string_view file_name);
/// Whether a person who writes this means a file: it has a "/" or ends in .gguf.
bool is_written_as_file(std::string_view word);

struct FoundModel {
  std::string name;  ///< the file's without suffix; "NAME@OWNER" where that is taken
  std::filesystem::path path;
  uint64_t bytes = 0;
};
/// A folder that was read, and when it had changed before that, ns; 0: it is not there.
struct ModelFolder {
  std::filesystem::path path;
  int64_t changed_ns = 0;
};
int64_t changed_ns(const std::filesystem::path& folder);
struct FoundModels {
  std::vector<FoundModel> models;    ///< of two files of one name, the first folder's
  std::vector<ModelFolder> folders;  ///< subfolders included
};
/// The .gguf files of `dirs` and of two levels of subfolders (OWNER/NAME/file.gguf), in the order
/// of the folders and then of their names. Left out: hidden files, names with control characters or
/// a leading dash, and projectors of images (mmproj*). At most 10,000 entries are looked at.
FoundModels list_model_files(const std::vector<std::filesystem::path>& dirs);

/// The name among `names` that `asked` means: the same; else with or without .gguf; else in other
/// capitals, where only one fits. "" where none does, or several do.
std::string match_model_name(std::string_view asked, const std::vector<std::string>& names);

/// `file_or_name` where it is an existing file; else what it means in the model directories
/// (ipc/files/paths.h), unless it has a "/". kNotFound says where was looked. For people's own
/// command lines.
Result<std::filesystem::path> find_model_file(const std::string& file_or_name);

}  // namespace hearth::ipc
