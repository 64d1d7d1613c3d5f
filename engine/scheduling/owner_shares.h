#pragma once
// Fair shares between owners, counted in tokens served. Pure logic.
//
// Each owner has a count of tokens served, which decays by 1/e for every `window` tokens served to
// any owner. The scheduler serves the lowest count first. So two busy owners share evenly, and an
// owner that was quiet goes first until it has caught up with the recent past. Its credit is
// bounded by that: waiting longer gains nothing, and neither does leaving and coming back. Counts
// below a 64th of the window are equal, so newcomers cannot pass a waiting owner forever: its own
// count decays meanwhile.

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

namespace hearth::engine {

struct Owner {
  int32_t num_live = 0;       ///< requests waiting or running
  int32_t slots_running = 0;  ///< sequences running
  double served = 0;          ///< tokens, faded up to `faded_at`
  double faded_at = 0;        ///< total served then
};

class OwnerShares {
 public:
  explicit OwnerShares(double window_tokens) : window_(window_tokens) {}

  /// Adds a live request. The pointer is valid until the matching `leave`.
  Owner* enter(const std::string& name);
  void leave(const std::string& name);
  void serve(Owner& owner, int32_t tokens);
  /// What the scheduler compares: lowest first.
  double position(const Owner& owner) const;

  int32_t num_live() const;  ///< owners with live requests
  /// Owners kept: those with live requests, and the few that were served much recently.
  size_t num_known() const { return owners_.size(); }

 private:
  double faded(const Owner& owner) const;

  const double window_;
  double total_served_ = 0;
  std::unordered_map<std::string, std::unique_ptr<Owner>> owners_;
};

}  // namespace hearth::engine
