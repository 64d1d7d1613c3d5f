#include "ipc/wire/first_verb.h"

#include <algorithm>

namespace hearth::ipc {

std::optional<Verb> first_verb(std::string_view json) {
  const auto take = [&json](std::string_view want) {
    json.remove_prefix(std::min(json.find_first_not_of(" \t\r\n"), json.size()));
    if (!json.starts_with(want)) return false;
    json.remove_prefix(want.size());
    return true;
  };
  if (!take("{") || !take("\"verb\"") || !take(":") || !take("\"")) return std::nullopt;
  const size_t end = json.find('"');
  return end == std::string_view::npos ? std::nullopt : verb_from_name(json.substr(0, end));
}

}  // namespace hearth::ipc
