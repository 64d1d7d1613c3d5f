#pragma once
// Recorded greedy continuations of another engine, and the check that ours says the same.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/gguf/gguf_file.h"
#include "tests/golden/step_runner.h"

namespace hearth::golden {

/// One prompt of a file like stories260K-reference.json: F32 KV, temperature 0.
struct GreedyCase {
  std::string prompt;
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> ids;
  std::vector<double> logprobs;  ///< of each id, natural log
  std::vector<double> margins;   ///< logprob of the best id minus that of the second
  std::string text;
};
std::vector<GreedyCase> read_greedy_cases(const std::filesystem::path& json);

/// Every id equal, every logprob within `logprob_tolerance`; F32 KV.
void check_equal(const models::GgufFile& file, const NamedTable& table,
                 const std::vector<GreedyCase>& cases, double logprob_tolerance);
/// F16 KV: the first id that differs is one that was nearly a tie (margin below `most_margin`).
void check_close_f16(const models::GgufFile& file, const NamedTable& table,
                     const std::vector<GreedyCase>& cases, double most_margin);

}  // namespace hearth::golden
