#include "tests/bench/bench_daemon.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/clock.h"

extern char** environ;

namespace hearth::bench {
namespace fs = std::filesystem;

int64_t now_us() { return SteadyClock().now_us(); }

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(share * last + 0.5)];
}

int64_t resident_bytes(pid_t pid) {
  int64_t pages = 0;
  std::ifstream(fmt::format("/proc/{}/statm", pid)) >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  HEARTH_CHECK(::bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(fd);
  return ntohs(address.sin_port);
}

Daemon::Daemon(const fs::path& dir, const std::vector<std::string>& settings)
    : runtime_(dir / "run") {
  std::error_code ignored;
  const fs::path bin = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<std::string> argv = {(bin / "hearthd").string(),
                                   "--config",
                                   "/dev/null",
                                   "--runtime-dir",
                                   runtime_.string(),
                                   "--model-dir",
                                   (dir / "models").string(),
                                   "--log-level",
                                   "error",
                                   "--allow-root"};
  for (const std::string& setting : settings) argv.insert(argv.end(), {"--set", setting});
  argv.insert(argv.end(), {"--set", "server.state_dir=" + (dir / "state").string()});
  std::vector<char*> raw;
  for (const std::string& word : argv) raw.push_back(const_cast<char*>(word.c_str()));
  raw.push_back(nullptr);
  HEARTH_CHECK(::posix_spawn(&pid_, raw[0], nullptr, nullptr, raw.data(), environ) == 0);
  for (int i = 0; i < 500 && !ipc::Client::connect({.runtime_dir = runtime_}).ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Daemon::~Daemon() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

ipc::Client Daemon::connect() const {
  Result<ipc::Client> client = ipc::Client::connect({.runtime_dir = runtime_});
  HEARTH_CHECK(client.ok(), "{}", client.error().message);
  return std::move(client).value();
}

}  // namespace hearth::bench
