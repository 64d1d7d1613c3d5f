#include "tests/e2e/terminal.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/daemon.h"

namespace hearth::e2e {

Terminal::Terminal(const std::vector<std::string>& argv,
                   const std::map<std::string, std::string>& environment) {
  std::vector<char*> raw;
  for (const std::string& argument : argv) raw.push_back(const_cast<char*>(argument.c_str()));
  raw.push_back(nullptr);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  const winsize size{.ws_row = 40, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
  pid_ = ::forkpty(&fd_, nullptr, nullptr, &size);
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    ::execv(raw[0], raw.data());
    ::_exit(127);
  }
}

Terminal::~Terminal() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(fd_);
}

void Terminal::type(const std::string& keys) {
  REQUIRE(::write(fd_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
}

bool Terminal::read_some() {
  pollfd item{.fd = fd_, .events = POLLIN, .revents = 0};
  if (::poll(&item, 1, 100) <= 0) return true;
  char chunk[4096];
  const ssize_t n = ::read(fd_, chunk, sizeof chunk);
  if (n <= 0) return false;
  seen_.append(chunk, static_cast<size_t>(n));
  return true;
}

bool Terminal::wait_for(const std::string& text) {
  const int64_t end = now_ms() + kPatienceMs;
  while (true) {
    const size_t at = seen_.find(text, waited_);
    if (at != std::string::npos) {
      waited_ = at + text.size();
      return true;
    }
    if (now_ms() > end || !read_some()) return false;
  }
}

int Terminal::wait_for_exit() {
  const int64_t end = now_ms() + kPatienceMs;
  int status = 0;
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    REQUIRE_MESSAGE(now_ms() < end, seen_);
    read_some();
  }
  pid_ = -1;
  return status;
}

}  // namespace hearth::e2e
