#include "engine/kv/cache_events.h"

#include <iterator>

#include "engine/kv/scope_names.h"

namespace hearth::engine {

std::string_view ScopeNames::of(std::string_view scope) const {
  if (published == PublishedScopes::kNone || scope.size() <= model_bytes) return "";
  const std::string_view salt = scope.substr(model_bytes);
  if (salt.starts_with(kAdapterScope)) return "";
  if (salt.starts_with(kSharedSalt)) return salt.substr(kSharedSalt.size());
  return published == PublishedScopes::kAll ? salt : "";
}

void CacheEventLog::stored(int32_t group, const Block& block) {
  const size_t at = group;
  if (open_.size() <= at) open_.resize(at + 1, -1);
  const uint64_t hash = event_hash(block.hash);
  if (open_[at] >= 0 && block.parent) {
    auto& last = std::get<BlocksStored>(events_[open_[at]]);
    if (last.hashes.back() == event_hash(*block.parent)) {
      last.hashes.push_back(hash);
      last.tokens.insert(last.tokens.end(), block.tokens.begin(), block.tokens.end());
      return;
    }
  }
  BlocksStored event;
  event.tier = tier_;
  event.group = group;
  event.hashes = {hash};
  event.tokens.assign(block.tokens.begin(), block.tokens.end());
  if (block.parent) {
    event.parent = event_hash(*block.parent);
  } else {
    event.scope = block.scope;
  }
  open_[at] = std::ssize(events_);
  events_.emplace_back(std::move(event));
}

void CacheEventLog::removed(int32_t group, const Hash128& hash) {
  open_.clear();
  if (!events_.empty()) {
    auto* last = std::get_if<BlocksRemoved>(&events_.back());
    if (last != nullptr && last->group == group) return last->hashes.push_back(event_hash(hash));
  }
  events_.emplace_back(BlocksRemoved{tier_, group, {event_hash(hash)}});
}

std::vector<CacheEvent> CacheEventLog::take() {
  open_.clear();
  return std::exchange(events_, {});
}

}  // namespace hearth::engine
