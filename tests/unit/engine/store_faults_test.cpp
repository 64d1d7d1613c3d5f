// The store on a disk that fails at its Nth operation, for every N.

#include <doctest/doctest.h>

#include <filesystem>
#include <memory>

#include "faulty_vfs.h"
#include "store_rig.h"
#include "tests/skip.h"

namespace hearth::tests {

using namespace engine;

namespace {

/// A store's whole run: opens, reads, writes, cleans up, reads.
void live(StoreRig& rig) {
  rig.reopen();
  (void)rig.restore(rig.chain(4 * 10, 1));
  (void)rig.save(rig.chain(4 * 10, 2));
  rig.now_ms += 3'000;
  rig.store->tick();
  (void)rig.restore(rig.chain(4 * 10, 2));
}

}  // namespace

TEST_CASE(
    "the Nth operation fails, once or from then on: misses, never wrong bytes, then recovery") {
  StoreRig rig;
  rig.layout.block_bytes = {4096 - 64, 64};  // small chunks: many operations, few bytes
  rig.vfs = FaultyVfs::name();
  REQUIRE(rig.vfs != nullptr);
  FaultyVfs::heal();
  rig.reopen();
  REQUIRE(rig.save(rig.chain(4 * 10, 1)).ok());
  FaultyVfs::heal();
  live(rig);
  const int64_t operations = FaultyVfs::operations();
  REQUIRE(operations > 20);
  const int64_t stride = full_counts() ? 1 : 17;
  for (const Fault fault : {Fault::kIoError, Fault::kDiskFull, Fault::kShortWrite}) {
    for (const int64_t count : {int64_t{1}, int64_t{1} << 40}) {
      for (int64_t nth = static_cast<int64_t>(fault); nth < operations; nth += stride) {
        CAPTURE(static_cast<int>(fault));
        CAPTURE(count);
        CAPTURE(nth);
        rig.store.reset();
        FaultyVfs::fail_at(nth, fault, count);
        live(rig);  // checks what it serves
        FaultyVfs::heal();
        // The fault is gone: within the longest delay it works again, in the same object.
        rig.now_ms += 60'000;
        rig.store->tick();
        REQUIRE(rig.store->stats().state == StoreState::kWriting);
        REQUIRE(rig.save(rig.chain(4 * 10, 1)).ok());
        REQUIRE(rig.restore(rig.chain(4 * 10, 1)) == 10);
      }
    }
  }
}

TEST_CASE("power is cut before the Nth operation: misses, never wrong bytes, and it writes again") {
  const auto rig_of = [] {
    auto rig = std::make_unique<StoreRig>();
    rig->layout.block_bytes = {4096 - 64, 64};
    rig->vfs = FaultyVfs::name();
    FaultyVfs::heal();
    rig->reopen();
    REQUIRE(rig->save(rig->chain(4 * 10, 1)).ok());
    rig->store.reset();
    return rig;
  };
  auto whole = rig_of();
  FaultyVfs::heal();
  live(*whole);
  const int64_t operations = FaultyVfs::operations();
  const int64_t stride = full_counts() ? 1 : 7;
  int kept_first = 0, kept_second = 0, cuts = 0;
  for (int64_t nth = 1; nth < operations; nth += stride) {
    CAPTURE(nth);
    auto before = rig_of();
    StoreRig after;
    after.store.reset();
    std::filesystem::remove_all(after.folder.path());
    FaultyVfs::cut_at(nth, static_cast<uint64_t>(nth) + night_seed(), before->folder.path(),
                      after.folder.path());
    live(*before);
    before->store.reset();
    FaultyVfs::heal();
    REQUIRE(std::filesystem::exists(after.folder.path()));
    after.layout = before->layout;
    after.now_ms = before->now_ms;
    after.reopen();
    ++cuts;
    // Saved by a process that ended in order; by the one that lost power.
    kept_first += after.restore(after.chain(4 * 10, 1)) == 10 ? 1 : 0;
    kept_second += after.restore(after.chain(4 * 10, 2)) == 10 ? 1 : 0;
    after.now_ms += 60'000;
    after.store->tick();
    REQUIRE(after.store->stats().state == StoreState::kWriting);
    REQUIRE(after.save(after.chain(4 * 10, 3)).ok());
    REQUIRE(after.restore(after.chain(4 * 10, 3)) == 10);
  }
  // What was synced is still there; some power cuts come too early for the rest.
  CHECK(kept_first == cuts);
  CHECK(kept_second < cuts);
}

}  // namespace hearth::tests
