#pragma once
// match(variant, lambdas...): calls the lambda for the alternative that the variant holds. Pass one
// lambda per alternative and no generic one, so that a new alternative breaks the build everywhere
// it must be handled.

#include <type_traits>
#include <utility>
#include <variant>

namespace hearth {

template <typename... Fns>
struct Overloaded : Fns... {
  using Fns::operator()...;
};

template <typename Variant, typename... Fns>
decltype(auto) match(Variant&& variant, Fns&&... fns) {
  return std::visit(Overloaded<std::decay_t<Fns>...>{std::forward<Fns>(fns)...},
                    std::forward<Variant>(variant));
}

}  // namespace hearth
