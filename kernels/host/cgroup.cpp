#include "kernels/host/cgroup.h"

#include <filesystem>
#include <fstream>

namespace hearth::kernels {

std::vector<std::string> cgroup_directories(const std::string& root) {
  std::vector<std::string> directories;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("0::/", 0) != 0) continue;  // v1 controllers have other numbers
    std::string group = line.substr(3);        // "/a/b"; empty at the root group
    const bool outside_namespace = group.find("/..") != std::string::npos;
    if (group == "/" || outside_namespace) group.clear();
    while (true) {
      const std::string directory = root + "/sys/fs/cgroup" + group;
      std::error_code ignored;
      if (std::filesystem::is_directory(directory, ignored)) directories.push_back(directory);
      if (group.empty()) break;
      group.resize(group.rfind('/'));
    }
  }
  return directories;
}

std::optional<uint64_t> read_cgroup_number(const std::string& file) {
  std::ifstream in(file);
  uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

}  // namespace hearth::kernels
