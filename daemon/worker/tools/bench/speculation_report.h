#pragma once
// Decoding with guesses against decoding without: what was measured, and what came out. Plain data.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/request.h"

namespace hearth::worker {

struct SpeculationReport {
  std::string model;
  std::string type;      ///< dominant weight type
  std::string device;    ///< name, code path
  std::string proposer;  ///< "lookup", "tales-draft", "replay 0.8", ...
  int32_t threads = 0;
  int32_t sequences = 0;
  int32_t tokens = 0;  ///< per sequence, at most
  int32_t width = 0;   ///< guesses verified per step; 0: as many as pay
  float temperature = 0;
  /// Per round, the same texts with and without: tokens per second of all sequences together.
  std::vector<double> plain_tokens_per_s, guessed_tokens_per_s;
  /// guessed / plain of one round.
  std::vector<double> ratios;
  engine::SpeculationCounts counts;  ///< of all rounds
  double saved_s = 0;                ///< the plain runs took so much longer, all rounds together
  double draft_step_us = 0;          ///< as the draft model learned it; 0: no draft model
};

double median(std::vector<double> values);
std::string as_text(const SpeculationReport& report);
std::string as_json(const SpeculationReport& report);

}  // namespace hearth::worker
