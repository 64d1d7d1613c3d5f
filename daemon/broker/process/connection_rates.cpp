#include "daemon/broker/process/connection_rates.h"

#include <algorithm>

namespace hearth::broker {

bool ConnectionRates::may_connect(uint32_t uid) {
  constexpr int64_t kEachUs = 1'000'000 / kPerSecond;
  const int64_t now_us = clock_.now_us();
  int64_t& paid_us = paid_us_.try_emplace(uid, now_us).first->second;
  const int64_t next_us = std::max(paid_us, now_us) + kEachUs;
  if (next_us > now_us + kAtOnce * kEachUs) return false;
  paid_us = next_us;
  return true;
}

}  // namespace hearth::broker
