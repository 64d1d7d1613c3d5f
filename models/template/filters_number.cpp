// Filters that make numbers.

#include <charconv>
#include <cmath>

#include "kernels/base/numbers.h"
#include "models/template/filters.h"
#include "models/template/text.h"

namespace hearth::models::jinja {
namespace {

Result<Value> to_int(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, "int", {"default", "base"}));
  HEARTH_ASSIGN_OR_RETURN(const int64_t base, run.integer(a[1], "int", 10));
  if (base < 2 || base > 36) return run.unsupported(fmt::format("int with base {}", base));
  const Value otherwise = a[0] == nullptr ? Value::of(int64_t{0}) : *a[0];
  if (value.is_undefined()) return run.undefined_error(value);
  if (value.is_int()) return Value::of(value.as_int());
  double number = 0;
  if (value.kind() == Kind::kFloat) {
    number = value.as_float();
  } else if (value.is_string()) {
    const std::string_view text = strip(value.text());
    const auto read_integer = [&](std::string_view digits, int64_t& out) {
      if (digits.starts_with('+')) digits.remove_prefix(1);
      const auto read =
          std::from_chars(digits.data(), digits.data() + digits.size(), out, narrow<int>(base));
      return !digits.empty() && read.ec == std::errc() && read.ptr == digits.data() + digits.size();
    };
    int64_t out = 0;
    if (read_integer(text, out)) return Value::of(out);
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) {
      return otherwise;
    }
  } else {
    return otherwise;
  }
  if (!std::isfinite(number)) return otherwise;
  if (std::abs(number) >= 9.2e18) return run.fail("int gives an integer beyond 64 bits");
  return Value::of(static_cast<int64_t>(number));
}

Result<Value> to_float(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, "float", {"default"}));
  if (value.is_undefined()) return run.undefined_error(value);
  if (value.is_number()) return Value::of(value.as_float());
  if (value.is_string()) {
    std::string_view text = strip(value.text());
    if (text.starts_with('+')) text.remove_prefix(1);
    double number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (!text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size()) {
      return Value::of(number);
    }
  }
  return a[0] == nullptr ? Value::of(0.0) : *a[0];
}

Result<Value> absolute(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "abs", {}));
  if (value.kind() == Kind::kFloat) return Value::of(std::abs(value.as_float()));
  if (!value.is_int()) return run.fail(fmt::format("abs of {}", type_name(value)));
  if (value.as_int() == INT64_MIN) return run.fail("abs gives an integer beyond 64 bits");
  return Value::of(value.as_int() < 0 ? -value.as_int() : value.as_int());
}

Result<Value> round_number(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, "round", {"precision", "method"}));
  HEARTH_ASSIGN_OR_RETURN(const int64_t digits, run.integer(a[0], "round", 0));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view method, text_or(run, a[1], "common"));
  if (!value.is_number()) return run.fail(fmt::format("round of {}", type_name(value)));
  if (digits < 0 || digits > 15) return run.unsupported(fmt::format("round to {} digits", digits));
  const double x = value.as_float();
  const double scale = std::pow(10.0, as_double(digits));
  if (method == "ceil") return Value::of(std::ceil(x * scale) / scale);
  if (method == "floor") return Value::of(std::floor(x * scale) / scale);
  if (method != "common") return run.unsupported("round's method");
  if (value.is_int()) return Value::of(value.as_int());
  // Printing rounds the exact value, half to even, as Python does.
  const std::string text = fmt::format("{:.{}f}", x, digits);
  double out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return Value::of(out);
}

constexpr NamedFilter kNumberFilters[] = {
    {"abs", absolute},
    {"float", to_float},
    {"int", to_int},
    {"round", round_number},
};

}  // namespace

std::span<const NamedFilter> number_filters() { return kNumberFilters; }

}  // namespace hearth::models::jinja
