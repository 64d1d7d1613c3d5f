#pragma once
// Results of decoding with drafts compared with plain decoding. Plain data.

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
  int32_t width = 0;   ///< drafted tokens verified per step; 0: as many as pay off
  float temperature = 0;
  /// Per round, the same texts without and with drafts: tokens per second of all sequences
  /// together.
  std::vector<double> plain_tokens_per_s, drafted_tokens_per_s;
  /// Drafted speed / plain speed of one round.
  std::vector<double> ratios;
  engine::SpeculationCounts counts;  ///< of all rounds
  double saved_s = 0;        ///< time that drafts saved over the plain runs, all rounds together
  double draft_step_us = 0;  ///< of a draft model, draft layer or heads; 0: none was measured
  /// Of target steps with `sequences` rows and 0, 1, ... draft tokens more, as far as drafts went.
  std::vector<double> step_us;
};

double median(std::vector<double> values);
std::string as_text(const SpeculationReport& report);
std::string as_json(const SpeculationReport& report);

}  // namespace hearth::worker
