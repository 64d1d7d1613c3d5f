#include "daemon/broker/requests/admission.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "kernels/base/numbers.h"

namespace hearth::broker {

Result<void> Admission::admit(const Load& load, const Demand& demand,
                              const OwnerConfig* own) const {
  static const OwnerConfig kUsual;
  if (own == nullptr) own = &kUsual;
  const int64_t max_requests = own->max_requests.value_or(limits_.max_requests_per_owner);
  const int64_t max_bytes = own->max_queued_bytes.value_or(limits_.max_queued_bytes_per_owner);
  if (draining_) {
    return Error::unavailable("the daemon is stopping and takes no new requests");
  }
  if (std::cmp_greater(demand.bytes, limits_.max_message_bytes)) {
    return Error::too_large(
        fmt::format("message of {} bytes, limit {}", demand.bytes, limits_.max_message_bytes));
  }
  if (std::cmp_greater_equal(load.live, limits_.max_requests)) {
    return Error::busy(
        fmt::format("{} requests are live, limit {}", load.live, limits_.max_requests));
  }
  if (std::cmp_greater_equal(load.owner_live, max_requests)) {
    return Error::busy(
        fmt::format("you have {} live requests, limit {}", load.owner_live, max_requests));
  }
  if (std::cmp_greater(load.queued_bytes + demand.bytes, limits_.max_queued_bytes)) {
    return Error::busy(fmt::format("requests of {} bytes are held, limit {}", load.queued_bytes,
                                   limits_.max_queued_bytes));
  }
  if (std::cmp_greater(load.owner_bytes + demand.bytes, max_bytes)) {
    return Error::busy(
        fmt::format("your live requests hold {} bytes, limit {}", load.owner_bytes, max_bytes));
  }
  const int64_t most = own->max_output_tokens.value_or(limits_.max_output_tokens_per_owner);
  if (most > 0 && demand.tokens > most) {
    // Not kBusy, because retrying would not help.
    return Error::too_large(
        fmt::format("n times max_tokens is {}, limit {} for each owner", demand.tokens, most),
        "max_tokens");
  }
  if (most > 0 && load.owner_tokens + demand.tokens > most) {
    return Error::busy(
        fmt::format("your live requests may make {} tokens, with this one {}, limit {}",
                    load.owner_tokens, load.owner_tokens + demand.tokens, most),
        "max_tokens");
  }
  return {};
}

void Admission::note_duration_ms(double ms) {
  mean_duration_ms_ += (ms - mean_duration_ms_) / 16.0;
}

int64_t Admission::retry_ms(size_t live) const {
  const double one_ends_ms = mean_duration_ms_ / as_double(std::max<size_t>(live, 1));
  return static_cast<int64_t>(std::clamp(one_ends_ms, 50.0, 10'000.0));
}

}  // namespace hearth::broker
