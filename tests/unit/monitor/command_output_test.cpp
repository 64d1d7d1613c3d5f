// The output of other programs, and how they end.

#include "monitor/commands/command_output.h"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

namespace hearth::monitor {
namespace {

Result<std::string> shell(const std::string& script, size_t max_bytes = 1 << 20) {
  const std::atomic<bool> stop{false};
  return output_of("/bin/sh", {"-c", script}, max_bytes, stop);
}

TEST_CASE("output is kept whole; a failure shows the last line of standard error") {
  CHECK(shell("echo one; echo two").value() == "one\ntwo\n");
  CHECK(shell("head -c 300000 /dev/zero").value().size() == 300'000);
  CHECK(shell("true").value().empty());
  // Much output on both at once must not block it.
  CHECK(shell("head -c 200000 /dev/zero >&2; echo end").value() == "end\n");
  const auto failed = shell("echo nothing; echo no such model >&2; exit 3");
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().message == "no such model");
  CHECK_FALSE(shell("kill -9 $$").ok());
  CHECK_FALSE(shell("printf '\\377' >&2; false").ok());
}

TEST_CASE("a program that prints without end is ended, and so is one that never exits") {
  const auto endless = shell("while :; do echo yes; done", 100'000);
  REQUIRE_FALSE(endless.ok());
  CHECK(endless.error().code == ErrorCode::kTooLarge);
  std::atomic<bool> stop{false};
  std::thread later([&stop] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    stop = true;
  });
  const auto stopped = output_of("/bin/sh", {"-c", "exec sleep 1000"}, 100, stop);
  later.join();
  REQUIRE_FALSE(stopped.ok());
  CHECK(stopped.error().code == ErrorCode::kCancelled);
  CHECK_FALSE(output_of("/nonexistent/program", {}, 100, stop).ok());
}

}  // namespace
}  // namespace hearth::monitor
