#include "engine/steps/adapter_pool.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "engine/kv/scope_names.h"
#include "kernels/base/log.h"
#include "kernels/base/numbers.h"
#include "models/gguf/gguf_file.h"

namespace hearth::engine {

std::string adapter_scope(const std::vector<AppliedAdapter>& adapters) {
  std::string scope;
  for (const AppliedAdapter& each : adapters) {
    scope += fmt::format("{}{} {:a}\n", kAdapterScope, each.adapter->digest, each.scale);
  }
  return scope;
}

Result<std::vector<AppliedAdapter>> AdapterPool::use(const std::vector<UsedAdapter>& wanted) {
  std::vector<AppliedAdapter> out;
  for (const UsedAdapter& each : wanted) {
    if (each.scale == 0) continue;
    HEARTH_ASSIGN_OR_RETURN(auto adapter, find_or_load(each));
    out.push_back({std::move(adapter), each.scale});
  }
  return out;
}

Result<std::shared_ptr<const LoadedAdapter>> AdapterPool::find_or_load(const UsedAdapter& wanted) {
  const std::string& digest = wanted.source->file().fingerprint();
  auto entry = std::ranges::find_if(
      entries_, [&](const Entry& each) { return each.adapter->digest == digest; });
  if (entry == entries_.end()) {
    HEARTH_ASSIGN_OR_RETURN(const int32_t number, add(wanted));
    auto adapter = std::make_shared<LoadedAdapter>(
        LoadedAdapter{wanted.name, digest, number, runner_.adapter_bytes(number)});
    entry = entries_.insert(entries_.end(), {std::move(adapter), 0});
    log_info("adapter_loaded", "adapter={} bytes={} all={}", wanted.name, entry->adapter->bytes,
             bytes());
  }
  entry->last_use = ++uses_;
  return std::shared_ptr<const LoadedAdapter>(entry->adapter);
}

Result<int32_t> AdapterPool::add(const UsedAdapter& wanted) {
  while (entries_.size() >= kMostLoaded && drop_oldest()) {
  }
  if (entries_.size() >= kMostLoaded) {
    return Error::busy(fmt::format("adapter {}: {} adapters are in use, at most {} may",
                                   wanted.name, entries_.size(), kMostLoaded));
  }
  Result<int32_t> added = runner_.add_adapter(wanted.source->file());
  if (!added.ok() && added.error().code == ErrorCode::kOutOfMemory && drop_unused() > 0) {
    added = runner_.add_adapter(wanted.source->file());
  }
  HEARTH_ASSIGN_OR_RETURN(const int32_t number, std::move(added));
  if (Result<void> same = wanted.source->check(); !same.ok()) {
    runner_.remove_adapter(number);
    return same.take_error();
  }
  const uint64_t own = runner_.adapter_bytes(number);
  while (bytes() + own > most_bytes_ && drop_oldest()) {
  }
  if (bytes() + own <= most_bytes_) return number;
  runner_.remove_adapter(number);
  if (own > most_bytes_) {
    return Error::out_of_memory(fmt::format("adapter {}: {} bytes, all adapters may take {}",
                                            wanted.name, own, most_bytes_),
                                "adapter");
  }
  return Error::busy(fmt::format("adapter {}: {} bytes; adapters in use take {}, all may take {}",
                                 wanted.name, own, bytes(), most_bytes_));
}

bool AdapterPool::drop_oldest() {
  auto oldest = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->used()) continue;
    if (oldest == entries_.end() || entry->last_use < oldest->last_use) oldest = entry;
  }
  if (oldest == entries_.end()) return false;
  remove(oldest);
  return true;
}

int32_t AdapterPool::drop_unused(const std::string& name) {
  int32_t dropped = 0;
  for (size_t i = entries_.size(); i-- > 0;) {
    const auto entry = entries_.begin() + narrow<int64_t>(i);
    if (entry->used() || (!name.empty() && entry->adapter->name != name)) continue;
    remove(entry);
    ++dropped;
  }
  return dropped;
}

void AdapterPool::remove(std::vector<Entry>::iterator entry) {
  log_info("adapter_removed", "adapter={} bytes={}", entry->adapter->name, entry->adapter->bytes);
  runner_.remove_adapter(entry->adapter->number);
  entries_.erase(entry);
}

std::vector<AdapterState> AdapterPool::states() const {
  std::vector<AdapterState> out;
  for (const Entry& entry : entries_) {
    out.push_back({entry.adapter->name, entry.adapter->bytes,
                   narrow<int32_t>(entry.adapter.use_count() - 1)});
  }
  return out;
}

uint64_t AdapterPool::bytes() const {
  uint64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.adapter->bytes;
  return bytes;
}

}  // namespace hearth::engine
