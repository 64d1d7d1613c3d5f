#pragma once
// Events of the prefix cache as vLLM writes them, in msgpack (docs/kv-events.md). Events of a few
// milliseconds go to the broker in one message, because a message costs more than an event. Owned
// by the front door.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kv/cache_events.h"
#include "engine/kv/usable_prefix.h"

namespace hearth::worker {

/// What is written with each event.
struct KvEventForm {
  std::string_view pool_medium = "CPU";  ///< of the device's memory: CPU or GPU
  int32_t block_size = 0;                ///< tokens
  std::vector<engine::KvGroup> groups;
};

/// A msgpack array with a map for each event.
std::string encode_kv_events(std::span<const engine::CacheEvent> events, const KvEventForm& form);

class KvEventBatch {
 public:
  static constexpr int64_t kEveryUs = 10'000;

  void set_form(KvEventForm form) { form_ = std::move(form); }
  void add(std::vector<engine::CacheEvent> events, int64_t now_us);
  bool empty() const { return events_.empty(); }
  /// The events since the last batch, encoded, once the first of them has waited kEveryUs.
  std::optional<std::string> take_due(int64_t now_us);

 private:
  KvEventForm form_;
  std::vector<engine::CacheEvent> events_;
  int64_t due_us_ = 0;
};

}  // namespace hearth::worker
