#pragma once
// What another user of the machine gets over HTTP. For tests that run as root.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <string>

#include "tests/e2e/http_client.h"
#include "tests/other_user.h"

namespace hearth::e2e {

/// The other user's answer, as "STATUS BODY".
inline std::string answer_to_other(const Sandbox& sandbox, const Daemon& daemon,
                                   const std::string& method, const std::string& path,
                                   const std::string& body = {}) {
  tests::let_other_user_in(sandbox.path(), daemon.runtime());
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    if (!tests::become_other_user(parent)) ::_exit(9);
    const HttpAnswer answer = HttpClient(daemon).ask(method, path, body);
    const std::string text = fmt::format("{} {}", answer.status, answer.body);
    ::_exit(::write(pipe[1], text.data(), text.size()) < 0 ? 8 : 0);
  }
  ::close(pipe[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(pipe[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  ::close(pipe[0]);
  CHECK(wait_for_exit(child, kPatienceMs) == 0);
  return text;
}

}  // namespace hearth::e2e
