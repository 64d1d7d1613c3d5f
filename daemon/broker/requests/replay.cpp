#include "daemon/broker/requests/replay.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/check.h"

namespace hearth::broker {
namespace {

/// The first mark that a replay from token `from` includes.
size_t first_mark(const ReplayLog::Sample& sample, uint32_t from) {
  size_t at = 0;
  while (at < sample.marks.size()) {
    const ReplayLog::Mark& mark = sample.marks[at];
    // A mark without tokens is the end of a text and follows all its tokens.
    const bool wanted = mark.header.num_tokens == 0
                            ? mark.header.first_index >= from
                            : mark.header.first_index + mark.header.num_tokens > from;
    if (wanted) break;
    ++at;
  }
  return at;
}

}  // namespace

ReplayLog& Replay::begin(uint64_t number, uint32_t owner, const std::string& id,
                         std::shared_ptr<const ipc::ClientRequest> request) {
  const auto known = by_id_.find({owner, id});
  if (known != by_id_.end()) drop(known->second);
  ReplayLog& log = logs_[number];
  log.number = number;
  log.owner = owner;
  log.id = id;
  log.request = std::move(request);
  log.samples.resize(static_cast<size_t>(log.generate().n));
  by_id_[{owner, id}] = number;
  grow(log, sizeof(ReplayLog) + id.size() + log.samples.size() * sizeof(ReplayLog::Sample));
  return log;
}

void Replay::add(ReplayLog& log, const OutgoingView& delta) {
  HEARTH_CHECK(delta.payload.size() >= ipc::kDeltaHeaderBytes && delta.sample < log.samples.size());
  ipc::DeltaHeader header;
  std::memcpy(&header, delta.payload.data(), sizeof header);
  ReplayLog::Sample& sample = log.samples[delta.sample];
  size_t added = delta.payload.size() - ipc::kDeltaHeaderBytes + sizeof(ReplayLog::Mark);
  sample.text.append(delta.payload, ipc::kDeltaHeaderBytes);
  if (delta.logprobs.size() > 2) {  // "[a]" becomes "a,"
    sample.logprobs.append(delta.logprobs, 1, delta.logprobs.size() - 2);
    sample.logprobs += ',';
    added += delta.logprobs.size() - 1;
  }
  sample.marks.push_back({header, sample.text.size(), sample.logprobs.size()});
  grow(log, added);
}

void Replay::note(ReplayLog& log, std::string ReplayLog::*event, std::string_view json) {
  log.*event = json;
  grow(log, json.size());
}

void Replay::note_sample_done(ReplayLog& log, size_t sample, std::string_view json) {
  log.samples[sample].done = json;
  grow(log, json.size());
}

void Replay::end(ReplayLog& log, std::string last, int64_t now_us) {
  const ipc::GenerateRequest& request = log.generate();
  size_t added = last.size() + log.prefix.size() * sizeof(int32_t) + request.prompt.size() +
                 request.prompt_ids.size() * sizeof(int32_t) + request.messages.text.size() +
                 request.tools.text.size() + request.template_kwargs.text.size() +
                 request.json_schema.size() + request.grammar.size();
  for (const ReplayLog::Sample& sample : log.samples) added += sample.ids.size() * sizeof(int32_t);
  log.last = std::move(last);
  log.ended_us = now_us;
  owners_[log.owner].ended.insert({now_us, log.number});
  grow(log, added);  // this may drop the log
}

void Replay::tick(int64_t now_us) {
  for (auto it = logs_.begin(); it != logs_.end();) {
    const ReplayLog& log = (it++)->second;
    if (!log.live() && now_us - log.ended_us >= limits_.attach_keep_ms * 1000) drop(log.number);
  }
}

ReplayLog* Replay::find(uint32_t owner, const std::string& id) {
  const auto it = by_id_.find({owner, id});
  return it == by_id_.end() ? nullptr : &logs_.at(it->second);
}

size_t Replay::owner_bytes(uint32_t owner) const {
  const auto it = owners_.find(owner);
  return it == owners_.end() ? 0 : it->second.bytes;
}

// ---- The bound ---------------------------------------------------------------------------------

void Replay::grow(ReplayLog& log, size_t bytes) {
  log.bytes += bytes;
  owners_[log.owner].bytes += bytes;
  bytes_ += bytes;
  bound(log.owner);
}

void Replay::shrink(ReplayLog& log, size_t bytes) {
  log.bytes -= bytes;
  bytes_ -= bytes;
  const auto owner = owners_.find(log.owner);
  owner->second.bytes -= bytes;
  if (owner->second.bytes == 0) owners_.erase(owner);
}

void Replay::bound(uint32_t owner) {
  const auto owner_over = [&] {
    return owner_bytes(owner) > static_cast<size_t>(limits_.attach_bytes_per_owner);
  };
  const auto over = [&] { return bytes_ > static_cast<size_t>(limits_.attach_bytes); };
  while (owner_over() && drop_oldest_ended(owner)) {
  }
  while (over() && drop_oldest_ended()) {
  }
  while (owner_over() || over()) {
    // The owner that exceeds the total loses data, so no owner can displace the live logs of
    // others.
    ReplayLog* largest = nullptr;
    for (auto& [number, log] : logs_) {
      if (log.owner == owner && (largest == nullptr || log.bytes > largest->bytes)) largest = &log;
    }
    const size_t before = bytes_;
    if (largest != nullptr) halve(*largest);
    if (bytes_ == before) return;  // only the fixed parts of live logs are left
  }
}

bool Replay::drop_oldest_ended(uint32_t owner) {
  const auto it = owners_.find(owner);
  if (it == owners_.end() || it->second.ended.empty()) return false;
  drop(it->second.ended.begin()->second);
  return true;
}

bool Replay::drop_oldest_ended() {
  const std::pair<const uint32_t, Owner>* oldest = nullptr;
  for (const auto& each : owners_) {
    if (each.second.ended.empty()) continue;
    if (oldest == nullptr || *each.second.ended.begin() < *oldest->second.ended.begin()) {
      oldest = &each;
    }
  }
  return oldest != nullptr && drop_oldest_ended(oldest->first);
}

void Replay::halve(ReplayLog& log) {
  size_t freed = 0;
  for (ReplayLog::Sample& sample : log.samples) {
    const size_t count = (sample.marks.size() + 1) / 2;
    if (count == 0) continue;
    const ReplayLog::Mark last = sample.marks[count - 1];
    sample.text.erase(0, last.text_end);
    sample.logprobs.erase(0, last.logprobs_end);
    sample.marks.erase(sample.marks.begin(), sample.marks.begin() + static_cast<ptrdiff_t>(count));
    for (ReplayLog::Mark& mark : sample.marks) {
      mark.text_end -= last.text_end;
      mark.logprobs_end -= last.logprobs_end;
    }
    sample.text.shrink_to_fit();
    sample.logprobs.shrink_to_fit();
    sample.marks.shrink_to_fit();
    freed += last.text_end + last.logprobs_end + count * sizeof(ReplayLog::Mark);
  }
  shrink(log, freed);
}

void Replay::drop(uint64_t number) {
  const auto it = logs_.find(number);
  if (!it->second.live()) owners_[it->second.owner].ended.erase({it->second.ended_us, number});
  shrink(it->second, it->second.bytes);
  by_id_.erase({it->second.owner, it->second.id});
  logs_.erase(it);
}

// ---- Reading -----------------------------------------------------------------------------------

uint32_t replay_from(const ReplayLog::Sample& sample, uint32_t from, uint32_t num_tokens) {
  const size_t first = first_mark(sample, from);
  return first < sample.marks.size() ? sample.marks[first].header.first_index : num_tokens;
}

Outgoing replay_delta(const ReplayLog::Sample& sample, uint32_t index, uint32_t from,
                      std::span<const int32_t> ids) {
  Outgoing out;
  for (size_t at = first_mark(sample, from); at < sample.marks.size(); ++at) {
    const ReplayLog::Mark& mark = sample.marks[at];
    const size_t text = at == 0 ? 0 : sample.marks[at - 1].text_end;
    const size_t logprobs = at == 0 ? 0 : sample.marks[at - 1].logprobs_end;
    const size_t ids_end = size_t{mark.header.first_index} + mark.header.num_tokens;
    HEARTH_CHECK(ids.size() >= ids_end, "{} ids, want {}", ids.size(), ids_end);
    Outgoing delta;
    delta.is_delta = true;
    delta.sample = index;
    delta.payload.assign(reinterpret_cast<const char*>(&mark.header), sizeof mark.header);
    delta.payload.append(sample.text, text, mark.text_end - text);
    delta.ids.assign(reinterpret_cast<const char*>(ids.data() + mark.header.first_index),
                     mark.header.num_tokens * sizeof(int32_t));
    if (mark.logprobs_end > logprobs) {
      delta.logprobs = "[" + sample.logprobs.substr(logprobs, mark.logprobs_end - logprobs);
      delta.logprobs.back() = ']';
    }
    if (out.is_delta) {
      merge_deltas(&out, delta);
    } else {
      out = std::move(delta);
    }
  }
  return out;
}

}  // namespace hearth::broker
