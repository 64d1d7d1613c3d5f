#include "kernels/base/secret_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <array>
#include <fstream>

#include "tests/temp_dir.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;
using Secret = std::array<std::byte, 32>;

Secret read(const fs::path& file) {
  Secret out{};
  const Result<void> found = read_or_make_secret(file, out);
  REQUIRE_MESSAGE(found.ok(), (found.ok() ? "" : found.error().message));
  return out;
}

TEST_CASE("a secret file is made once, for its owner alone") {
  const tests::TempDir folder;
  const fs::path file = folder.path() / "secret";
  const Secret made = read(file);
  CHECK(made != Secret{});
  CHECK(read(file) == made);
  struct stat info {};
  REQUIRE(::stat(file.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(info.st_size == 32);
  CHECK(read(folder.path() / "other") != made);
  // Nothing else is left in the folder.
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 2);
}

TEST_CASE("what is not a secret is set aside") {
  const tests::TempDir folder;
  const fs::path file = folder.path() / "secret";
  const Secret made = read(file);
  SUBCASE("cut") { fs::resize_file(file, 31); }
  SUBCASE("empty") { fs::resize_file(file, 0); }
  SUBCASE("too long") { std::ofstream(file, std::ios::app) << "x"; }
  SUBCASE("a folder") {
    fs::remove(file);
    fs::create_directories(file / "inside");
  }
  SUBCASE("a link") {
    fs::rename(file, folder.path() / "elsewhere");
    fs::create_symlink(folder.path() / "elsewhere", file);
  }
  const Secret next = read(file);
  CHECK(next != made);
  CHECK(read(file) == next);
  CHECK(fs::exists(fs::symlink_status(folder.path() / "secret.damaged")));
}

TEST_CASE("a secret that cannot be kept is an error") {
  const tests::TempDir folder;
  Secret out;
  const Result<void> found = read_or_make_secret(folder.path() / "absent" / "secret", out);
  REQUIRE_FALSE(found.ok());
  CHECK(found.error().code == ErrorCode::kIo);
}

}  // namespace
}  // namespace hearth
