// The store over a disk that fails at its Nth operation, for every N there is.

#include <doctest/doctest.h>

#include "faulty_vfs.h"
#include "store_rig.h"
#include "tests/skip.h"

namespace hearth::tests {

using namespace engine;

namespace {

/// A life of a store: opens, reads, writes, tidies, reads.
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
        live(rig);  // what it serves is checked there
        FaultyVfs::heal();
        // The cause is gone: within the longest delay it works again, in the same object.
        rig.now_ms += 60'000;
        rig.store->tick();
        REQUIRE(rig.store->stats().state == StoreState::kWriting);
        REQUIRE(rig.save(rig.chain(4 * 10, 1)).ok());
        REQUIRE(rig.restore(rig.chain(4 * 10, 1)) == 10);
      }
    }
  }
}

}  // namespace hearth::tests
