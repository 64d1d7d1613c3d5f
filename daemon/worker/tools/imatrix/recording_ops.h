#pragma once
// An op table that records the inputs of products: for each matrix, how large each of its inputs is
// over everything that was computed.

#include <memory>
#include <vector>

#include "kernels/ops.h"
#include "models/quantize/importance.h"

namespace hearth::worker {

/// Sums of squares of the inputs of every matrix that a table has packed. Owned by one thread.
class InputRecorder {
 public:
  InputRecorder();
  ~InputRecorder();

  /// `inner` with its matmul and moe_matmul recorded here; the recorder outlives it. Results are
  /// those of `inner`. Each call waits for the device, and the host's counts of rows are exact
  /// (BatchIndex), so it is for tools. What only speeds up an engine (captured steps, side copies,
  /// draws on the device, elastic memory) is absent.
  kernels::OpTable record(kernels::OpTable inner);

  /// What was recorded, by the names of the packed tensors, ascending. Tensors that were joined
  /// have the same inputs. Without those that no row reached.
  std::vector<models::InputSums> sums() const;

 private:
  struct Records;
  struct State;
  std::unique_ptr<Records> records_;
};

}  // namespace hearth::worker
