#include "ipc/text/adapter_names.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "ipc/text/utf8.h"

namespace hearth::ipc {
namespace {

Error wrong(std::string_view met, std::string_view want) {
  return Error::invalid(
      fmt::format("adapter: met \"{}\", want {}", to_valid_utf8(std::string(met)), want),
      "adapter");
}

Result<AdapterChoice> parse_adapter(std::string_view text) {
  AdapterChoice out;
  const size_t equals = text.rfind('=');
  out.name = text.substr(0, equals);
  if (out.name.empty()) return wrong(text, "NAME or NAME=SCALE");
  if (equals == text.npos) return out;
  const std::string_view scale = text.substr(equals + 1);
  const char* const end = scale.data() + scale.size();
  const auto [at, error] = std::from_chars(scale.data(), end, out.scale);
  const bool number = error == std::errc() && at == end && std::isfinite(out.scale);
  if (!number || std::fabs(out.scale) > kMostAdapterScale) {
    return wrong(text, fmt::format("a scale of -{0} to {0} after =", kMostAdapterScale));
  }
  return out;
}

}  // namespace

Result<std::vector<AdapterChoice>> parse_adapters(std::string_view text) {
  std::vector<AdapterChoice> out;
  while (!text.empty() || !out.empty()) {
    const size_t comma = text.find(',');
    HEARTH_ASSIGN_OR_RETURN(AdapterChoice choice, parse_adapter(text.substr(0, comma)));
    out.push_back(std::move(choice));
    if (out.size() > kMostAdapterChoices) {
      return wrong(text, fmt::format("at most {} names", kMostAdapterChoices));
    }
    if (comma == text.npos) break;
    text.remove_prefix(comma + 1);
  }
  return out;
}

}  // namespace hearth::ipc
