#include "engine/store/published_rows.h"

#include <span>

#include "kernels/base/check.h"
#include "kernels/base/match.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

template <typename Fn>
void PublishedRows::for_each_block(const Row& row, const Fn& fn) {
  for (int32_t group = 0; group < size32(row.present); ++group) {
    for (size_t block = 0; block + 1 < row.names.size(); ++block) {
      if ((row.present[group] >> block & 1u) != 0) fn(group, block);
    }
  }
}

void PublishedRows::added(int64_t row, const NamedChain& chain, const ChunkShape& shape) {
  // Rows that wait to be removed are still known, and their numbers are used again.
  if (chain.chain.published.empty() || (!waiting_ && rows_.contains(row))) return;
  const size_t first = shape.index * chunk_blocks_;
  const size_t count = shape.num_blocks;
  HEARTH_CHECK(count > 0 && first + count < chain.names.size(), "blocks {}+{} of {}", first, count,
               chain.num_blocks());
  Added change;
  change.row = row;
  change.what.first_block = narrow<int32_t>(first);
  change.what.names.assign(chain.names.begin() + first, chain.names.begin() + first + count + 1);
  change.what.present = shape.present;
  const auto tokens =
      std::span(chain.chain.tokens).subspan(first * block_size_, count * block_size_);
  change.tokens.assign(tokens.begin(), tokens.end());
  change.scope = chain.chain.published;
  apply(std::move(change));
}

void PublishedRows::removed(int64_t row) { apply(Removed{row}); }

void PublishedRows::clear() {
  for (const auto& [row, known] : std::exchange(rows_, {})) report(known);
}

void PublishedRows::commit() {
  std::vector<Change> changes = std::exchange(waiting_, std::nullopt).value();
  for (Change& change : changes) apply(std::move(change));
}

void PublishedRows::apply(Change change) {
  if (waiting_) return waiting_->push_back(std::move(change));
  match(
      change,
      [this](Added& added) {
        report(added);
        rows_.emplace(added.row, std::move(added.what));
      },
      [this](const Removed& removed) {
        if (const auto gone = rows_.extract(removed.row); !gone.empty()) report(gone.mapped());
      });
}

void PublishedRows::report(const Added& added) {
  const std::span<const int32_t> tokens = added.tokens;
  for_each_block(added.what, [&](int32_t group, size_t block) {
    const Hash128& hash = added.what.names[block + 1];
    if (++rows_of_[{group, event_hash(hash)}] > 1) return;
    CacheEventLog::Block stored{.hash = hash,
                                .parent = {},
                                .tokens = tokens.subspan(block * block_size_, block_size_),
                                .scope = added.scope};
    if (added.what.first_block + block > 0) stored.parent = added.what.names[block];
    log_.stored(group, stored);
  });
}

void PublishedRows::report(const Row& removed) {
  for_each_block(removed, [&](int32_t group, size_t block) {
    const Hash128& hash = removed.names[block + 1];
    const auto holders = rows_of_.find({group, event_hash(hash)});
    if (--holders->second > 0) return;
    rows_of_.erase(holders);
    log_.removed(group, hash);
  });
}

}  // namespace hearth::engine
