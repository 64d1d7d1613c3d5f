#include "ipc/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <type_traits>

namespace hearth::ipc {
namespace {

constexpr uint8_t kVersion = 1;

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  template <std::integral T>
  void operator()(const T& value, const char*) {
    if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<int64_t>(value);
      put(static_cast<uint64_t>(wide) << 1 ^ static_cast<uint64_t>(wide >> 63));
    } else {
      put(value);
    }
  }
  void operator()(const WatchedBlock& value, const char*) { put(static_cast<uint64_t>(value)); }
  void operator()(const std::string& text, const char*) {
    const size_t size = std::min<size_t>(text.size(), WatchLimits::kTextBytes);
    put(size);
    out_.append(text, 0, size);
  }
  template <class T>
  void list(const std::vector<T>& items, uint64_t limit, const char*) {
    const size_t count = std::min<size_t>(items.size(), limit);
    put(count);
    for (size_t i = 0; i < count; ++i) visit(*this, items[i]);
  }

 private:
  void put(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }
  std::string& out_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  template <std::integral T>
  void operator()(T& value, const char* name) {
    const uint64_t raw = take(name);
    if constexpr (std::is_same_v<T, bool>) {
      if (raw > 1) return refuse(name, "want 0 or 1");
      value = raw == 1;
    } else if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<int64_t>(raw >> 1 ^ (~(raw & 1) + 1));
      value = static_cast<T>(wide);
      if (static_cast<int64_t>(value) != wide) refuse(name, "out of range");
    } else {
      value = static_cast<T>(raw);
      if (static_cast<uint64_t>(value) != raw) refuse(name, "out of range");
    }
  }
  void operator()(WatchedBlock& value, const char* name) {
    const uint64_t raw = take(name);
    if (raw >= kNumWatchedBlocks) return refuse(name, "unknown state");
    value = static_cast<WatchedBlock>(raw);
  }
  void operator()(std::string& text, const char* name) {
    const uint64_t size = take(name);
    if (size > WatchLimits::kTextBytes || size > left_.size()) return refuse(name, "too long");
    text.assign(left_.substr(0, size));
    left_.remove_prefix(size);
  }
  template <class T>
  void list(std::vector<T>& items, uint64_t limit, const char* name) {
    const uint64_t count = take(name);
    // An element has at least two bytes, so a message cannot ask for more memory than it is worth.
    if (count > limit || count * 2 > left_.size()) return refuse(name, "too many");
    items.resize(count);
    for (T& item : items) {
      if (!problem_.empty()) return;
      visit(*this, item);
    }
  }
  void check(bool fine, const char* name, const char* want) {
    if (!fine) refuse(name, want);
  }

  Result<void> result() const {
    if (!problem_.empty()) return Error{ErrorCode::kProtocol, "watch: " + problem_, {}};
    if (left_.empty()) return {};
    return Error{ErrorCode::kProtocol, fmt::format("watch: {} bytes too many", left_.size()), {}};
  }

 private:
  uint64_t take(const char* name) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !left_.empty() && problem_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      if (shift == 63 && byte > 1) break;
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    refuse(name, left_.empty() ? "ends early" : "not a number");
    return 0;
  }
  void refuse(const char* name, const char* why) {
    if (problem_.empty()) problem_ = fmt::format("{}: {}", name, why);
    left_ = {};
  }

  std::string_view left_;
  std::string problem_;
};

template <class T>
concept IsWriter = std::same_as<T, Writer>;

template <class Codec, class T>
void visit(Codec& codec, T& item) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Plain, WatchedChunk>) {
    codec(item.request, "chunk.request");
    codec(item.tokens, "chunk.tokens");
  } else if constexpr (std::is_same_v<Plain, WatchedStep>) {
    codec(item.step, "step.step");
    codec(item.end_us, "step.end_us");
    codec(item.duration_us, "step.duration_us");
    codec(item.decode_rows, "step.decode_rows");
    codec(item.draft_rows, "step.draft_rows");
    codec(item.accepted, "step.accepted");
    codec.list(item.prefills, WatchLimits::kChunks, "step.prefills");
    codec(item.prefills_unlisted, "step.prefills_unlisted");
    codec(item.running, "step.running");
    codec(item.waiting, "step.waiting");
    codec(item.preempted, "step.preempted");
  } else if constexpr (std::is_same_v<Plain, BlockRun>) {
    codec(item.first, "run.first");
    codec(item.count, "run.count");
    codec(item.state, "run.state");
    codec(item.refs, "run.refs");
    codec(item.request, "run.request");
    codec(item.position, "run.position");
    codec(item.on_disk, "run.on_disk");
  } else if constexpr (std::is_same_v<Plain, PoolUpdate>) {
    codec(item.group, "pool.group");
    codec(item.num_blocks, "pool.num_blocks");
    codec(item.full, "pool.full");
    codec.list(item.runs, WatchLimits::kRuns, "pool.runs");
    if constexpr (!IsWriter<Codec>) {
      codec.check(item.group >= 0 && item.group < static_cast<int32_t>(WatchLimits::kPools),
                  "pool.group", "out of range");
      codec.check(
          item.num_blocks >= 0 && static_cast<uint64_t>(item.num_blocks) <= WatchLimits::kBlocks,
          "pool.num_blocks", "out of range");
      for (const BlockRun& run : item.runs) {
        const uint64_t end = uint64_t{run.first} + run.count;
        codec.check(end <= static_cast<uint64_t>(item.num_blocks), "run", "past the pool's end");
        codec.check(
            run.position >= 0 &&
                uint64_t{run.count} + static_cast<uint64_t>(run.position) <= WatchLimits::kBlocks,
            "run.position", "out of range");
      }
    }
  } else if constexpr (std::is_same_v<Plain, WatchedPrefix>) {
    codec(item.name_high, "prefix.name_high");
    codec(item.name_low, "prefix.name_low");
    codec(item.parent_high, "prefix.parent_high");
    codec(item.parent_low, "prefix.parent_low");
    codec(item.end_block, "prefix.end_block");
    codec(item.num_blocks, "prefix.num_blocks");
    codec(item.in_use, "prefix.in_use");
    codec(item.pinned, "prefix.pinned");
  } else if constexpr (std::is_same_v<Plain, WatchedRequest>) {
    codec(item.number, "request.number");
    codec(item.id, "request.id");
    codec(item.owner, "request.owner");
    codec(item.model, "request.model");
    codec(item.priority, "request.priority");
    codec(item.state, "request.state");
    codec(item.waiting_for, "request.waiting_for");
    codec(item.queue_position, "request.queue_position");
    codec(item.estimate_ms, "request.estimate_ms");
    codec(item.age_ms, "request.age_ms");
    codec(item.prompt_tokens, "request.prompt_tokens");
    codec(item.prompt_done, "request.prompt_done");
    codec(item.cached_tokens, "request.cached_tokens");
    codec(item.output_tokens, "request.output_tokens");
    codec(item.drafted_tokens, "request.drafted_tokens");
    codec(item.accepted_tokens, "request.accepted_tokens");
    codec(item.preemptions, "request.preemptions");
    codec(item.queue_us, "request.queue_us");
    codec(item.ttft_us, "request.ttft_us");
  } else {
    static_assert(std::is_same_v<Plain, WatchUpdate>);
    codec(item.sequence, "sequence");
    codec(item.now_us, "now_us");
    codec(item.steps_dropped, "steps_dropped");
    codec(item.block_size, "block_size");
    codec.list(item.steps, WatchLimits::kSteps, "steps");
    codec.list(item.pools, WatchLimits::kPools, "pools");
    codec.list(item.requests, WatchLimits::kRequests, "requests");
    codec(item.has_prefixes, "has_prefixes");
    codec.list(item.prefixes, WatchLimits::kPrefixes, "prefixes");
    codec(item.resident_bytes, "resident_bytes");
    codec(item.power_mw, "power_mw");
  }
}

}  // namespace

std::string encode_watch(const WatchUpdate& update) {
  std::string out(1, static_cast<char>(kVersion));
  Writer writer(out);
  visit(writer, update);
  return out;
}

Result<WatchUpdate> decode_watch(std::string_view bytes) {
  if (bytes.empty() || static_cast<uint8_t>(bytes.front()) != kVersion) {
    return Error{ErrorCode::kProtocol, fmt::format("watch: want version {}", kVersion), {}};
  }
  Reader reader(bytes.substr(1));
  WatchUpdate update;
  visit(reader, update);
  HEARTH_TRY(reader.result());
  return update;
}

}  // namespace hearth::ipc
