#pragma once
// What a user may do to the daemon's sockets to disturb others. Each attack runs in a process of
// that user until it is killed.

#include <sys/types.h>

#include <filesystem>
#include <span>
#include <string>

namespace hearth::bench {

struct Attack {
  const char* name;
  const char* what;
  void (*run)(const std::filesystem::path& runtime);  ///< does not return
  bool over_tls = false;                              ///< wants the door of write_tls_door()
};

std::span<const Attack> attacks();

/// A process of the other user's (without root: of the same user's) that runs an attack. The
/// destructor, or the end of the thread that started it, kills it.
class Attacker {
 public:
  Attacker(const Attack& attack, const std::filesystem::path& runtime);
  ~Attacker();
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

}  // namespace hearth::bench
