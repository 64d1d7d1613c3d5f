// Reads every #include of the tree and fails on an arrow that points up:
//   monitor -> ipc, daemon/broker -> ipc, daemon/worker -> engine, ipc,
//   engine -> models -> kernels -> kernels/base, ipc -> kernels/base.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

// Longest prefix first, so that kernels/base is not taken for kernels.
const std::vector<std::string> kUnits = {"kernels/base", "kernels", "models",        "engine",
                                         "ipc/cli",      "ipc",     "daemon/broker", "daemon/worker",
                                         "monitor"};

const std::map<std::string, std::vector<std::string>> kMaySee = {
    {"kernels/base", {}},
    {"kernels", {"kernels/base"}},
    {"models", {"kernels", "kernels/base"}},
    {"engine", {"models", "kernels", "kernels/base"}},
    {"ipc", {"kernels/base"}},
    {"ipc/cli", {"ipc", "kernels/base"}},
    {"daemon/broker", {"ipc", "kernels/base"}},
    {"daemon/worker", {"engine", "models", "kernels", "kernels/base", "ipc"}},
    {"monitor", {"ipc", "kernels/base"}},
};

std::string unit_of(const std::string& path) {
  for (const std::string& unit : kUnits) {
    if (path.rfind(unit + "/", 0) == 0) return unit;
  }
  return "";
}

TEST_CASE("includes point down") {
  const fs::path root = HEARTH_SOURCE_DIR;
  const std::regex include_line(R"re(^\s*#\s*include\s*"([^"]+)")re");
  const std::regex cuda_line(R"re(^\s*#\s*include\s*<(cuda|cublas|nvml)[^>]*>)re");
  int files = 0;
  for (const char* top : {"kernels", "models", "engine", "ipc", "daemon", "monitor"}) {
    if (!fs::exists(root / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string ext = entry.path().extension().string();
      if (ext != ".h" && ext != ".cpp" && ext != ".cu" && ext != ".cuh") continue;
      const std::string path = fs::relative(entry.path(), root).string();
      const std::string unit = unit_of(path);
      REQUIRE_MESSAGE(!unit.empty(), path << " is in no known unit");
      ++files;
      std::ifstream in(entry.path());
      std::string line;
      for (int number = 1; std::getline(in, line); ++number) {
        std::smatch match;
        if (unit != "kernels") {
          CHECK_MESSAGE(!std::regex_search(line, cuda_line), path << ":" << number << " " << line);
        }
        if (!std::regex_search(line, match, include_line)) continue;
        const std::string target = match[1];
        CHECK_MESSAGE(fs::exists(root / target),
                      path << ":" << number << " does not include from the root: " << target);
        const std::string target_unit = unit_of(target);
        if (target_unit == unit) continue;
        const std::vector<std::string>& allowed = kMaySee.at(unit);
        CHECK_MESSAGE(std::find(allowed.begin(), allowed.end(), target_unit) != allowed.end(),
                      path << ":" << number << " points up: " << target);
      }
    }
  }
  CHECK(files > 10);
}

}  // namespace
