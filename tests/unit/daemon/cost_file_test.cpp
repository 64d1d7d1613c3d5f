// Measured costs of steps, stored for a later worker of the same model on the same machine.

#include "daemon/worker/load/cost_file.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/temp_dir.h"

namespace hearth::worker {
namespace {

namespace fs = std::filesystem;

const engine::MeasuredCosts kCosts{.token_us = {0, 12.5, 13}};

struct Kept {
  tests::TempDir temp;
  CostFile file = cost_file(temp.path() / "costs", "ab12", "exact", "cpu avx2, 2 threads");
  std::string text() const {
    std::ifstream in(file.path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST_CASE("costs are read back on the device that they were measured on, with their date") {
  const Kept kept;
  CHECK(load_costs(kept.file).token_us.empty());
  save_costs(kept.file, {.token_us = {0, 0}});  // nothing was measured
  CHECK_FALSE(fs::exists(kept.file.path));
  save_costs(kept.file, kCosts);
  CHECK(load_costs(kept.file).token_us == kCosts.token_us);
  CHECK(kept.text().find("\"made\":\"2") != std::string::npos);
  const fs::path folder = kept.file.path.parent_path();
  CHECK(load_costs(cost_file(folder, "ab12", "exact", "cpu avx2, 4 threads")).token_us.empty());
  CHECK(load_costs(cost_file(folder, "cd34", "exact", kept.file.device)).token_us.empty());
  for (const char* wrong : {"", "[]", "{}", "{\"device\":\"cpu avx2, 2 threads\"}",
                            "{\"device\":\"cpu avx2, 2 threads\",\"prefill_token_us\":[\"1\"]}"}) {
    std::ofstream(kept.file.path) << wrong;
    CHECK(load_costs(kept.file).token_us.empty());
  }
}

TEST_CASE("costs are dropped if the machine's ceilings have changed since") {
  const Kept kept;
  CHECK_FALSE(has_ceilings(kept.file));
  note_ceilings(kept.file, {.read_bytes_per_s = 1e10, .int8_ops_per_s = 1e12});
  CHECK(has_ceilings(kept.file));
  save_costs(kept.file, kCosts);
  CHECK(kept.text().find("\"read_bytes_per_s\":10000000000.0") != std::string::npos);
  CHECK(kept.text().find("\"int8_ops_per_s\":1000000000000.0") != std::string::npos);
  struct Case {
    kernels::Ceilings now;
    bool kept;
  };
  for (const auto& [now, stay] :
       {Case{{.read_bytes_per_s = 1.9e10, .int8_ops_per_s = 0.6e12}, true},
        Case{{.read_bytes_per_s = 2.1e10, .int8_ops_per_s = 1e12}, false},
        Case{{.read_bytes_per_s = 0.4e10, .int8_ops_per_s = 1e12}, false},
        Case{{.read_bytes_per_s = 1e10, .int8_ops_per_s = 2.1e12}, false},
        Case{{.read_bytes_per_s = 1e10, .int8_ops_per_s = 0.4e12}, false},
        Case{{.read_bytes_per_s = 1e10}, true}}) {
    CAPTURE(now.read_bytes_per_s);
    CAPTURE(now.int8_ops_per_s);
    note_ceilings(kept.file, now);
    CHECK(load_costs(kept.file).token_us.empty() != stay);
  }
}

TEST_CASE("ceilings of an earlier boot are measured again, and not kept with costs") {
  const Kept kept;
  std::ofstream(kept.file.ceilings) << R"({"boot":"earlier","device":"cpu avx2, 2 threads",)"
                                    << R"("read_bytes_per_s":1e10,"int8_ops_per_s":1e12})";
  CHECK_FALSE(has_ceilings(kept.file));
  save_costs(kept.file, kCosts);
  CHECK(kept.text().find("bytes_per_s") == std::string::npos);
  CHECK(load_costs(kept.file).token_us == kCosts.token_us);
}

TEST_CASE("without a folder nothing is kept") {
  const CostFile none = cost_file("", "ab12", "exact", "cpu");
  save_costs(none, kCosts);
  note_ceilings(none, {});
  CHECK(load_costs(none).token_us.empty());
  CHECK_FALSE(has_ceilings(none));
}

}  // namespace
}  // namespace hearth::worker
