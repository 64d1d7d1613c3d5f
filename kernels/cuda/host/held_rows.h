#pragma once
// Rows of activations that the scratch of quantized ones holds, for the product that reads them
// next. An op that makes them calls hold(); what writes memory of the device calls overwrite()
// first, or drop() where it does not know what it writes. Nothing else changes them.

#include <cstdint>
#include <optional>

#include "kernels/ops.h"

namespace hearth::kernels {

/// How a product reads quantized activations (kernels/cuda/matmul/quant_layout.cuh).
enum class RowForm : uint8_t {
  kBlocks,  ///< with a scale per 32 inputs
  kChunks,  ///< with a scale per 256, for types with super-blocks
  kTiles,   ///< the same in wgmma's order, for many rows
};
/// Which part of the scratch: that of kQuantRows, or that of few rows, which an op may fill while
/// it reads the other one.
enum class ScratchPart : uint8_t { kMain, kFew };

class HeldRows {
 public:
  struct Place {
    RowForm form = RowForm::kBlocks;
    ScratchPart part = ScratchPart::kMain;
    bool operator==(const Place& other) const = default;
  };

  /// The scratch holds the rows of `source`: `*count` of them, in device memory, at most `bound`.
  void hold(const TensorView& source, int64_t bound, const int32_t* count, Place place) {
    data_ = source.data;
    stride_ = source.row_stride;
    cols_ = source.cols;
    bound_ = bound;
    count_ = count;
    place_ = place;
  }
  /// Where the scratch holds exactly these rows, at most `bound`; nothing if it does not.
  std::optional<Place> find(const TensorView& x, int64_t bound, const int32_t* count) const {
    const bool held = data_ != nullptr && data_ == x.data && stride_ == x.row_stride &&
                      cols_ == x.cols && count_ == count && bound <= bound_;
    return held ? std::optional(place_) : std::nullopt;
  }

  void drop() { data_ = nullptr; }
  /// Drops the rows if they, or their number, are in these bytes.
  void overwrite(const void* data, uint64_t bytes) {
    if (data_ == nullptr || data == nullptr) return;
    const auto overlaps = [begin = address(data), end = address(data) + bytes](
                              const void* other, uint64_t other_bytes) {
      return begin < address(other) + other_bytes && address(other) < end;
    };
    const uint64_t own_bytes = ((bound_ - 1) * stride_ + cols_) * sizeof(float);
    if (overlaps(data_, own_bytes) || overlaps(count_, sizeof *count_)) drop();
  }
  /// The same for the rows of a view, from the first value to the last.
  void overwrite(const TensorView& view) {
    if (view.rows == 0) return;
    overwrite(view.data, bytes_of(view.dtype, (view.rows - 1) * view.row_stride + view.cols));
  }

 private:
  static uintptr_t address(const void* at) { return reinterpret_cast<uintptr_t>(at); }

  const void* data_ = nullptr;  ///< of the source; null: nothing is held
  int64_t stride_ = 0;
  int64_t cols_ = 0;
  int64_t bound_ = 0;
  const int32_t* count_ = nullptr;
  Place place_;
};

}  // namespace hearth::kernels
