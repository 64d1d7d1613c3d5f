#pragma once
// What the broker itself measures about each model's requests, for /metrics: how many wait for
// the model, and how long clients wait for tokens. Plain data; owned by the broker's io thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace hearth::http {

/// The upper bound of a bucket of durations.
struct DurationBound {
  int64_t us = 0;
  std::string_view seconds;  ///< the same as the label `le` shows it
};

/// vLLM's buckets of times to the first token.
inline constexpr std::array kTtftBounds = {
    DurationBound{1'000, "0.001"},       DurationBound{5'000, "0.005"},
    DurationBound{10'000, "0.01"},       DurationBound{20'000, "0.02"},
    DurationBound{40'000, "0.04"},       DurationBound{60'000, "0.06"},
    DurationBound{80'000, "0.08"},       DurationBound{100'000, "0.1"},
    DurationBound{250'000, "0.25"},      DurationBound{500'000, "0.5"},
    DurationBound{750'000, "0.75"},      DurationBound{1'000'000, "1.0"},
    DurationBound{2'500'000, "2.5"},     DurationBound{5'000'000, "5.0"},
    DurationBound{7'500'000, "7.5"},     DurationBound{10'000'000, "10.0"},
    DurationBound{20'000'000, "20.0"},   DurationBound{40'000'000, "40.0"},
    DurationBound{80'000'000, "80.0"},   DurationBound{160'000'000, "160.0"},
    DurationBound{640'000'000, "640.0"}, DurationBound{2'560'000'000, "2560.0"}};

/// Gaps between tokens.
inline constexpr std::array kGapBounds = {
    DurationBound{1'000, "0.001"},    DurationBound{2'500, "0.0025"},
    DurationBound{5'000, "0.005"},    DurationBound{10'000, "0.01"},
    DurationBound{25'000, "0.025"},   DurationBound{50'000, "0.05"},
    DurationBound{75'000, "0.075"},   DurationBound{100'000, "0.1"},
    DurationBound{250'000, "0.25"},   DurationBound{500'000, "0.5"},
    DurationBound{1'000'000, "1.0"},  DurationBound{2'500'000, "2.5"},
    DurationBound{5'000'000, "5.0"},  DurationBound{10'000'000, "10.0"},
    DurationBound{40'000'000, "40.0"}};

/// Durations, counted by the first bound that they do not exceed.
struct Durations {
  static constexpr size_t kMaxBounds = 32;
  std::span<const DurationBound> bounds;          ///< ascending, at most kMaxBounds
  std::array<uint64_t, kMaxBounds + 1> counts{};  ///< one per bound, then those above all bounds
  uint64_t sum_us = 0;
  size_t recent = 0;  ///< the bucket counted last: the next duration is probably alike

  /// Called for each delta of each request.
  void add(int64_t us) {
    while (recent > 0 && us <= bounds[recent - 1].us) --recent;
    while (recent < bounds.size() && us > bounds[recent].us) ++recent;
    ++counts[recent];
    sum_us += us > 0 ? us : 0;
  }
};
static_assert(kTtftBounds.size() <= Durations::kMaxBounds);
static_assert(kGapBounds.size() <= Durations::kMaxBounds);

struct ModelTraffic {
  int32_t num_waiting = 0;  ///< requests in the broker: the model loads, recovers, or has no room
  // Of its worker; 0: it has none, or no layer of it keeps KV.
  int32_t block_size = 0;  ///< tokens
  int32_t num_blocks = 0;  ///< of the layers that keep a whole context
  /// From a request's arrival to its first token.
  Durations ttft{.bounds = kTtftBounds};
  /// Between two arrivals of tokens of one sample. An arrival may have several tokens: those of a
  /// verified draft, and those that the worker sends together because they came in quick
  /// succession.
  Durations gaps{.bounds = kGapBounds};
};

/// By model.
using ModelTraffics = std::map<std::string, ModelTraffic>;

}  // namespace hearth::http
