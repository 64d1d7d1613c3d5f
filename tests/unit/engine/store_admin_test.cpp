#include "engine/store/store_admin.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "store_rig.h"

namespace hearth::tests {

using namespace engine;
namespace fs = std::filesystem;

namespace {

StoreAdmin open_admin(const StoreRig& rig, int busy_ms = 100) {
  Result<StoreAdmin> admin = StoreAdmin::open(rig.store->file(), busy_ms);
  REQUIRE_MESSAGE(admin.ok(), (admin.ok() ? "" : admin.error().message));
  return std::move(admin).value();
}

std::vector<int64_t> rows_of(StoreAdmin& admin) {
  std::vector<int64_t> rows;
  const Result<std::vector<StoredEntry>> entries = admin.entries();
  REQUIRE(entries.ok());
  for (const StoredEntry& entry : *entries) rows.push_back(entry.row);
  return rows;
}

/// How many files of the folder contain these bytes.
int files_with(const fs::path& folder, const std::string& bytes) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string all((std::istreambuf_iterator<char>(in)), {});
    count += all.find(bytes) != std::string::npos ? 1 : 0;
  }
  return count;
}

constexpr const char* kCanary = "a canary that sings 0123456789 of what a user wrote";

/// One chunk whose KV repeats the canary.
void save_canary(StoreRig& rig, const Chain& chain) {
  const NamedChain named = rig.store->name(chain);
  const ChunkShape shape = rig.shape_of(0, 8);
  ChunkData data = ChunkData::of_size(shape.data_bytes(rig.layout));
  const size_t length = std::strlen(kCanary);
  for (size_t at = 0; at + length <= data.size; at += length) {
    std::memcpy(data.bytes.get() + at, kCanary, length);
  }
  const ChunkToSave chunk{&named, &shape, data.span()};
  REQUIRE(rig.store->save(std::span(&chunk, 1)).ok());
}

/// A process that holds SQLite's lock for checkpoints, as a worker does while it writes one, until
/// `hold` returns.
class Checkpointing {
 public:
  Checkpointing(const fs::path& database, const std::function<void()>& hold) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const int fd = ::open((database.string() + "-shm").c_str(), O_RDWR);
      struct flock lock {};
      lock.l_type = F_WRLCK;
      lock.l_whence = SEEK_SET;
      lock.l_start = 121;  // WAL_CKPT_LOCK of the file format
      lock.l_len = 1;
      const bool locked = ::fcntl(fd, F_SETLK, &lock) == 0;
      if (locked && ::write(ready[1], "x", 1) == 1) hold();
      ::_exit(0);
    }
    ::close(ready[1]);
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
  }
  ~Checkpointing() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

 private:
  pid_t pid_ = -1;
};

}  // namespace

TEST_CASE("entries are listed and removed, and the store notices") {
  StoreRig rig;
  const Chain first = rig.chain(4 * 20, 1);
  const Chain second = rig.chain(4 * 10, 2, "uid:2");
  REQUIRE(rig.save(first).ok());
  REQUIRE(rig.save(second).ok());
  rig.store->tick();
  const Result<std::vector<fs::path>> files = StoreAdmin::files(rig.folder.path());
  REQUIRE(files.ok());
  CHECK(*files == std::vector<fs::path>{rig.store->file()});
  StoreAdmin admin = open_admin(rig);
  CHECK(admin.layout().model == "small");
  CHECK(admin.layout().block_bytes == rig.layout.block_bytes);
  CHECK(admin.file_bytes() > 30u << 17);
  const std::vector<StoredEntry> entries = *admin.entries();
  REQUIRE(entries.size() == 5);
  uint64_t bytes = 0;
  std::vector<int64_t> of_second;
  for (const StoredEntry& entry : entries) {
    bytes += entry.bytes;
    if (entry.owner == "uid:2") of_second.push_back(entry.row);
  }
  CHECK(bytes == rig.store->stats().bytes);
  CHECK(of_second.size() == 2);
  const uint64_t epoch = rig.store->stats().epoch;
  REQUIRE(admin.remove(of_second, false).ok());
  rig.store->tick();
  CHECK(rig.store->stats().entries == 3);
  CHECK(rig.store->stats().epoch > epoch);
  CHECK(rig.restore(second) == 0);
  CHECK(rig.restore(first) == 20);
}

TEST_CASE("wiping leaves no byte of entries removed now or before") {
  StoreRig rig;
  const Chain chain = rig.chain(4 * 8, 1);
  const Chain kept = rig.chain(4 * 10, 2);
  const std::string tokens(reinterpret_cast<const char*>(chain.tokens.data()),
                           chain.tokens.size() * sizeof(int32_t));
  save_canary(rig, chain);
  REQUIRE(rig.save(kept).ok());
  CHECK(files_with(rig.folder.path(), kCanary) > 0);
  CHECK(files_with(rig.folder.path(), tokens) > 0);
  StoreAdmin admin = open_admin(rig);

  SUBCASE("without wiping some bytes stay; compacting or wiping removes them") {
    const std::vector<StoredEntry> entries = *admin.entries();
    std::vector<int64_t> rows;
    for (const StoredEntry& entry : entries) {
      if (entry.root == chain.root && entry.index == 0 && rows.empty()) rows.push_back(entry.row);
    }
    REQUIRE(admin.remove(rows, false).ok());
    CHECK(files_with(rig.folder.path(), kCanary) > 0);
    REQUIRE(admin.remove({}, true).ok());
    CHECK(files_with(rig.folder.path(), kCanary) == 0);
    CHECK(files_with(rig.folder.path(), tokens) == 0);
    CHECK(rig.restore(kept) == 10);
  }
  SUBCASE("removal of everything while a worker has it open") {
    REQUIRE(admin.remove(rows_of(admin), true).ok());
    CHECK(files_with(rig.folder.path(), kCanary) == 0);
    CHECK(files_with(rig.folder.path(), tokens) == 0);
    rig.store->tick();
    CHECK(rig.store->stats().entries == 0);
    REQUIRE(rig.save(kept).ok());
    CHECK(rig.restore(kept) == 10);
  }
  SUBCASE("with a reader in the middle of it, wiping reports that bytes remain") {
    Result<Database> reader = Database::open(rig.store->file());
    REQUIRE(reader.ok());
    REQUIRE(reader->execute("BEGIN").ok());
    REQUIRE(reader->query_integer("SELECT count(*) FROM chunk").ok());
    const Result<void> wiped = admin.remove(rows_of(admin), true);
    REQUIRE_FALSE(wiped.ok());
    CHECK(wiped.error().code == ErrorCode::kBusy);
    REQUIRE(reader->execute("COMMIT").ok());
    CHECK(admin.remove({}, true).ok());
    CHECK(files_with(rig.folder.path(), kCanary) == 0);
  }
}

TEST_CASE("wiping waits for another process's checkpoint, and reports one that does not end") {
  StoreRig rig;
  const Chain chain = rig.chain(4 * 8, 1);
  save_canary(rig, chain);
  {
    const Checkpointing endless(rig.store->file(), [] { ::pause(); });
    StoreAdmin admin = open_admin(rig);
    const Result<void> wiped = admin.remove(rows_of(admin), true);
    REQUIRE_FALSE(wiped.ok());
    CHECK(wiped.error().code == ErrorCode::kBusy);
    CHECK(wiped.error().message.find("used it for 100 ms") != std::string::npos);
  }
  const Checkpointing brief(rig.store->file(),
                            [] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); });
  StoreAdmin admin = open_admin(rig, 60'000);
  CHECK(admin.remove({}, true).ok());
  CHECK(files_with(rig.folder.path(), kCanary) == 0);
}

TEST_CASE("verify finds what is damaged, and removes that alone") {
  StoreRig rig;
  REQUIRE(rig.save(rig.chain(4 * 20, 1)).ok());
  StoreAdmin admin = open_admin(rig);
  CHECK(admin.verify()->good == 3);
  Result<Database> other = Database::open(rig.store->file());
  REQUIRE(other->execute("UPDATE chunk SET data = zeroblob(length(data)) WHERE idx = 1").ok());
  const Result<VerifyReport> report = admin.verify();
  REQUIRE(report.ok());
  CHECK(report->good == 2);
  CHECK(report->bad == 1);
  CHECK(admin.verify()->bad == 0);
  CHECK(rig.restore(rig.chain(4 * 20, 1)) == 8);
}

TEST_CASE("a file that is not our database is an error") {
  TempDir folder;
  CHECK(StoreAdmin::files(folder.path() / "absent")->empty());
  const fs::path file = folder.path() / "x.db";
  CHECK(StoreAdmin::open(file).error().code == ErrorCode::kNotFound);
  std::ofstream(file) << std::string(10'000, 'x');
  CHECK_FALSE(StoreAdmin::open(file).ok());
  fs::remove(file);
  {
    Result<Database> database = Database::open(file);
    REQUIRE(database
                ->execute("PRAGMA user_version=1; PRAGMA application_id=1752331368;"
                          "CREATE TABLE meta(key, value);"
                          "INSERT INTO meta VALUES('model','m'),('identity','i'),"
                          "('block_size','99999999999'),('block_bytes','1,,2'),('layout','')")
                .ok());
  }
  CHECK(StoreAdmin::open(file).error().code == ErrorCode::kCorrupt);
}

}  // namespace hearth::tests
