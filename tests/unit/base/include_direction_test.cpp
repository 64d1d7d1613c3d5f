// Reads every #include of the tree and fails on an arrow that points up:
//   monitor -> ipc, daemon/broker -> daemon/http -> ipc, daemon/worker -> engine, ipc,
//   engine -> models -> kernels -> kernels/base, ipc -> kernels/base.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fs = std::filesystem;

namespace {

// Longest prefix first, so that kernels/base is not taken for kernels.
const std::vector<std::string> kUnits = {"kernels/base",  "kernels", "models",        "engine",
                                         "ipc/cli",       "ipc",     "daemon/broker", "daemon/http",
                                         "daemon/worker", "monitor"};

const std::map<std::string, std::vector<std::string>> kMaySee = {
    {"kernels/base", {}},
    {"kernels", {"kernels/base"}},
    {"models", {"kernels", "kernels/base"}},
    {"engine", {"models", "kernels", "kernels/base"}},
    {"ipc", {"kernels/base"}},
    {"ipc/cli", {"ipc", "kernels/base"}},
    {"daemon/broker", {"daemon/http", "ipc", "kernels/base"}},
    {"daemon/http", {"ipc", "kernels/base"}},
    {"daemon/worker", {"engine", "models", "kernels", "kernels/base", "ipc"}},
    {"monitor", {"ipc", "kernels/base"}},
};

std::string unit_of(const std::string& path) {
  for (const std::string& unit : kUnits) {
    if (path.rfind(unit + "/", 0) == 0) return unit;
  }
  return "";
}

/// What a line includes, behind the character that opens it: "<cstdint", "\"kernels/ops.h"; empty
/// for every other line.
std::string included_by(std::string_view line) {
  const auto skip_blanks = [&line] {
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
  };
  skip_blanks();
  if (line.empty() || line.front() != '#') return "";
  line.remove_prefix(1);
  skip_blanks();
  constexpr std::string_view kInclude = "include";
  if (line.substr(0, kInclude.size()) != kInclude) return "";
  line.remove_prefix(kInclude.size());
  skip_blanks();
  if (line.empty() || (line.front() != '<' && line.front() != '"')) return "";
  const size_t end = line.find_first_of(">\"", 1);
  return end == std::string_view::npos ? "" : std::string(line.substr(0, end));
}

TEST_CASE("includes point down") {
  const fs::path root = HEARTH_SOURCE_DIR;
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
        const std::string included = included_by(line);
        if (included.empty()) continue;
        const std::string target = included.substr(1);
        if (included.front() == '<') {
          const bool cuda = target.rfind("cuda", 0) == 0 || target.rfind("cublas", 0) == 0 ||
                            target.rfind("nvml", 0) == 0;
          CHECK_MESSAGE((!cuda || unit == "kernels"), path << ":" << number << " " << line);
          continue;
        }
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
