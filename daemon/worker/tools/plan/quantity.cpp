#include "daemon/worker/tools/plan/quantity.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>

#include "ipc/text/shown_text.h"
#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace {

constexpr std::array<std::string_view, 7> kUnits = {"B",      "B/s",   "op/s", "ops",
                                                    "FLOP/s", "FLOPS", ""};

/// Removes the multiple from the front of `text`; 1 if there is none.
double take_prefix(std::string_view* text) {
  constexpr std::string_view kPrefixes = "kMGT";
  if (text->empty()) return 1;
  const char first = text->front() == 'K' ? 'k' : text->front();
  const size_t power = kPrefixes.find(first);
  if (power == kPrefixes.npos) return 1;
  const bool binary = text->size() > 1 && (*text)[1] == 'i';
  text->remove_prefix(binary ? 2 : 1);
  return std::pow(binary ? 1024.0 : 1000.0, as_double(power + 1));
}

}  // namespace

Result<double> parse_quantity(std::string_view field, std::string_view text) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view rest(end, text.data() + text.size() - end);
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  value *= take_prefix(&rest);
  bool known = false;
  for (const std::string_view unit : kUnits) known = known || rest == unit;
  if (problem == std::errc() && known && std::isfinite(value) && value >= 1 && value < 1e18) {
    return value;
  }
  return Error::invalid(
      fmt::format("--{} {}: want a number and a unit, as 80GB, 16GiB, 3.35TB/s or 989T", field,
                  ipc::one_line(text, 40)),
      std::string(field));
}

}  // namespace hearth::worker
