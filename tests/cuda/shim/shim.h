#pragma once
// CUDA kernels on the CPU, as a test of their logic: the .cu files of kernels/ and the host code
// around them are compiled as C++ against the headers of this folder and linked to it in place of
// the CUDA runtime, so `cuda_ops()` fills a whole table without a GPU.
//
// Every CUDA thread is a fiber; one block runs at a time. A fiber runs until a barrier or a
// warp operation, and goes on when the block (the warp's 32 lanes) has arrived. The order in which
// fibers and blocks run comes from a seed: a missing barrier shows as a result that depends on it.
// Reported as a failed launch, with a sentence in `last_failure`: barriers that only a part of the
// block reaches, threads that meet at different lines, warp operations without all 32 lanes.
// Dynamic shared memory and device memory come from the heap (red zones under AddressSanitizer) and
// are filled with NaN patterns first. Streams are asynchronous in earnest: launches and copies
// run at a synchronization or a wait for an event, so host memory that was freed too early is
// seen, and page-locked memory that was written too early.
//
// What it cannot see: real races between two sync points, memory order, occupancy, alignment of
// coalesced access, inline assembly and tensor cores, the device's own expf. It never replaces a
// run on a device.

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

namespace hearth::shim {

/// 0: threads and blocks in ascending order; otherwise pseudo-random from the seed.
void set_order(uint64_t seed);

/// The machine that the runtime's queries report.
struct Machine {
  int driver_version = 13000;  ///< 0: no driver
  int device_count = 1;
  int major = 9;
  int minor = 0;
  size_t memory_bytes = size_t{1} << 30;
  size_t graph_bytes = 0;           ///< that each instantiated graph takes
  cudaError_t image = cudaSuccess;  ///< of cudaFuncGetAttributes: does the build have code for it?
};
void set_machine(const Machine& machine);

/// The nth runtime call from now (1: the next) fails with `error`; 0: none fails.
void fail_call(int64_t nth, cudaError_t error);
/// The nth allocation from now, of device or of page-locked memory, is refused; 0: none is refused.
void fail_allocation(int64_t nth);
/// Runtime calls so far in this process.
int64_t num_calls();
/// The next `count` instantiations of a graph fail for lack of memory.
void fail_instantiations(int64_t count);
/// The same when a graph is uploaded.
void fail_uploads(int64_t count);
/// Kernels launched or captured so far in this process.
int64_t num_launches();
/// Graphs launched so far in this process.
int64_t num_graph_launches();
/// Bytes copied from the device so far in this process.
int64_t num_bytes_to_host();
/// Device bytes allocated and not freed.
size_t bytes_in_use();

/// Why the last kernel failed, e.g. "__syncthreads at rms_norm.cu:31 reached by 16 of 64 threads".
const std::string& last_failure();
/// Clears the failure, which otherwise is sticky as in a failed context, and all queued work.
void reset();

}  // namespace hearth::shim
