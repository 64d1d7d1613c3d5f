#pragma once
// The rows of the store of batches, and the statements that read and write them. Included by this
// folder's batch_store*.cpp only.

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "daemon/broker/batches/batch_store.h"
#include "kernels/base/random.h"

namespace hearth::broker {

/// Bytes of an uploaded file in one row, and of a file that are read at once.
inline constexpr size_t kPieceBytes = 256 << 10;
/// What a file counts in addition to its content.
inline constexpr int64_t kFileBytes = 512;
/// How long a batch may take.
inline constexpr int64_t kWindowS = 86'400;

inline Error no_after() { return Error::invalid("after: nothing has this id", "after"); }

inline std::string new_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:016x}", prefix, random_bits(), random_bits());
}

struct BatchStore::Statements {
  Statement add_file, find_file, file_at, list_files, set_bytes, show_file, remove_file;
  Statement add_piece, piece_from, remove_pieces;
  Statement add_batch, find_batch, batch_at, live, list_batches, set_status, set_counts, set_files;
  Statement num_live, reads_file, remove_done, add_done, is_done, old_files, remove_batches;
};

struct BatchStore::FileRow {
  int64_t seq = 0;
  int64_t owner = 0;
  http::StoredFile file;
};

struct BatchStore::BatchRow {
  int64_t seq = 0;
  int64_t owner = 0;
  http::Batch batch{};
  int64_t input = 0;
  int64_t output = 0;
  int64_t errors = 0;
};

}  // namespace hearth::broker
