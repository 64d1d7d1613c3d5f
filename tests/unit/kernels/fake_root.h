#pragma once
// A throw-away directory that stands for "/" where code reads /proc and /sys.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace hearth::kernels {

class FakeRoot {
 public:
  FakeRoot() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hearth-root-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~FakeRoot() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path target = std::filesystem::path(path_) / file;
    std::filesystem::create_directories(target.parent_path());
    std::ofstream(target) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace hearth::kernels
