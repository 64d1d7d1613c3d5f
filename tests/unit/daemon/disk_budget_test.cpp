#include "daemon/broker/residency/disk_budget.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>

#include "engine/store/stored_row.h"
#include "tests/temp_dir.h"

namespace hearth::broker {
namespace fs = std::filesystem;

TEST_CASE(
    "eviction order: vanished models first, then the least recently used, never an open one") {
  const std::vector<PrefixDatabase> all = {{"new", "new", 100, 50},
                                           {"old", "old", 100, 10},
                                           {"gone", "gone", 100, 90},
                                           {"gone2", "gone", 100, 95},
                                           {"open", "open", 100, 1}};
  const auto names = [&](uint64_t budget) {
    std::string out;
    for (const PrefixDatabase& each :
         databases_to_drop(all, budget, {"open"}, {"new", "old", "open"})) {
      out += each.file.string() + " ";
    }
    return out;
  };
  CHECK(names(500).empty());
  CHECK(names(499) == "gone ");
  CHECK(names(300) == "gone gone2 ");
  CHECK(names(250) == "gone gone2 old ");
  CHECK(names(0) == "gone gone2 old new ");
}

TEST_CASE("databases are found by name, with their journals, and deleted whole") {
  const tests::TempDir temp;
  const fs::path& folder = temp.path();
  engine::KvLayout layout;
  layout.model = ".odd name/with\nthings";
  layout.block_size = 16;
  layout.block_bytes = {64};
  const std::string name = engine::store_file_name(layout);
  const auto put = [&](const std::string& file, size_t bytes) {
    std::ofstream(folder / file) << std::string(bytes, 'x');
  };
  put(name, 1000);
  put(name + "-wal", 500);
  put("key", 192);
  put("notes.txt", 10);
  const std::vector<PrefixDatabase> found = find_databases(folder);
  REQUIRE(found.size() == 1);
  CHECK(found[0].bytes == 1500);
  CHECK(found[0].model == database_name(layout.model));
  CHECK(find_databases(folder / "nowhere").empty());

  bool open = true;
  DiskBudget budget(folder, 1, [&](std::set<std::string>& resident, std::set<std::string>&) {
    if (open) resident.insert(found[0].model);
  });
  budget.tick(1);
  CHECK(fs::exists(folder / name));
  open = false;
  budget.tick(2);  // too soon
  CHECK(fs::exists(folder / name));
  budget.tick(60'000'001);
  CHECK_FALSE(fs::exists(folder / name));
  CHECK_FALSE(fs::exists(folder / (name + "-wal")));
  CHECK(fs::exists(folder / "key"));
}

}  // namespace hearth::broker
