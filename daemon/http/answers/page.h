#pragma once
// The parameters of a list in an address. Included by this folder's .cpp files only.

#include <cstddef>
#include <functional>
#include <string_view>

#include "daemon/http/item_page.h"
#include "kernels/base/result.h"

namespace hearth::http {

/// Reads limit, order and after from `query`, what follows the question mark. `most`: the largest
/// limit; 0: the address names one thing, so that the three are unknown. `takes`: whether another
/// parameter is known, by name and value. An error names the parameter.
Result<ItemPage> parse_page(std::string_view query, size_t most,
                            const std::function<bool(std::string_view, std::string_view)>& takes);

}  // namespace hearth::http
