#include "daemon/http/answers/page.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "ipc/wire/json.h"

namespace hearth::http {

Result<ItemPage> parse_page(std::string_view query, size_t most,
                            const std::function<bool(std::string_view, std::string_view)>& takes) {
  ItemPage page;
  while (!query.empty()) {
    const std::string_view one = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(one.size() + 1, query.size()));
    const std::string_view key = one.substr(0, one.find('='));
    const std::string_view value = one.substr(std::min(key.size() + 1, one.size()));
    if (key.empty() || key == "beta" || takes(key, value)) continue;
    if (most > 0 && key == "limit") {
      const auto end = value.data() + value.size();
      const auto [at, problem] = std::from_chars(value.data(), end, page.limit);
      if (problem == std::errc() && at == end && page.limit >= 1 && page.limit <= most) continue;
      return Error::invalid(fmt::format("limit: want 1 to {}", most), "limit");
    }
    if (most > 0 && key == "order") {
      page.ascending = value == "asc";
      if (page.ascending || value == "desc") continue;
      return Error::invalid("order: want asc or desc", "order");
    }
    if (most > 0 && key == "after") {
      page.after = value;
      continue;
    }
    const std::string name = ipc::printable(key);
    return Error::unknown_field(fmt::format("the parameter '{}' in the address is not known", name),
                                name);
  }
  return page;
}

}  // namespace hearth::http
