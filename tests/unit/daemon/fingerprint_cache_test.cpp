#include "daemon/worker/fingerprint_cache.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "models/gguf/fingerprint.h"
#include "tests/temp_dir.h"

namespace hearth::worker {
namespace {

namespace fs = std::filesystem;

struct DigestFolder {
  tests::TempDir temp;
  const fs::path& path = temp.path();
  DigestFolder() { fs::create_directory(path / "kept"); }
  fs::path only_entry() const { return fs::directory_iterator(path / "kept")->path(); }
};

TEST_CASE("a digest is kept until the file changes; what is damaged is computed again") {
  const DigestFolder folder;
  const fs::path file = folder.path / "m.gguf", kept = folder.path / "kept";
  std::ofstream(file) << "one";
  const std::string want = models::fingerprint_file(file).value();
  CHECK(cached_fingerprint(file, kept).value() == want);
  CHECK(std::distance(fs::directory_iterator(kept), {}) == 1);

  // What is read is the entry: another digest in it is believed.
  std::string text;
  std::getline(std::ifstream(folder.only_entry()), text);
  const std::string other(32, 'a');
  std::ofstream(folder.only_entry()) << text << "\n" << other;
  CHECK(cached_fingerprint(file, kept).value() == other);
  std::ofstream(folder.only_entry()) << text << "\n" << other.substr(1);  // cut
  CHECK(cached_fingerprint(file, kept).value() == want);
  CHECK(cached_fingerprint(file, kept).value() == want);

  std::ofstream(file) << "another";
  CHECK(cached_fingerprint(file, kept).value() == models::fingerprint_file(file).value());
  CHECK(cached_fingerprint(file, kept).value() != want);
  CHECK(std::distance(fs::directory_iterator(kept), {}) == 1);
}

TEST_CASE("without a folder, or with one that cannot be written, digests are computed") {
  const DigestFolder folder;
  const fs::path file = folder.path / "m.gguf";
  std::ofstream(file) << "one";
  const std::string want = models::fingerprint_file(file).value();
  CHECK(cached_fingerprint(file, {}).value() == want);
  CHECK(cached_fingerprint(file, folder.path / "nowhere").value() == want);
  CHECK_FALSE(cached_fingerprint(folder.path / "none", folder.path / "kept").ok());
}

}  // namespace
}  // namespace hearth::worker
