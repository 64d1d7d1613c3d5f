#include "engine/owner_shares.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace hearth::engine {

Owner* OwnerShares::enter(const std::string& name) {
  std::unique_ptr<Owner>& owner = owners_[name];
  if (owner == nullptr) {
    owner = std::make_unique<Owner>();
    owner->served = virtual_time_ - max_credit_;
  }
  if (owner->num_live++ == 0) ++num_active_;
  return owner.get();
}

void OwnerShares::leave(const std::string& name) {
  const auto found = owners_.find(name);
  HEARTH_CHECK(found != owners_.end() && found->second->num_live > 0);
  if (--found->second->num_live > 0) return;
  --num_active_;
  if (num_active_ == 0) {
    // Nobody is there to be fair to; debts are forgotten.
    owners_.clear();
    virtual_time_ = 0;
    return;
  }
  // A debt is kept until virtual time has passed it, so that leaving and coming back gains nothing.
  std::erase_if(owners_, [this](const auto& entry) {
    return entry.second->num_live == 0 && entry.second->served <= virtual_time_ - max_credit_;
  });
}

void OwnerShares::serve(Owner& owner, int32_t tokens) {
  owner.served = position(owner) + tokens;
  virtual_time_ += static_cast<double>(tokens) / std::max(1, num_active_);
}

double OwnerShares::position(const Owner& owner) const {
  return std::max(owner.served, virtual_time_ - max_credit_);
}

}  // namespace hearth::engine
