#pragma once
// An op table that takes weights in without taking them: it knows their sizes. With it a model file
// is opened as the engine would open it, every key and tensor checked by its own family, and no
// byte of a matrix is read. No op of it may be called.

#include "kernels/ops.h"

namespace hearth::worker {

/// Vectors (norms, biases) are held, being small; a matrix is its shape. Weight::bytes are those
/// that the CPU's table would take.
kernels::OpTable measuring_ops();

}  // namespace hearth::worker
