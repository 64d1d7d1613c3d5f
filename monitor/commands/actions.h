#pragma once
// Executes commands in the background, each on a thread of its own, so that drawing never waits for
// the daemon or for a program that measures for seconds. Commands to the daemon use its request
// socket; plans are made by the program `hearth`.

#include <atomic>
#include <filesystem>
#include <memory>
#include <vector>

#include "kernels/base/mailbox.h"
#include "monitor/commands/command.h"

namespace hearth::monitor {

class Actions {
 public:
  static constexpr size_t kMaxAtOnce = 8;

  /// `hearth`: path of that program; empty: next to this one, or on PATH.
  explicit Actions(std::filesystem::path runtime_dir, std::filesystem::path hearth = {});
  /// Stops programs. Requests already sent to the daemon continue there; their answers are ignored.
  ~Actions();
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;

  /// The answer comes later, or at once if too many commands are running.
  void ask(const Command& command);
  std::vector<Answer> answers();

 private:
  /// Outlives this object while a thread still waits for the daemon.
  struct Shared {
    std::filesystem::path runtime_dir, hearth;
    std::atomic<bool> stop{false};
    std::atomic<size_t> under_way{0};
    Mailbox<Answer> answers{64};
  };
  static Answer carry_out(const Shared& shared, const Command& command);

  std::shared_ptr<Shared> shared_;
};

}  // namespace hearth::monitor
