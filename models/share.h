#pragma once
// A share of a model that several devices compute together, layer by layer (models/split_model.h).
// Of each layer a share has some heads of KV with the heads of queries that read them, and of each
// product some of the output rows: of the second ones, too, whose inputs are gathered first. So
// every value is one product over a whole row, and has the bits that it has on one device.

#include <cstdint>

#include "kernels/ops.h"

namespace hearth::models {

/// Consecutive rows, heads or columns.
struct ShareRange {
  int64_t first = 0;
  int64_t count = 0;

  ShareRange times(int64_t size) const { return {first * size, count * size}; }
  ShareRange after(int64_t begin) const { return {begin + first, count}; }
};

/// What a share exchanges with the others. All shares make the same calls in the same order, each
/// on its own thread, and every call waits for those of the others. Values are f32.
class ShareLink {
 public:
  virtual ~ShareLink() = default;
  /// All columns of rows of which this share has `own`, the first of them in column `first` of
  /// `cols`. In the share's device memory, valid until the next gather().
  virtual kernels::TensorView gather(int64_t rows, const kernels::TensorView& own, int64_t first,
                                     int64_t cols) = 0;
  /// Of each row of `x` this share has written the columns `own`; the others are filled in.
  virtual void join_columns(int64_t rows, const kernels::TensorView& x, const ShareRange& own) = 0;
  /// Rows of the embedding: this share has written those of its tokens; the others are filled in.
  virtual void join_embedding(int64_t rows, const kernels::TensorView& x) = 0;
};

struct Share {
  int32_t index = 0;
  int32_t count = 1;  ///< 1: one device has all
  ShareLink* link = nullptr;

  bool is_part() const { return count > 1; }
  /// This share of `whole` rows: about equal, cut at multiples of `unit` where there are enough.
  ShareRange part(int64_t whole, int64_t unit = kRows) const {
    const int64_t most = whole / count < unit ? whole / count : unit;
    const int64_t size = most > 1 ? most : 1;
    const int64_t units = (whole + size - 1) / size;
    const auto cut = [&](int64_t i) {
      const int64_t row = units * i / count * size;
      return row < whole ? row : whole;
    };
    return {cut(index), cut(index + 1) - cut(index)};
  }
  /// Rows of products are cut at multiples of this.
  static constexpr int64_t kRows = 32;
};

}  // namespace hearth::models
