#include "daemon/broker/requests/token_log.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "kernels/base/numbers.h"

namespace hearth::broker {
namespace {

struct LoggedDelta {
  ipc::DeltaHeader header;
  std::string_view payload;   // the header, too
  std::string_view logprobs;  // empty: none
};

/// Removes the first delta from `rest`, which has one.
LoggedDelta take_delta(std::string_view* rest) {
  const auto take = [&](size_t bytes) {
    const std::string_view out = rest->substr(0, bytes);
    rest->remove_prefix(bytes);
    return out;
  };
  DeltaSizes sizes;
  std::memcpy(&sizes, take(sizeof sizes).data(), sizeof sizes);
  LoggedDelta out;
  out.payload = take(sizes.payload);
  out.logprobs = take(sizes.logprobs);
  std::memcpy(&out.header, out.payload.data(), sizeof out.header);
  return out;
}

/// The deltas that a replay from token `from` includes.
std::string_view deltas_from(const TokenLog::Sample& sample, uint32_t from) {
  std::string_view rest = sample.deltas;
  while (!rest.empty()) {
    std::string_view next = rest;
    const ipc::DeltaHeader header = take_delta(&next).header;
    // A delta without tokens is the end of a text and follows all its tokens.
    const bool wanted = header.num_tokens == 0 ? header.first_index >= from
                                               : header.first_index + header.num_tokens > from;
    if (wanted) break;
    rest = next;
  }
  return rest;
}

}  // namespace

int64_t TokenLog::num_tokens() const {
  int64_t total = 0;
  for (const Sample& sample : samples) total += std::ssize(sample.ids);
  return total;
}

std::vector<std::vector<int32_t>> TokenLog::resume() const {
  std::vector<std::vector<int32_t>> out;
  if (num_tokens() == 0) return out;
  for (const Sample& sample : samples) out.push_back(sample.ids);
  return out;
}

TokenLog& TokenLogs::begin(uint64_t number, uint32_t owner, const std::string& id,
                           const std::string& model,
                           std::shared_ptr<const ipc::ComputeRequest> request,
                           std::vector<int32_t> prefix) {
  const auto known = by_id_.find({owner, id});
  if (known != by_id_.end()) drop(known->second);
  TokenLog& log = logs_[number];
  log.number = number;
  log.owner = owner;
  log.id = id;
  log.model = model;
  log.request = std::move(request);
  log.prefix = std::move(prefix);
  log.samples.resize(log.generate().n);
  by_id_[{owner, id}] = number;
  grow(log, sizeof(TokenLog) + id.size() + log.samples.size() * sizeof(TokenLog::Sample));
  return log;
}

Result<bool> TokenLogs::add(TokenLog& log, const ipc::DeltaHeader& header,
                            const ipc::Answer& delta) {
  if (header.sample >= log.samples.size()) {
    return Error::internal(
        fmt::format("delta of sample {}, the request has {}", header.sample, log.samples.size()));
  }
  if (delta.ids.size() != size_t{header.num_tokens} * sizeof(int32_t)) {
    return Error::internal(fmt::format("delta of {} tokens with {} bytes of ids", header.num_tokens,
                                       delta.ids.size()));
  }
  TokenLog::Sample& sample = log.samples[header.sample];
  const size_t sent = sample.ids.size();
  if (header.first_index != sent) {
    return Error::internal(
        fmt::format("delta begins at token {}, {} were sent", header.first_index, sent));
  }
  if (header.num_tokens == 0 && std::exchange(sample.tail_sent, true)) return false;
  if (header.num_tokens > 0) {
    sample.ids.resize(sent + header.num_tokens);
    std::memcpy(sample.ids.data() + sent, delta.ids.data(), delta.ids.size());
  }
  append(log, header.sample, delta.payload, delta.logprobs.size() > 2 ? delta.logprobs : "");
  return true;
}

void TokenLogs::add_text(TokenLog& log, uint32_t sample, std::string_view payload) {
  append(log, sample, payload, {});
}

void TokenLogs::append(TokenLog& log, uint32_t sample, std::string_view payload,
                       std::string_view logprobs) {
  std::string& deltas = log.samples[sample].deltas;
  const DeltaSizes sizes{.payload = narrow<uint32_t>(payload.size()),
                         .logprobs = narrow<uint32_t>(logprobs.size())};
  const size_t before = deltas.size();
  deltas.resize(before + sizeof sizes);
  std::memcpy(deltas.data() + before, &sizes, sizeof sizes);
  deltas += payload;
  deltas += logprobs;
  grow(log, sizeof sizes + payload.size() + logprobs.size());
}

void TokenLogs::note(TokenLog& log, std::string TokenLog::*event, std::string_view json) {
  log.*event = json;
  grow(log, json.size());
}

void TokenLogs::note_sample_done(TokenLog& log, size_t sample, std::string reason,
                                 std::string_view json) {
  log.samples[sample].finish_reason = std::move(reason);
  log.samples[sample].done = json;
  grow(log, json.size());
}

void TokenLogs::end(TokenLog& log, std::string last, int64_t now_us) {
  const ipc::GenerateRequest& request = log.generate();
  size_t added = last.size() + log.prefix.size() * sizeof(int32_t) + request.prompt.size() +
                 request.prompt_ids.size() * sizeof(int32_t) + request.messages.text.size() +
                 request.tools.text.size() + request.template_kwargs.text.size() +
                 request.json_schema.size() + request.grammar.size() + request.regex.size();
  for (const TokenLog::Sample& sample : log.samples) added += sample.ids.size() * sizeof(int32_t);
  log.last = std::move(last);
  log.ended_us = now_us;
  owners_[log.owner].ended.insert({now_us, log.number});
  grow(log, added);  // this may drop the log
}

void TokenLogs::tick(int64_t now_us) {
  for (auto it = logs_.begin(); it != logs_.end();) {
    const TokenLog& log = (it++)->second;
    if (!log.live() && now_us - log.ended_us >= limits_.attach_keep_ms * 1000) drop(log.number);
  }
}

TokenLog* TokenLogs::find(uint32_t owner, const std::string& id) {
  const auto it = by_id_.find({owner, id});
  return it == by_id_.end() ? nullptr : &logs_.at(it->second);
}

size_t TokenLogs::owner_bytes(uint32_t owner) const {
  const auto it = owners_.find(owner);
  return it == owners_.end() ? 0 : it->second.bytes;
}

// ---- The bound ---------------------------------------------------------------------------------

void TokenLogs::grow(TokenLog& log, size_t bytes) {
  size_t& of_owner = owners_[log.owner].bytes;
  log.bytes += bytes;
  of_owner += bytes;
  bytes_ += bytes;
  const bool over = std::cmp_greater(of_owner, limits_.attach_bytes_per_owner) ||
                    std::cmp_greater(bytes_, limits_.attach_bytes);
  if (over) bound(log.owner);
}

void TokenLogs::shrink(TokenLog& log, size_t bytes) {
  log.bytes -= bytes;
  bytes_ -= bytes;
  const auto owner = owners_.find(log.owner);
  owner->second.bytes -= bytes;
  if (owner->second.bytes == 0) owners_.erase(owner);
}

void TokenLogs::bound(uint32_t owner) {
  const auto owner_over = [&] {
    return std::cmp_greater(owner_bytes(owner), limits_.attach_bytes_per_owner);
  };
  const auto over = [&] { return std::cmp_greater(bytes_, limits_.attach_bytes); };
  while (owner_over() && drop_oldest_ended(owner)) {
  }
  while (over() && drop_oldest_ended()) {
  }
  while (owner_over() || over()) {
    // The owner that exceeds the total loses data, so no owner can displace the live logs of
    // others.
    TokenLog* largest = nullptr;
    for (auto& [number, log] : logs_) {
      if (log.owner == owner && (largest == nullptr || log.bytes > largest->bytes)) largest = &log;
    }
    const size_t before = bytes_;
    if (largest != nullptr) halve(*largest);
    if (bytes_ == before) return;  // only the fixed parts of live logs are left
  }
}

bool TokenLogs::drop_oldest_ended(uint32_t owner) {
  const auto it = owners_.find(owner);
  if (it == owners_.end() || it->second.ended.empty()) return false;
  drop(it->second.ended.begin()->second);
  return true;
}

bool TokenLogs::drop_oldest_ended() {
  const std::pair<const uint32_t, Owner>* oldest = nullptr;
  for (const auto& each : owners_) {
    if (each.second.ended.empty()) continue;
    if (oldest == nullptr || *each.second.ended.begin() < *oldest->second.ended.begin()) {
      oldest = &each;
    }
  }
  return oldest != nullptr && drop_oldest_ended(oldest->first);
}

void TokenLogs::halve(TokenLog& log) {
  size_t freed = 0;
  for (TokenLog::Sample& sample : log.samples) {
    std::string_view rest = sample.deltas;
    while (rest.size() * 2 > sample.deltas.size()) take_delta(&rest);
    freed += sample.deltas.size() - rest.size();
    sample.deltas = std::string(rest);
  }
  shrink(log, freed);
}

void TokenLogs::drop(uint64_t number) {
  const auto it = logs_.find(number);
  if (!it->second.live()) owners_[it->second.owner].ended.erase({it->second.ended_us, number});
  shrink(it->second, it->second.bytes);
  by_id_.erase({it->second.owner, it->second.id});
  logs_.erase(it);
}

// ---- Reading -----------------------------------------------------------------------------------

uint32_t replay_from(const TokenLog::Sample& sample, uint32_t from) {
  std::string_view rest = deltas_from(sample, from);
  return rest.empty() ? narrow<uint32_t>(sample.ids.size()) : take_delta(&rest).header.first_index;
}

Outgoing replay_delta(const TokenLog::Sample& sample, uint32_t index, uint32_t from) {
  Outgoing out;
  for (std::string_view rest = deltas_from(sample, from); !rest.empty();) {
    const LoggedDelta logged = take_delta(&rest);
    OutgoingView delta;
    delta.is_delta = true;
    delta.sample = index;
    delta.payload = logged.payload;
    delta.ids = {reinterpret_cast<const char*>(sample.ids.data() + logged.header.first_index),
                 logged.header.num_tokens * sizeof(int32_t)};
    delta.logprobs = logged.logprobs;
    if (out.is_delta) {
      merge_deltas(&out, delta);
    } else {
      out = Outgoing(delta);
    }
  }
  return out;
}

}  // namespace hearth::broker
