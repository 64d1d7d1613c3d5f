// hearth-overflow-bench: what a role's remote costs on the way through hearthd.
//
// Two daemons of this build on loopback: one is the remote of a role of the other. The same request
// is sent to the remote itself and to the role, in turn, each over a connection that is kept.
//   first    from sending a streamed request to the first byte of its answer's first event
//   whole    to the end of the answer
//
//   hearth-overflow-bench [--smoke] [--rounds N]     --smoke: a few rounds, for ctest
// Prints medians in ms and their difference; never judges.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/check.h"
#include "tests/bench/bench_daemon.h"
#include "tests/paths.h"
#include "tests/temp_dir.h"

namespace hearth::bench {
namespace {

namespace fs = std::filesystem;

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

struct Times {
  double first_ms = 0;
  double whole_ms = 0;
};

/// One kept connection to a daemon's HTTP server.
class HttpPeer {
 public:
  explicit HttpPeer(uint16_t port)
      : port_(port), fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = loopback(port);
    HEARTH_CHECK(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~HttpPeer() { ::close(fd_); }
  HttpPeer(const HttpPeer&) = delete;
  HttpPeer& operator=(const HttpPeer&) = delete;

  /// A streamed completion by this model or role.
  Times complete(std::string_view model, int prompt) {
    const std::string body = fmt::format(
        R"({{"model":"{}","prompt":"Once upon a time {}","max_tokens":8,"temperature":0,)"
        R"("stream":true,"remote":true}})",
        model, prompt);
    const std::string request = fmt::format(
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\n\r\n{}",
        port_, body.size(), body);
    const int64_t begin_us = now_us();
    HEARTH_CHECK(::send(fd_, request.data(), request.size(), MSG_NOSIGNAL) ==
                 static_cast<ssize_t>(request.size()));
    std::string answer;
    Times times;
    while (!answer.ends_with("\r\n0\r\n\r\n")) {
      char buffer[16384];
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      HEARTH_CHECK(n > 0, "the connection ended; received: {}", answer);
      answer.append(buffer, static_cast<size_t>(n));
      if (times.first_ms == 0 && answer.find("data: ") != std::string::npos) {
        times.first_ms = static_cast<double>(now_us() - begin_us) / 1000.0;
      }
    }
    times.whole_ms = static_cast<double>(now_us() - begin_us) / 1000.0;
    HEARTH_CHECK(answer.starts_with("HTTP/1.1 200"), "{}", answer);
    const bool far = answer.find("x-hearth-remote: ") != std::string::npos;
    HEARTH_CHECK(far == (model == "role"), "answered by the wrong daemon: {}", answer);
    return times;
  }

 private:
  uint16_t port_;
  int fd_;
};

void print(std::string_view what, double Times::*time, const std::vector<Times>& direct,
           const std::vector<Times>& through) {
  const auto median = [time](const std::vector<Times>& all) {
    std::vector<double> values;
    for (const Times& each : all) values.push_back(each.*time);
    return quantile(values, 0.5);
  };
  fmt::print("{:<6} direct {:.3f} ms, through hearthd {:.3f} ms, added {:.3f} ms\n", what,
             median(direct), median(through), median(through) - median(direct));
}

void run(int rounds) {
  const tests::TempDir far_dir, near_dir;
  fs::create_directories(far_dir.path() / "models");
  fs::create_directories(near_dir.path() / "models");
  fs::copy_file(fs::path(tests::source_dir()) / "models/demo/tales.gguf",
                far_dir.path() / "models/tales.gguf");
  const uint16_t far_port = free_port();
  const Daemon far(far_dir.path(), {fmt::format("http.listen=127.0.0.1:{}", far_port)});
  const uint16_t near_port = free_port();
  const Daemon near(near_dir.path(),
                    {fmt::format("http.listen=127.0.0.1:{}", near_port),
                     fmt::format("roles.role.remote=http://127.0.0.1:{}/v1", far_port),
                     "roles.role.model=tales", "roles.role.when=absent"});
  HttpPeer direct(far_port), through(near_port);
  constexpr int kWarm = 5;  // loads the model and opens the connection between the daemons
  std::vector<Times> direct_times, through_times;
  for (int i = -kWarm; i < rounds; ++i) {
    // Each goes first half of the time. The prompts are shorter than a block of the prefix cache.
    Times alone;
    if (i % 2 == 0) alone = direct.complete("tales", i);
    const Times proxied = through.complete("role", i);
    if (i % 2 != 0) alone = direct.complete("tales", i);
    if (i < 0) continue;
    direct_times.push_back(alone);
    through_times.push_back(proxied);
  }
  print("first", &Times::first_ms, direct_times, through_times);
  print("whole", &Times::whole_ms, direct_times, through_times);
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) {
  int rounds = 300;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--smoke") rounds = 5;
    if (argument == "--rounds" && i + 1 < argc) rounds = std::max(1, std::atoi(argv[++i]));
  }
  hearth::bench::run(rounds);
  return 0;
}
