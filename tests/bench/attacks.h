#pragma once
// What a user may do to the daemon's sockets to disturb others. Each attack runs in a process of
// that user until it is killed.

#include <filesystem>
#include <span>
#include <string>

namespace hearth::bench {

struct Attack {
  const char* name;
  const char* what;
  void (*run)(const std::filesystem::path& runtime);  ///< does not return
};

std::span<const Attack> attacks();

}  // namespace hearth::bench
