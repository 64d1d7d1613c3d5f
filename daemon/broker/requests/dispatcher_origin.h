#pragma once
// Declarations shared by the dispatcher's source files. Private to it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/requests/dispatcher.h"

namespace hearth::broker {

/// The origin of a fork; see ipc::WorkerEnvelope.
struct Dispatcher::Origin {
  std::vector<int32_t> prefix{};
  uint64_t of = 0;
  int32_t sample = 0;
  std::string fingerprint{};  ///< of the model's file that made the prefix
};

/// The error text for a client that reads too slowly.
std::string too_slow(size_t backlog_bytes, std::string_view consequence);

}  // namespace hearth::broker
