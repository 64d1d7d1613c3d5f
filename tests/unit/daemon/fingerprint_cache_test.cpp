#include "daemon/worker/load/fingerprint_cache.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <limits>
#include <thread>
#include <vector>

#include "models/gguf/fingerprint.h"
#include "models/gguf/gguf_writer.h"
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

// Digests of any files: these have no weights to check.
Result<std::string> digest_of(const fs::path& file, const fs::path& folder) {
  static const std::vector<std::byte> kNoWeights = models::GgufWriter().bytes();
  HEARTH_ASSIGN_OR_RETURN(const models::GgufFile none, models::GgufFile::parse(kNoWeights, "none"));
  HEARTH_ASSIGN_OR_RETURN(const models::ReadableFile open, models::ReadableFile::open(file));
  return cached_fingerprint({&open, 1}, none, folder);
}

TEST_CASE("a digest is kept until the file changes; a damaged one is computed again") {
  const DigestFolder folder;
  const fs::path file = folder.path / "m.gguf", kept = folder.path / "kept";
  std::ofstream(file) << "one";
  const std::string want = models::fingerprint_file(file).value();
  CHECK(digest_of(file, kept).value() == want);
  CHECK(std::distance(fs::directory_iterator(kept), {}) == 1);

  // The entry is used: another digest in it is returned.
  std::string text;
  std::getline(std::ifstream(folder.only_entry()), text);
  const std::string other(32, 'a');
  std::ofstream(folder.only_entry()) << text << "\n" << other;
  CHECK(digest_of(file, kept).value() == other);
  std::ofstream(folder.only_entry()) << text << "\n" << other.substr(1);  // cut
  CHECK(digest_of(file, kept).value() == want);
  CHECK(digest_of(file, kept).value() == want);

  std::ofstream(file) << "another";
  CHECK(digest_of(file, kept).value() == models::fingerprint_file(file).value());
  CHECK(digest_of(file, kept).value() != want);
  CHECK(std::distance(fs::directory_iterator(kept), {}) == 1);
}

TEST_CASE("new content of equal size and modification time has its own digest") {
  const DigestFolder folder;
  const fs::path file = folder.path / "m.gguf", kept = folder.path / "kept";
  std::ofstream(file) << "one";
  const auto written = fs::last_write_time(file);
  const std::string before = digest_of(file, kept).value();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the kernel's clock ticks
  std::ofstream(file) << "two";
  fs::last_write_time(file, written);
  REQUIRE(fs::last_write_time(file) == written);
  CHECK(digest_of(file, kept).value() == models::fingerprint_file(file).value());
  CHECK(digest_of(file, kept).value() != before);
}

TEST_CASE("a file with a NaN among its weights is refused each time, and no digest is kept") {
  const DigestFolder folder;
  const fs::path file = folder.path / "bad.gguf";
  const uint64_t dims[] = {32, 2};
  std::vector<float> values(64, 0.5f);
  values[33] = std::numeric_limits<float>::quiet_NaN();
  models::GgufWriter writer;
  writer.add_floats("a.weight", dims, kernels::DType::kF16, values);
  REQUIRE(writer.write(file).ok());
  const auto weights = models::GgufFile::open(file);
  REQUIRE(weights.ok());
  for (const fs::path& kept : {folder.path / "kept", folder.path / "kept", fs::path()}) {
    const Result<std::string> met =
        cached_fingerprint(weights->duplicate_files().value(), *weights, kept);
    REQUIRE_FALSE(met.ok());
    CHECK(met.error().code == ErrorCode::kCorrupt);
    CHECK(
        met.error().message ==
        "bad.gguf: the weights are damaged: a.weight [32,2]: value 33 of 64 is nan, want a finite "
        "number; download or convert the file again");
    CHECK(fs::is_empty(folder.path / "kept"));
  }
}

TEST_CASE("a digest is of all files, and is computed again when any of them changes") {
  const DigestFolder folder;
  const fs::path kept = folder.path / "kept";
  const std::vector<fs::path> files = {folder.path / "a", folder.path / "b", folder.path / "c"};
  for (const fs::path& file : files) std::ofstream(file) << file.filename().string();
  std::ofstream(folder.path / "joined") << "abc";
  const auto digest = [&] {
    static const std::vector<std::byte> kNoWeights = models::GgufWriter().bytes();
    const auto none = models::GgufFile::parse(kNoWeights, "none");
    std::vector<models::ReadableFile> open;
    for (const fs::path& file : files) open.push_back(models::ReadableFile::open(file).value());
    return cached_fingerprint(open, *none, kept).value();
  };
  CHECK(digest() == models::fingerprint_file(folder.path / "joined").value());
  CHECK(digest_of(files[0], kept).value() == models::fingerprint_file(files[0]).value());
  const std::string before = digest();
  REQUIRE(std::distance(fs::directory_iterator(kept), {}) == 1);
  std::string text;
  std::ifstream in(folder.only_entry(), std::ios::binary);
  text.assign(std::istreambuf_iterator<char>(in), {});
  const std::string other(32, 'a');
  std::ofstream(folder.only_entry()) << text.substr(0, text.size() - 32) << other;
  CHECK(digest() == other);
  for (const fs::path& file : files) {
    std::ofstream(file) << file.filename().string() << "+";
    CHECK(digest() != other);
    std::ofstream(folder.only_entry()) << text.substr(0, text.size() - 32) << other;
    CHECK(digest() != other);  // an entry of other identities
    fs::remove(folder.only_entry());
    CHECK(digest() != before);
    std::ifstream again(folder.only_entry(), std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(again), {});
    std::ofstream(folder.only_entry()) << text.substr(0, text.size() - 32) << other;
    CHECK(digest() == other);
  }
}

TEST_CASE("without a folder, or with one that cannot be written, digests are computed") {
  const DigestFolder folder;
  const fs::path file = folder.path / "m.gguf";
  std::ofstream(file) << "one";
  const std::string want = models::fingerprint_file(file).value();
  CHECK(digest_of(file, {}).value() == want);
  CHECK(digest_of(file, folder.path / "nowhere").value() == want);
  CHECK_FALSE(digest_of(folder.path / "none", folder.path / "kept").ok());
}

}  // namespace
}  // namespace hearth::worker
