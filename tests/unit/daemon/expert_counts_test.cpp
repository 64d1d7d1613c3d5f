// Counts of chosen experts, kept in a file, and the experts chosen by them.

#include "daemon/worker/load/expert_counts.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/temp_dir.h"

namespace hearth::worker {
namespace {

TEST_CASE("the experts used most are hot, as far as they fit") {
  const ExpertCounts counts = {{5, 0, 9}, {}, {7, 7, 1}};
  using Hot = models::HotExperts;
  CHECK(hot_experts(counts, 10, 9) == Hot{{}, {}, {}});
  CHECK(hot_experts(counts, 10, 10) == Hot{{2}, {}, {}});
  CHECK(hot_experts(counts, 10, 39) == Hot{{2}, {}, {0, 1}});
  CHECK(hot_experts(counts, 10, 1000) == Hot{{0, 2}, {}, {0, 1, 2}});  // never the one not used
  CHECK(hot_experts({}, 10, 1000).empty());
}

TEST_CASE("counts of experts add up over workers, with older ones halved") {
  const tests::TempDir folder;
  const auto file = expert_count_file(folder.path() / "experts", "model-123");
  CHECK(load_expert_counts(file).empty());
  add_expert_counts(file, {{8, 0}, {}, {2}});
  CHECK(load_expert_counts(file) == ExpertCounts{{8, 0}, {}, {2}});
  add_expert_counts(file, {{1, 1}, {}, {0, 5}});
  CHECK(load_expert_counts(file) == ExpertCounts{{5, 1}, {}, {1, 5}});
  add_expert_counts(file, {});  // a model without experts
  CHECK(load_expert_counts(file).size() == 3);
  std::ofstream(file) << "1 2 x\n";
  CHECK(load_expert_counts(file).empty());
  std::ofstream(file) << "99999999999999999999\n";
  CHECK(load_expert_counts(file).empty());
  add_expert_counts({}, {{1}});  // nothing is kept
}

}  // namespace
}  // namespace hearth::worker
