// Writes the rig's recording, which looks like a busy daemon's and is the same every time.

#include <cstdio>
#include <cstdlib>

#include "tests/monitor/rig.h"

int main(int argc, char** argv) {
  if (argc != 5)
    return std::fprintf(stderr, "hearth-make-recording FILE SECONDS REQUESTS BLOCKS\n"), 2;
  auto writer = hearth::ipc::RecordingWriter::create(argv[1]);
  if (!writer.ok()) return std::fprintf(stderr, "%s\n", writer.error().message.c_str()), 1;
  for (const auto& message : hearth::monitor::made_recording(std::atoi(argv[2]), std::atoi(argv[3]),
                                                             std::atoi(argv[4]))) {
    if (!writer->add(message).ok()) return 1;
  }
  return 0;
}
