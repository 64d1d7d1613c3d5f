#pragma once
// Decides which changes of a reread configuration a running daemon adopts. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/config/config.h"

namespace hearth::broker {

/// Whether a running daemon adopts a changed value of "section.key". Other settings take effect at
/// the next start.
bool is_reloadable(std::string_view key);

struct ConfigChanges {
  std::vector<Setting> taken;      ///< in effect now
  std::vector<Setting> refused;    ///< in effect after a restart
  std::vector<std::string> roles;  ///< of `taken`: roles whose model changed, or that were removed
};

/// Copies the reloadable settings from `next` into `running` and returns the differences.
ConfigChanges take_over(const Config& next, Config* running);

}  // namespace hearth::broker
