#include "daemon/worker/tools/verbs.h"

#include <fmt/core.h>

#include <cstdio>

#include "ipc/text/shown_text.h"

namespace hearth::worker {

int report_failure(const Error& error) {
  const std::string line =
      fmt::format("hearth: {} [{}]\n", ipc::one_line(error.message, 0), name(error.code));
  std::fputs(line.c_str(), stderr);
  return kFailed;
}

bool write_stdout(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

}  // namespace hearth::worker
