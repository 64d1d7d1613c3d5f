#include "ipc/schema/watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <type_traits>
#include <utility>

#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"

namespace hearth::ipc {
namespace {

constexpr uint8_t kVersion = 3;

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  template <std::integral T>
  void operator()(const T& value, const char*) {
    if constexpr (std::is_signed_v<T>) {
      const int64_t wide = value;
      put(wide << 1 ^ wide >> 63);
    } else {
      put(value);
    }
  }
  void operator()(const WatchedBlock& value, const char*) { put(to_underlying(value)); }
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

class MembersReader {
 public:
  explicit MembersReader(std::string_view bytes) : left_(bytes) {}

  template <std::integral T>
  void operator()(T& value, const char* name) {
    const uint64_t raw = take(name);
    if constexpr (std::is_same_v<T, bool>) {
      if (raw > 1) return refuse(name, "want 0 or 1");
      value = raw == 1;
    } else if constexpr (std::is_signed_v<T>) {
      const int64_t wide = raw >> 1 ^ (~(raw & 1) + 1);
      value = static_cast<T>(wide);
      if (value != wide) refuse(name, "out of range");
    } else {
      value = static_cast<T>(raw);
      if (value != raw) refuse(name, "out of range");
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
    // An element has at least two bytes, so a short message cannot claim much memory.
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
    if (!problem_.empty()) return Error::protocol("watch: " + problem_);
    if (left_.empty()) return {};
    return Error::protocol(fmt::format("watch: {} bytes too many", left_.size()));
  }

 private:
  uint64_t take(const char* name) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !left_.empty() && problem_.empty(); shift += 7) {
      const auto byte = byte_of(left_.front());
      left_.remove_prefix(1);
      if (shift == 63 && byte > 1) break;
      value |= (uint64_t{byte} & 0x7F) << shift;
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

/// A list with the most that it may hold.
template <class Items>
struct Bounded {
  Items& items;
  uint64_t limit;
};
template <class Items>
Bounded<Items> bounded(Items& items, uint64_t limit) {
  return {items, limit};
}

template <class Codec, class T>
void visit_one(Codec& codec, T& item, const char* name) {
  codec(item, name);
}
template <class Codec, class Items>
void visit_one(Codec& codec, Bounded<Items>& list, const char* name) {
  codec.list(list.items, list.limit, name);
}
/// All fields of one struct, in the order of the layout; `what` names it in complaints.
template <class Codec, class... Fields>
void visit_all(Codec& codec, const char* what, Fields&&... fields) {
  (visit_one(codec, fields, what), ...);
}

/// A pool whose runs could be drawn.
void check_pool(MembersReader& reader, const PoolUpdate& pool) {
  reader.check(pool.group >= 0 && std::cmp_less(pool.group, WatchLimits::kPools), "pool.group",
               "out of range");
  reader.check(pool.num_blocks >= 0 && std::cmp_less_equal(pool.num_blocks, WatchLimits::kBlocks),
               "pool.num_blocks", "out of range");
  for (const BlockRun& run : pool.runs) {
    const uint64_t end = uint64_t{run.first} + run.count;
    reader.check(std::cmp_less_equal(end, pool.num_blocks), "run", "past the pool's end");
    reader.check(run.position >= 0 && uint64_t{run.count} + run.position <= WatchLimits::kBlocks,
                 "run.position", "out of range");
  }
}

template <class Codec, class T>
void visit(Codec& codec, T& item) {
  using Plain = std::remove_const_t<T>;
  using Limits = WatchLimits;
  if constexpr (std::is_same_v<Plain, WatchedChunk>) {
    visit_all(codec, "chunk", item.request, item.tokens);
  } else if constexpr (std::is_same_v<Plain, WatchedGaps>) {
    visit_all(codec, "gaps", item.bucket, item.count);
    if constexpr (!IsWriter<Codec>) {
      codec.check(item.bucket < Limits::kGapBuckets, "gaps.bucket", "out of range");
    }
  } else if constexpr (std::is_same_v<Plain, WatchedStep>) {
    visit_all(codec, "step", item.step, item.end_us, item.duration_us, item.decode_rows,
              item.draft_rows, item.accepted, bounded(item.prefills, Limits::kChunks),
              item.prefills_unlisted, item.running, item.waiting, item.preempted);
  } else if constexpr (std::is_same_v<Plain, BlockRun>) {
    visit_all(codec, "run", item.first, item.count, item.state, item.refs, item.request,
              item.position, item.on_disk);
  } else if constexpr (std::is_same_v<Plain, PoolUpdate>) {
    visit_all(codec, "pool", item.group, item.num_blocks, item.full,
              bounded(item.runs, Limits::kRuns));
    if constexpr (!IsWriter<Codec>) check_pool(codec, item);
  } else if constexpr (std::is_same_v<Plain, WatchedPrefix>) {
    visit_all(codec, "prefix", item.name_high, item.name_low, item.parent_high, item.parent_low,
              item.end_block, item.num_blocks, item.in_use, item.pinned);
  } else if constexpr (std::is_same_v<Plain, WatchedRequest>) {
    visit_all(codec, "request", item.number, item.id, item.owner, item.model, item.priority,
              item.state, item.waiting_for, item.queue_position, item.estimate_ms, item.age_ms,
              item.prompt_tokens, item.prompt_done, item.cached_tokens, item.output_tokens,
              item.drafted_tokens, item.accepted_tokens, item.preemptions, item.queue_us,
              item.ttft_us, item.canvas, item.canvas_first, item.pass, item.passes);
  } else {
    static_assert(std::is_same_v<Plain, WatchUpdate>);
    visit_all(codec, "update", item.sequence, item.now_us, item.steps_dropped, item.block_size,
              bounded(item.steps, Limits::kSteps), bounded(item.pools, Limits::kPools),
              bounded(item.requests, Limits::kRequests), item.has_prefixes,
              bounded(item.prefixes, Limits::kPrefixes), item.resident_bytes, item.power_mw,
              bounded(item.gaps, Limits::kGapBuckets));
  }
}

}  // namespace

// Below 64 the value itself; above, the position of the leading bit and the five bits after it.
uint32_t gap_bucket(int64_t gap_us) {
  constexpr int64_t kMost = (int64_t{1} << 37) - 1;
  const uint64_t us = std::clamp<int64_t>(gap_us, 0, kMost);
  if (us < 64) return narrow<uint32_t>(us);
  const auto shift = static_cast<uint32_t>(std::bit_width(us)) - 6;
  return shift * 32 + narrow<uint32_t>(us >> shift);
}

double gap_us(uint32_t bucket) {
  if (bucket < 64) return bucket;
  const uint32_t shift = bucket / 32 - 1;
  const uint64_t low = uint64_t{bucket - shift * 32} << shift;
  return as_double(low) + as_double(uint64_t{1} << shift) / 2;
}

std::string encode_watch(const WatchUpdate& update) {
  std::string out(1, kVersion);
  Writer writer(out);
  visit(writer, update);
  return out;
}

Result<WatchUpdate> decode_watch(std::string_view bytes) {
  if (bytes.empty() || byte_of(bytes.front()) != kVersion) {
    return Error::protocol(fmt::format("watch: want version {}", kVersion));
  }
  MembersReader reader(bytes.substr(1));
  WatchUpdate update;
  visit(reader, update);
  HEARTH_TRY(reader.result());
  return update;
}

}  // namespace hearth::ipc
