#pragma once
// The real hearthd of this build, for benchmarks.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ipc/client/client.h"

namespace hearth::bench {

int64_t now_us();
/// The quantile at `share`; 0 of no values.
double quantile(std::vector<double> values, double share);
int64_t resident_bytes(pid_t pid);
/// Of 127.0.0.1, free at the moment.
uint16_t free_port();

class Daemon {
 public:
  /// Uses the directories run, models and state of `dir`. Waits until the daemon answers.
  Daemon(const std::filesystem::path& dir, const std::vector<std::string>& settings);
  ~Daemon();  // kills it
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  pid_t pid() const { return pid_; }
  const std::filesystem::path& runtime() const { return runtime_; }
  ipc::Client connect() const;

 private:
  std::filesystem::path runtime_;
  pid_t pid_ = -1;
};

}  // namespace hearth::bench
