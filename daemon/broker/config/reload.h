#pragma once
// What a running daemon takes over from a configuration that was read again. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/config/config.h"

namespace hearth::broker {

/// Whether a running daemon takes a changed value of "section.key"; the others are read when it
/// starts.
bool is_reloadable(std::string_view key);

struct ConfigChanges {
  std::vector<Setting> taken;      ///< in effect now
  std::vector<Setting> refused;    ///< in effect after a restart
  std::vector<std::string> roles;  ///< of `taken`: roles that point elsewhere, or are gone
};

/// Copies what is_reloadable() from `next` into `running`, and says what differed.
ConfigChanges take_over(const Config& next, Config* running);

}  // namespace hearth::broker
