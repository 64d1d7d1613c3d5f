#include "daemon/worker/tools/text_file.h"

#include <fmt/core.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "ipc/text/shown_text.h"

namespace hearth::worker {

Result<std::string> read_text(const std::string& path) {
  std::ostringstream out;
  if (path == "-") {
    char buffer[1 << 16];
    while (const size_t n = std::fread(buffer, 1, sizeof buffer, stdin)) out.write(buffer, n);
    return out.str();
  }
  std::ifstream in(path, std::ios::binary);
  if (!in || !(out << in.rdbuf())) {
    return Error::io(fmt::format("{}: cannot be read, or empty", ipc::one_line(path, 0)), "text");
  }
  return out.str();
}

}  // namespace hearth::worker
