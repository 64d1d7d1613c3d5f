#include "daemon/worker/observe/kv_events.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/base/match.h"

namespace hearth::worker {
namespace {

using Json = nlohmann::ordered_json;  // members in the order of vLLM's structs

std::string_view medium_of(engine::CacheTier tier, const KvEventForm& form) {
  switch (tier) {
    case engine::CacheTier::kPool: return form.pool_medium;
    case engine::CacheTier::kHost: return "CPU";
    case engine::CacheTier::kDatabase: return "STORAGE";
  }
  return "";
}

std::string_view kind_of(const engine::KvGroup& group) {
  if (group.recurrent) return "mamba";
  return group.window > 0 ? "sliding_window" : "full_attention";
}

Json json_of(const engine::BlocksStored& event, const KvEventForm& form) {
  // As in vLLM, the scope is a key of a chain's first block: the others have it by their parent.
  Json extra_keys = Json::array();
  for (size_t i = 0; i < event.hashes.size(); ++i) {
    extra_keys.push_back(i == 0 && !event.parent ? Json::array({event.scope}) : Json());
  }
  const engine::KvGroup& group = form.groups.at(event.group);
  Json out = {{"type", "BlockStored"},
              {"block_hashes", event.hashes},
              {"parent_block_hash", event.parent ? Json(*event.parent) : Json()},
              {"token_ids", event.tokens},
              {"block_size", form.block_size},
              {"lora_id", nullptr},
              {"medium", medium_of(event.tier, form)},
              {"lora_name", nullptr},
              {"extra_keys", std::move(extra_keys)},
              {"group_idx", event.group},
              {"kv_cache_spec_kind", kind_of(group)}};
  if (group.window > 0) out["kv_cache_spec_sliding_window"] = group.window;
  return out;
}

Json json_of(const engine::BlocksRemoved& event, const KvEventForm& form) {
  return {{"type", "BlockRemoved"},
          {"block_hashes", event.hashes},
          {"medium", medium_of(event.tier, form)},
          {"group_idx", event.group}};
}

}  // namespace

std::string encode_kv_events(std::span<const engine::CacheEvent> events, const KvEventForm& form) {
  Json list = Json::array();
  for (const engine::CacheEvent& event : events) {
    list.push_back(std::visit([&](const auto& each) { return json_of(each, form); }, event));
  }
  std::string out;
  Json::to_msgpack(list, out);
  return out;
}

void KvEventBatch::add(std::vector<engine::CacheEvent> events, int64_t now_us) {
  if (events_.empty()) due_us_ = now_us + kEveryUs;
  std::ranges::move(events, std::back_inserter(events_));
}

std::optional<std::string> KvEventBatch::take_due(int64_t now_us) {
  if (events_.empty() || now_us < due_us_) return std::nullopt;
  return encode_kv_events(std::exchange(events_, {}), form_);
}

}  // namespace hearth::worker
