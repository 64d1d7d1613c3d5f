#pragma once
// Which files `hearth models rm` removes, and their removal.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::ipc {

struct Removal {
  std::string model;
  std::filesystem::path folder;              ///< the model directory in which it was found
  std::vector<std::filesystem::path> files;  ///< all parts that are there; at least one
  uint64_t bytes = 0;                        ///< of them; a link counts as nothing
  /// Files of that name in folders searched later, of which the first is used next.
  std::vector<std::filesystem::path> remaining;
};

/// The files of the model called `model` in `folders`, which are searched in order. Removes
/// nothing. kInvalidArgument for a path; kNotFound lists the models; kForbidden if a link leads its
/// folder out of the model directory.
Result<Removal> find_removal(const std::string& model,
                             const std::vector<std::filesystem::path>& folders);

/// Removes the files; of a link the link, not the file that it leads to. kForbidden, kIo name the
/// first file that could not be removed; the files after it are then left.
Result<void> remove_files(const Removal& removal);

}  // namespace hearth::ipc
