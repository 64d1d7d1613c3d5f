#pragma once
// A page of a list in OpenAI's API.

#include <cstddef>
#include <string>

namespace hearth::http {

struct ItemPage {
  size_t limit = 20;
  bool ascending = false;
  std::string after{};  ///< id of the item before the first; "": from the beginning
};

}  // namespace hearth::http
