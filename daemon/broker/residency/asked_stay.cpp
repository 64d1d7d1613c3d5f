#include "daemon/broker/residency/asked_stay.h"

#include <algorithm>

namespace hearth::broker {

int64_t AskedStay::granted_ms(int64_t configured_ms, int64_t most_ms) const {
  if (!asked_ms_) return configured_ms;
  const bool forever = *asked_ms_ < 0;
  if (configured_ms == 0) return forever || shared_ ? 0 : std::max<int64_t>(*asked_ms_, 1);
  if (forever || *asked_ms_ >= configured_ms) {
    const int64_t bound = std::max(configured_ms, most_ms);
    return forever ? bound : std::min(*asked_ms_, bound);
  }
  return shared_ ? configured_ms : std::max<int64_t>(*asked_ms_, 1);
}

bool AskedStay::denied(int64_t configured_ms, int64_t most_ms) const {
  if (!asked_ms_ || granted_ms(configured_ms, most_ms) != configured_ms) return false;
  return configured_ms == 0 ? *asked_ms_ >= 0 : *asked_ms_ != configured_ms;
}

}  // namespace hearth::broker
