#pragma once
// Recorded greedy continuations of another engine, and the check that ours are equal.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/gguf/gguf_file.h"
#include "tests/golden/step_runner.h"

namespace hearth::golden {

/// One prompt of a recording: F32 KV, temperature 0.
struct GreedyCase {
  std::string prompt;
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> ids;
  std::vector<double> logprobs;  ///< of each id, natural log
  std::vector<double> margins;   ///< logprob of the best id minus that of the second
  std::string text;
};
/// Reads stories260K-reference.json and the recordings of the bundled models in this folder.
std::vector<GreedyCase> read_greedy_cases(const std::filesystem::path& json);

/// Every id equal, every logprob within `logprob_tolerance`; F32 KV.
void check_equal(const models::GgufFile& file, const NamedTable& table,
                 const std::vector<GreedyCase>& cases, double logprob_tolerance);
/// Fed with the recorded ids, the model picks each of them, unless the recorded margin is below
/// `tie_margin`, and with the recorded logprob within `logprob_tolerance`. So a near tie early in a
/// text does not hide what follows.
void check_agrees(const models::GgufFile& file, const NamedTable& table, kernels::KvTypes kv_type,
                  const std::vector<GreedyCase>& cases, double logprob_tolerance,
                  double tie_margin);
/// F16 KV: the first id that differs was nearly a tie (margin below `most_margin`).
void check_close_f16(const models::GgufFile& file, const NamedTable& table,
                     const std::vector<GreedyCase>& cases, double most_margin);

}  // namespace hearth::golden
