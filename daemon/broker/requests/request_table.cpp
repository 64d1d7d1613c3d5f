#include "daemon/broker/requests/request_table.h"

#include <algorithm>

namespace hearth::broker {

int64_t max_output_tokens_of(const ipc::ComputeRequest& request) {
  const auto* generate = std::get_if<ipc::GenerateRequest>(&request);
  return generate == nullptr ? 0 : int64_t{generate->n} * generate->max_tokens;
}

void LiveRequest::move_to(const ModelFile& to, ModelUse its_use) {
  replica = to.name;
  model = to.model();
  use = std::move(its_use);
  if (log != nullptr) log->model = model;
}

Result<LiveRequest*> RequestTable::add(LiveRequest request) {
  const std::pair key{request.owner, request.id};
  if (by_owner_and_id_.contains(key)) {
    return Error::invalid(
        "a live request has this id already; ids are unique "
        "among an owner's live requests",
        "id");
  }
  request.number = ++last_number_;
  const uint64_t number = request.number;
  queued_bytes_ += request.bytes;
  OwnerUse& owner = owners_[request.owner];
  ++owner.requests;
  owner.bytes += request.bytes;
  owner.tokens += request.max_output_tokens();
  by_owner_and_id_.emplace(key, number);
  by_number_.emplace_back(number, std::make_unique<LiveRequest>(std::move(request)));
  return by_number_.back().second.get();
}

std::vector<RequestTable::Entry>::iterator RequestTable::at_or_behind(uint64_t number) {
  return std::ranges::lower_bound(by_number_, number, {}, &Entry::first);
}

LiveRequest* RequestTable::find(uint64_t number) {
  const auto it = at_or_behind(number);
  return it == by_number_.end() || it->first != number ? nullptr : it->second.get();
}

LiveRequest* RequestTable::find(uint32_t owner, const std::string& id) {
  const auto it = by_owner_and_id_.find({owner, id});
  return it == by_owner_and_id_.end() ? nullptr : find(it->second);
}

LiveRequest* RequestTable::find_any_owner(const std::string& id) {
  for (const auto& [number, request] : by_number_) {
    if (request->id == id) return request.get();
  }
  return nullptr;
}

void RequestTable::erase(uint64_t number) {
  const auto it = at_or_behind(number);
  if (it == by_number_.end() || it->first != number) return;
  const LiveRequest& request = *it->second;
  queued_bytes_ -= request.bytes;
  by_owner_and_id_.erase({request.owner, request.id});
  const auto owner = owners_.find(request.owner);
  owner->second.bytes -= request.bytes;
  owner->second.tokens -= request.max_output_tokens();
  if (--owner->second.requests == 0) owners_.erase(owner);
  by_number_.erase(it);
}

RequestTable::OwnerUse RequestTable::owner_use(uint32_t owner) const {
  const auto it = owners_.find(owner);
  return it == owners_.end() ? OwnerUse() : it->second;
}

}  // namespace hearth::broker
