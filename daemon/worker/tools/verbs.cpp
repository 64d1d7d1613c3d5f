#include "daemon/worker/tools/verbs.h"

#include <fmt/core.h>

#include <cstdio>

#include "daemon/worker/load/options.h"
#include "daemon/worker/tools/command_line.h"
#include "ipc/text/shown_text.h"

namespace hearth::worker {

void add_compute_options(Verb verb, DeviceOptions& device) {
  verb.option("--device", device.device, "cpu or cuda:N; default: the CPU").type_name("NAME");
  verb.option("--numerics", device.numerics,
              "exact (default), or fast: on a GPU, prompts by cuBLASLt where it is installed")
      .type_name("MODE");
  verb.option("--threads", device.threads, "compute threads; 0: one per core").range(0, 4096);
  verb.option("--mapping", device.mapping,
              "memory (default), or file: a CPU reads weights from the file at every step")
      .type_name("MODE");
  verb.option("--weight-bytes", device.weight_bytes,
              "with --mapping file: bytes of the matrices that are held in memory; default 0");
}

int report_failure(const Error& error) {
  const std::string line =
      fmt::format("hearth: {} [{}]\n", ipc::one_line(error.message, 0), name(error.code));
  std::fputs(line.c_str(), stderr);
  return error.code == ErrorCode::kCancelled ? kInterrupted : kFailed;
}

bool write_stdout(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

}  // namespace hearth::worker
