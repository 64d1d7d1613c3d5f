#include "daemon/worker/observe/kv_events.h"

#include <iterator>
#include <utility>

#include "daemon/worker/observe/msgpack_writer.h"
#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace {

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

void write_hashes(MsgpackWriter& out, const std::vector<uint64_t>& hashes) {
  out.text("block_hashes");
  out.array(hashes.size());
  for (const uint64_t hash : hashes) out.number(hash);
}

void write(MsgpackWriter& out, const engine::BlocksStored& event, const KvEventForm& form) {
  const engine::KvGroup& group = form.groups.at(event.group);
  out.map(group.window > 0 ? 12 : 11);
  out.text("type");
  out.text("BlockStored");
  write_hashes(out, event.hashes);
  out.text("parent_block_hash");
  event.parent ? out.number(*event.parent) : out.nil();
  out.text("token_ids");
  out.array(event.tokens.size());
  for (const int32_t token : event.tokens) out.number(narrow<uint64_t>(token));
  out.text("block_size");
  out.number(narrow<uint64_t>(form.block_size));
  out.text("lora_id");
  out.nil();
  out.text("medium");
  out.text(medium_of(event.tier, form));
  out.text("lora_name");
  out.nil();
  // As in vLLM, the scope is a key of a chain's first block: the others have it by their parent.
  out.text("extra_keys");
  out.array(event.hashes.size());
  for (size_t i = 0; i < event.hashes.size(); ++i) {
    if (i > 0 || event.parent) {
      out.nil();
      continue;
    }
    out.array(1);
    out.text(event.scope);
  }
  out.text("group_idx");
  out.number(narrow<uint64_t>(event.group));
  out.text("kv_cache_spec_kind");
  out.text(kind_of(group));
  if (group.window == 0) return;
  out.text("kv_cache_spec_sliding_window");
  out.number(narrow<uint64_t>(group.window));
}

void write(MsgpackWriter& out, const engine::BlocksRemoved& event, const KvEventForm& form) {
  out.map(4);
  out.text("type");
  out.text("BlockRemoved");
  write_hashes(out, event.hashes);
  out.text("medium");
  out.text(medium_of(event.tier, form));
  out.text("group_idx");
  out.number(narrow<uint64_t>(event.group));
}

}  // namespace

// Members are in the order of vLLM's structs.
std::string encode_kv_events(std::span<const engine::CacheEvent> events, const KvEventForm& form) {
  MsgpackWriter out;
  out.array(events.size());
  for (const engine::CacheEvent& event : events) {
    std::visit([&](const auto& each) { write(out, each, form); }, event);
  }
  return out.take();
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
