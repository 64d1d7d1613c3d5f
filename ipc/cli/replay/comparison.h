#pragma once
// What a replay measured next to what was recorded: percentiles, counts, and the table of both.
// Pure functions.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ipc/schema/messages.h"

namespace hearth::cli {

/// One request, as it was recorded or as it was replayed.
struct Measured {
  int64_t arrival_us = 0;  ///< from the start of the recording or the replay
  bool generates = true;   ///< false: embed
  bool failed = false;
  double ttft_ms = 0;  ///< 0: no token
  double tpot_ms = 0;  ///< 0: fewer than two tokens
  double total_ms = 0;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t output_tokens = 0;
};
Measured measured_of(const ipc::RecordedEvent& record, bool generates);

/// Whether the replay gave the recorded answer.
enum class SameText { kNotComparable, kEqual, kDifferent };

struct Compared {
  Measured recorded;
  Measured replayed;
  SameText text = SameText::kNotComparable;
};

/// All requests of one side.
struct Summary {
  double ttft_ms_p50 = 0, ttft_ms_p95 = 0;
  double tpot_ms_p50 = 0, tpot_ms_p95 = 0, tpot_ms_p99 = 0;
  double tokens_per_s = 0;  ///< output tokens, from the first arrival to the last end
  double cached_share = 0;  ///< of the prompt tokens
  int64_t output_tokens = 0;
  int64_t prompt_tokens = 0;
  int32_t errors = 0;
};
Summary summarize(std::span<const Measured> requests);

struct Comparison {
  int32_t requests = 0;
  Summary recorded;
  Summary replayed;
  int32_t texts_equal = 0;
  int32_t texts_different = 0;
  int32_t texts_not_comparable = 0;
  int32_t newly_failed = 0;  ///< failed in the replay and not when they were recorded
};
Comparison compare(std::span<const Compared> requests);

/// The smallest value that at least this share (0 to 1) of the values does not exceed (nearest
/// rank); 0 if there are none.
double percentile(std::vector<double> values, double share);

std::string comparison_table(const Comparison& comparison);
/// One JSON object in a line.
std::string comparison_json(const Comparison& comparison);

}  // namespace hearth::cli
