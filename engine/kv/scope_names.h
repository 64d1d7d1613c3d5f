#pragma once
// Which scopes of prefixes are published, and under which name (docs/kv-events.md).

#include <cstddef>
#include <string_view>

#include "engine/config.h"

namespace hearth::engine {

/// Begins the salt of prefixes that requests of several owners share by a name, which follows.
/// Owners' names contain no line breaks.
inline constexpr std::string_view kSharedSalt = "shared\n";
/// Begins what a scope has before its salt if its prefixes are computed with adapters; no salt
/// begins like it. Such prefixes are not published.
inline constexpr std::string_view kAdapterScope = "adapter\n";

struct ScopeNames {
  PublishedScopes published = PublishedScopes::kNone;
  size_t model_bytes = 0;  ///< of a scope, before its salt

  /// The name under which the scope is published; "": it is not.
  std::string_view of(std::string_view scope) const;
};

}  // namespace hearth::engine
