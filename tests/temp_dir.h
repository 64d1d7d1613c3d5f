#pragma once
// A test's own directory, removed at its end. Its path is short, since socket paths end at 107
// bytes.

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "kernels/base/check.h"

namespace hearth::tests {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hearthXXXXXX").string();
    HEARTH_CHECK(::mkdtemp(pattern.data()) != nullptr, "{}", pattern);
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace hearth::tests
