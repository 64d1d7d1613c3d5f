#include "engine/scheduling/owner_shares.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"

namespace hearth::engine {

Owner* OwnerShares::enter(const std::string& name) {
  std::unique_ptr<Owner>& owner = owners_[name];
  if (owner == nullptr) owner = std::make_unique<Owner>();
  ++owner->num_live;
  return owner.get();
}

void OwnerShares::leave(const std::string& name) {
  const auto found = owners_.find(name);
  HEARTH_CHECK(found != owners_.end() && found->second->num_live > 0);
  if (--found->second->num_live > 0) return;
  std::erase_if(owners_, [this](const auto& entry) {
    return entry.second->num_live == 0 && position(*entry.second) == 0;
  });
}

double OwnerShares::faded(const Owner& owner) const {
  return owner.served * std::exp((owner.faded_at - total_served_) / window_);
}

void OwnerShares::serve(Owner& owner, int32_t tokens) {
  owner.served = faded(owner) + tokens;
  owner.faded_at = total_served_;
  total_served_ += tokens;
}

int32_t OwnerShares::num_live() const {
  return narrow<int32_t>(
      std::ranges::count_if(owners_, [](const auto& entry) { return entry.second->num_live > 0; }));
}

double OwnerShares::position(const Owner& owner) const {
  const double served = faded(owner);
  return served < window_ / 64 ? 0 : served;
}

}  // namespace hearth::engine
