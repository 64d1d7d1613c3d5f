#pragma once
// The options of `hearth bench` and the functions that its modes share.

#include <cstdint>
#include <string>

#include "daemon/worker/load/options.h"
#include "daemon/worker/tools/bench/bench_model.h"
#include "daemon/worker/tools/bench/speculation_report.h"

namespace hearth::worker {

struct BenchOptions {
  std::string file;
  std::string shape;
  std::string write_shape;
  std::string type = "Q8_0";
  std::string kv_type = "f16";
  uint64_t seed = 1;
  bool quick = false;
  bool json = false;
  int32_t rounds = 0;  ///< 0: 3 quick, 5 full
  int32_t read_mib = 256;
  int32_t context = 0;  ///< tokens of one more prompt to decode after; 0: none
  DeviceOptions device;

  // Options of --speculate.
  bool speculate = false;
  std::string replay;          ///< a ReplayPattern; "": drafts by lookup
  std::string draft = "auto";  ///< as in serve, or a shape's name
  std::string draft_type = "Q8_0";
  std::string prompt;  ///< "": beginnings of tales, or random tokens for random weights
  int32_t width = 0;
  int32_t rivals = engine::SpeculationConfig{}.max_rivals;
  int32_t sequences = 1;
  int32_t tokens = 128;
  float temperature = -1;  ///< -1: 0 for a file, 0.8 for random weights (repetitive)
};

/// hearth bench --speculate.
Result<SpeculationReport> run_speculation(const BenchOptions& options, const kernels::OpTable& ops);

}  // namespace hearth::worker
