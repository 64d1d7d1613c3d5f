#include "ipc/wire/curve.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/temp_dir.h"

namespace hearth::ipc {
namespace {

namespace fs = std::filesystem;
using tests::TempDir;

void write(const fs::path& file, const std::string& text, mode_t mode) {
  std::ofstream(file) << text;
  REQUIRE(::chmod(file.c_str(), mode) == 0);
}

TEST_CASE("a secret key is private to its owner, and is never overwritten") {
  const TempDir dir;
  const fs::path file = dir.path() / "key";
  const Result<CurveKeys> keys = make_curve_keys();
  REQUIRE(keys.ok());
  CHECK(is_curve_key(keys->public_key));
  REQUIRE(write_secret_key(file, *keys).ok());
  struct stat found {};
  REQUIRE(::stat(file.c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0600);
  const Result<CurveKeys> read = read_secret_key(file);
  REQUIRE(read.ok());
  CHECK(read->public_key == keys->public_key);
  CHECK(read->secret_key == keys->secret_key);

  CHECK(write_secret_key(file, *keys).error().code == ErrorCode::kInvalidArgument);
  REQUIRE(::chmod(file.c_str(), 0640) == 0);
  CHECK(read_secret_key(file).error().code == ErrorCode::kForbidden);
  write(file, "short\n", 0600);
  CHECK(read_secret_key(file).error().code == ErrorCode::kCorrupt);
  CHECK(read_secret_key(dir.path() / "none").error().code == ErrorCode::kNotFound);
}

TEST_CASE("clients' keys are users; an error in the file names its line") {
  const TempDir dir;
  const fs::path file = dir.path() / "clients";
  const std::string a = make_curve_keys()->public_key, b = make_curve_keys()->public_key;
  write(file, "# clients\n\n" + a + " 1000  # the laptop\n  " + b + "\troot\n", 0644);
  const auto keys = read_client_keys(file);
  REQUIRE_MESSAGE(keys.ok(), (keys.ok() ? "" : keys.error().message));
  REQUIRE(keys->size() == 2);
  CHECK(keys->at(a) == 1000);
  CHECK(keys->at(b) == 0);

  const std::pair<std::string, const char*> bad[] = {
      {"\nshort 1000\n", ":2: "},           {a + "\n", ":1: "},
      {a + " no-such-user-here\n", ":1: "}, {a + " 1 2\n", ":1: "},
      {a + " 1\n" + a + " 2\n", ":2: "},    {a + " 99999999999\n", ":1: "}};
  for (const auto& [text, where] : bad) {
    INFO(text);
    write(file, text, 0644);
    const auto refused = read_client_keys(file);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == ErrorCode::kCorrupt);
    CHECK(refused.error().message.find(where) != std::string::npos);
  }
  write(file, a + " 1\n", 0666);
  CHECK(read_client_keys(file).error().code == ErrorCode::kForbidden);
}

TEST_CASE("valid and invalid keys") {
  CHECK_FALSE(is_curve_key(""));
  CHECK_FALSE(is_curve_key(std::string(39, 'a')));
  CHECK_FALSE(is_curve_key(std::string(40, ' ')));
  CHECK_FALSE(is_curve_key(std::string(40, '"')));
  CHECK(curve_key_of("short").empty());
  CHECK(is_curve_key(curve_key_of(std::string(32, 'k'))));
}

}  // namespace
}  // namespace hearth::ipc
