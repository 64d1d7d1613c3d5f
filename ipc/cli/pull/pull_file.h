#pragma once
// One file of a pull: adopted if it is there already, else downloaded from the first source that
// can deliver it.

#include <functional>
#include <string>
#include <vector>

#include "ipc/cli/pull/download.h"

namespace hearth::cli {

struct FilePull {
  /// In the order in which they are tried, at least one; all have the same target, and the same
  /// sha256 if there are several.
  std::vector<DownloadOptions> sources;
  bool force = false;  ///< replaces a file that is there
  /// Of a split model: a file that is there counts as complete if its hash is not known but it has
  /// the size that the source reports.
  bool part_of_set = false;
};

struct Pulled {
  Downloaded file;
  bool was_there = false;
};

/// Where a source fails, the next one continues with what has arrived. `report` receives a
/// sentence about each source that failed. Errors: those of download; kInvalidArgument if another
/// file is there, or several sources have no hash.
Result<Pulled> pull_file(const FilePull& pull, const DownloadWatch& watch,
                         const std::function<void(const std::string&)>& report);

}  // namespace hearth::cli
