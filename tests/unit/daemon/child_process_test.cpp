#include "daemon/broker/process/child_process.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace hearth::broker {
namespace {

bool ended_within(const ChildProcess& child, int ms) {
  pollfd item{child.pidfd(), POLLIN, 0};
  return ::poll(&item, 1, ms) == 1;
}

TEST_CASE("how a child ended is described in words") {
  Result<ChildProcess> exits = ChildProcess::start({"/bin/sh", "-c", "exit 3"});
  REQUIRE(exits.ok());
  CHECK(ended_within(*exits, 10'000));
  CHECK(exits->reap() == "exit status 3");

  Result<ChildProcess> killed = ChildProcess::start({"/bin/sleep", "60"});
  REQUIRE(killed.ok());
  CHECK_FALSE(ended_within(*killed, 0));
  killed->signal(SIGKILL);
  CHECK(ended_within(*killed, 10'000));
  CHECK(killed->reap() == "signal 9 (Killed)");
}

TEST_CASE("a program that cannot be run is an error that names it, and leaves no process") {
  const Result<ChildProcess> missing = ChildProcess::start({"/nowhere/worker"});
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == ErrorCode::kIo);
  CHECK(missing.error().message == "/nowhere/worker: No such file or directory");
}

TEST_CASE("a child gets no descriptor of its parent's but the first three, whatever their flags") {
  int open[2];
  REQUIRE(::pipe(open) == 0);  // without close-on-exec
  const Result<ChildProcess> child = ChildProcess::start({"/bin/sleep", "60"});
  REQUIRE(child.ok());
  std::set<std::string> met;
  const std::string folder = "/proc/" + std::to_string(child->pid()) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    met.insert(entry.path().filename().string());
  }
  CHECK(met == std::set<std::string>{"0", "1", "2"});
  for (const int fd : open) ::close(fd);
}

TEST_CASE("a child is the first to be killed when memory is short, and dies with its owner") {
  Result<ChildProcess> child = ChildProcess::start({"/bin/sleep", "60"});
  REQUIRE(child.ok());
  std::ifstream file("/proc/" + std::to_string(child->pid()) + "/oom_score_adj");
  int score = 0;
  file >> score;
  CHECK(score == 500);
  const pid_t pid = child->pid();
  { const ChildProcess taken = std::move(*child); }  // its destructor
  CHECK(::kill(pid, 0) == -1);
}

}  // namespace
}  // namespace hearth::broker
