#include "tests/e2e/baseline.h"

#include <unistd.h>

#include <fstream>

namespace hearth::e2e {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kSanitizerBytes = 400u << 20;
#else
constexpr size_t kSanitizerBytes = 0;
#endif

size_t resident_bytes(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/statm");
  size_t pages = 0, resident = 0;
  in >> pages >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

Answer ask(ipc::Client& client) { return run(client, seeded(4, 300)); }

}  // namespace

Baseline::Baseline(const Daemon& daemon)
    : daemon_(daemon),
      client_(daemon.connect()),
      answer_(ask(client_)),
      resident_bytes_(resident_bytes(daemon.pid())) {}

size_t Baseline::grown_bytes() const {
  const size_t now = resident_bytes(daemon_.pid()), before = resident_bytes_ + kSanitizerBytes;
  return now > before ? now - before : 0;
}

bool Baseline::same_tokens() { return ask(client_).ids == answer_.ids; }

}  // namespace hearth::e2e
