#include "daemon/broker/process/runtime_dir.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "tests/temp_dir.h"

namespace hearth::broker {
namespace {

namespace fs = std::filesystem;

/// A path that does not exist yet.
struct TempPath {
  tests::TempDir temp;
  fs::path path = temp.path() / "run";
};

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

TEST_CASE("one daemon at a time holds a directory; the error for the next names the first") {
  const TempPath temp;
  {
    const Result<RuntimeDir> first = RuntimeDir::take(temp.path);
    REQUIRE(first.ok());
    CHECK(mode_of(temp.path) == (::geteuid() == 0 ? 0750 : 0700));
    CHECK(mode_of(temp.path / "workers") == 0700);
    const Result<RuntimeDir> second = RuntimeDir::take(temp.path);
    REQUIRE_FALSE(second.ok());
    CHECK(second.error().code == ErrorCode::kUnavailable);
    CHECK(second.error().message.find("pid " + std::to_string(::getpid())) != std::string::npos);
  }
  CHECK(RuntimeDir::take(temp.path).ok());
}

TEST_CASE("files of a killed daemon are removed") {
  const TempPath temp;
  fs::create_directories(temp.path / "workers");
  fs::permissions(temp.path, fs::perms::owner_all);
  std::ofstream(temp.path / "workers" / "7.sock") << "old";
  std::ofstream(temp.path / "api.sock") << "old";
  std::ofstream(temp.path / "lock") << "999999\n";
  std::optional<RuntimeDir> dir;
  {
    Result<RuntimeDir> taken = RuntimeDir::take(temp.path);
    REQUIRE(taken.ok());
    dir.emplace(std::move(taken).value());
  }
  CHECK_FALSE(fs::exists(dir->api_socket()));
  CHECK(fs::is_empty(temp.path / "workers"));
  CHECK(dir->worker_socket(3) == temp.path / "workers" / "3.sock");
}

TEST_CASE(
    "a path too long for its sockets is an error with both sizes; one open to others is an error") {
  const Result<RuntimeDir> longer = RuntimeDir::take("/tmp/" + std::string(90, 'x'));
  REQUIRE_FALSE(longer.ok());
  CHECK(longer.error().code == ErrorCode::kInvalidArgument);
  CHECK(longer.error().message.find("95 bytes") != std::string::npos);
  CHECK(longer.error().message.find("107") != std::string::npos);

  const TempPath temp;
  fs::create_directories(temp.path);
  fs::permissions(temp.path, fs::perms::all);
  CHECK(RuntimeDir::take(temp.path).error().code == ErrorCode::kForbidden);
}

}  // namespace
}  // namespace hearth::broker
