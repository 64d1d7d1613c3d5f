#include "ipc/schema/field_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/schema/request_fields.h"
#include "kernels/base/numbers.h"

namespace hearth::ipc {
namespace {

constexpr std::array<std::string_view, kNumVerbs> kVerbNames = {
    "ping", "generate", "tokenize", "cancel", "models", "ps",   "stats", "health",
    "load", "unload",   "swap",     "cache",  "attach", "fork", "embed", "record"};

size_t place(Verb verb) { return to_underlying(verb); }

/// A member's value as JSON; "" if the field has no default: it is required, or its absence has a
/// meaning that no value has.
template <class T>
std::string default_of(const Field& field, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_arithmetic_v<T>) {
    return fmt::format("{}", value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    const bool required = field.one_of_several || (value.empty() && field.min > 0);
    return required ? "" : fmt::format("\"{}\"", value);
  } else if constexpr (requires { value.has_value(); }) {
    return "";
  } else if (field.type == FieldType::kObject) {
    return "{}";
  } else {
    return field.min_items > 0 ? "" : "[]";
  }
}

/// All fields, per verb, and the texts that they view.
struct Tables {
  std::array<std::vector<Field>, kNumVerbs> fields;
  std::list<std::string> defaults;

  Tables() { add_all(std::make_index_sequence<kNumVerbs>()); }

 private:
  template <size_t... Verbs>
  void add_all(std::index_sequence<Verbs...>) {
    (add<std::variant_alternative_t<Verbs, ClientRequest>>(fields[Verbs]), ...);
  }
  template <class Request>
  void add(std::vector<Field>& out) {
    const Request plain{};
    const auto add_row = [&](const auto& row) {
      Field field = row.field;
      field.default_value = defaults.emplace_back(default_of(field, plain.*row.member));
      out.push_back(field);
    };
    std::apply([&](const auto&... rows) { (add_row(rows), ...); },
               request_fields::kRowsOf<Request>);
  }
};

}  // namespace

std::span<const Field> fields(Verb verb) {
  static const Tables tables;
  return tables.fields[place(verb)];
}

const Field* find_field(Verb verb, std::string_view name) {
  const std::span<const Field> all = fields(verb);
  const auto found = std::ranges::find(all, name, &Field::name);
  return found == all.end() ? nullptr : &*found;
}

std::string_view name(Verb verb) { return kVerbNames[place(verb)]; }

std::optional<Verb> verb_from_name(std::string_view name) {
  for (size_t i = 0; i < kVerbNames.size(); ++i) {
    if (kVerbNames[i] == name) return static_cast<Verb>(i);
  }
  return std::nullopt;
}

}  // namespace hearth::ipc
