// Parses Ollama's `keep_alive`: how long a model stays in memory after its last request.

#include <array>
#include <charconv>
#include <cmath>

#include "daemon/http/requests/request_members.h"

namespace hearth::http {
namespace {

struct TimeUnit {
  std::string_view name;
  double ms = 0;
};
// Longer names before those that they begin with.
constexpr auto kUnits = std::to_array<TimeUnit>({
    {"ns", 1e-6},
    {"us", 1e-3},
    {"µs", 1e-3},
    {"ms", 1},
    {"s", 1e3},
    {"m", 60e3},
    {"h", 3600e3},
});
/// More than any configuration allows.
constexpr double kMostMs = 1e12;

/// Milliseconds; -1 for any time below 0. Part of one that is not 0 counts as one.
int64_t whole_ms(double ms) {
  if (ms < 0) return -1;
  return std::llround(std::ceil(std::min(ms, kMostMs)));
}

/// "5m", "1h30m", "1.5h", "-1m"; a number alone is seconds.
std::optional<int64_t> ms_of(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  double sum = 0;
  for (bool first = true; !text.empty(); first = false) {
    double count = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), count, std::chars_format::fixed);
    if (error != std::errc{} || count < 0 || !std::isfinite(count)) return std::nullopt;
    text.remove_prefix(end - text.data());
    if (first && text.empty()) return whole_ms((negative ? -1e3 : 1e3) * count);
    const auto unit = std::ranges::find_if(
        kUnits, [text](const TimeUnit& each) { return text.starts_with(each.name); });
    if (unit == kUnits.end()) return std::nullopt;
    text.remove_prefix(unit->name.size());
    sum += count * unit->ms;
  }
  return whole_ms(negative ? -sum : sum);
}

}  // namespace

std::optional<int64_t> take_keep_alive(Members& in) {
  const Json* const value = in.take("keep_alive");
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> ms;
  if (value->is_number()) ms = whole_ms(value->get<double>() * 1e3);
  if (value->is_string()) ms = ms_of(value->get_ref<const std::string&>());
  if (!ms) in.wrong("keep_alive", *value, "seconds, or a time such as 5m or 1h30m");
  return ms;
}

}  // namespace hearth::http
