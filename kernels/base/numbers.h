#pragma once
// Conversions that may change a value, by name.

#include <cassert>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace hearth {

/// An integer as a double, which is rounded above 2^53.
constexpr double as_double(std::integral auto n) { return static_cast<double>(n); }

/// An integer as a type that holds it; the sanitized builds check that it does.
template <std::integral To>
constexpr To narrow(std::integral auto n) {
  assert(std::in_range<To>(n));
  return static_cast<To>(n);
}

/// The number of an enumerator, which indexes a table.
template <typename Enum>
requires std::is_enum_v<Enum>
constexpr auto to_underlying(Enum e) { return static_cast<std::underlying_type_t<Enum>>(e); }

constexpr double us_as_ms(int64_t us) { return as_double(us) / 1e3; }
constexpr double us_as_s(int64_t us) { return as_double(us) / 1e6; }

}  // namespace hearth
