#pragma once
// A temporary directory used as "/" where code reads /proc and /sys.

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/temp_dir.h"

namespace hearth::kernels {

class FakeRoot {
 public:
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path target = dir_.path() / file;
    std::filesystem::create_directories(target.parent_path());
    std::ofstream(target) << text;
  }
  std::string path() const { return dir_.path().string(); }

 private:
  tests::TempDir dir_;
};

}  // namespace hearth::kernels
