#pragma once
// Carries commands out beside the window, each on a thread of its own: neither the daemon nor a
// program that measures for seconds is ever waited for by who draws. What concerns the daemon goes
// over its request socket; plans are made by the program `hearth`.

#include <atomic>
#include <filesystem>
#include <memory>
#include <vector>

#include "kernels/base/mailbox.h"
#include "monitor/command.h"

namespace hearth::monitor {

class Actions {
 public:
  static constexpr size_t kMaxAtOnce = 8;

  /// `hearth`: that program; empty: beside this one, or on PATH.
  explicit Actions(std::filesystem::path runtime_dir, std::filesystem::path hearth = {});
  /// Stops programs. What the daemon is still asked to do goes on there, unheard.
  ~Actions();
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;

  /// Its answer comes later; at once when too many are under way.
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
