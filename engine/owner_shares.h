#pragma once
// Fair shares between owners, counted in tokens served. Pure logic.
//
// Each owner has a count of tokens served, and there is a virtual time: what an owner with an even
// share would have been served (it advances by tokens / owners with live requests). The scheduler
// serves the lowest count first. An owner that comes back, or asks for little, does not hoard
// credit: its count is never taken as less than virtual time - max_credit. That allowance is what
// lets the short request of a quiet owner pass the backlog of a busy one.
// Source: Shreedhar and Varghese 1995 (deficit counters); Demers, Keshav and Shenker 1989 (virtual
// time).

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

namespace hearth::engine {

struct Owner {
  int32_t num_live = 0;       ///< requests waiting or running
  int32_t slots_running = 0;  ///< sequences running
  double served = 0;          ///< tokens
};

class OwnerShares {
 public:
  /// `max_credit`: tokens that a quiet owner may be ahead by.
  explicit OwnerShares(double max_credit) : max_credit_(max_credit) {}

  /// One live request more. The pointer is valid until the matching `leave`.
  Owner* enter(const std::string& name);
  void leave(const std::string& name);
  void serve(Owner& owner, int32_t tokens);
  /// What the scheduler compares: lowest first.
  double position(const Owner& owner) const;

  size_t num_known() const { return owners_.size(); }
  int32_t num_active() const { return num_active_; }

 private:
  const double max_credit_;
  double virtual_time_ = 0;
  int32_t num_active_ = 0;
  std::unordered_map<std::string, std::unique_ptr<Owner>> owners_;
};

}  // namespace hearth::engine
