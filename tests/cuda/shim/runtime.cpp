// The runtime API of the shim: memory from the heap, one queue of work per stream that runs when a
// caller waits for it, capture into a graph that can be launched again.

#include <cuda_runtime.h>
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "tests/cuda/shim/block.h"
#include "tests/cuda/shim/shim.h"

using hearth::shim::Machine;
using hearth::shim::Order;

using Work = std::function<cudaError_t()>;

struct cudaGraphImpl {
  std::vector<Work> work;
  size_t device_bytes = 0;  // of an instantiated graph
};
struct cudaStreamImpl {
  std::deque<Work> queue;
  std::unique_ptr<cudaGraphImpl> capture;  // set while capturing
};

namespace {

/// One record of an event. Outlives the event in the streams that wait for it.
struct Record {
  cudaStream_t stream = nullptr;
  bool reached = true;
  std::chrono::steady_clock::time_point at{};  ///< when it was
};

}  // namespace

struct cudaEventImpl {
  unsigned flags = 0;
  std::shared_ptr<Record> last = std::make_shared<Record>();
};

namespace {

struct Runtime {
  std::recursive_mutex mutex;
  Machine machine;
  Order order{0};
  std::map<void*, size_t> memory;
  std::map<const std::byte*, size_t> host_memory;  // page-locked
  std::vector<cudaStreamImpl*> streams;
  size_t bytes_in_use = 0;
  int64_t calls = 0;
  int64_t fail_at = 0;
  int64_t refuse_in = 0;  // allocations; 0: none is refused
  int64_t refuse_graphs = 0;
  int64_t refuse_uploads = 0;
  int64_t launches = 0;
  int64_t graph_launches = 0;
  int64_t bytes_to_host = 0;
  cudaError_t fail_with = cudaSuccess;
  cudaError_t sticky = cudaSuccess;
  std::string failure;
};

Runtime& runtime() {
  static Runtime instance;
  return instance;
}

/// Every entry point: counts the call and returns the planned or the sticky error.
class Call {
 public:
  Call() : lock_(runtime().mutex) {
    Runtime& r = runtime();
    error_ = ++r.calls == r.fail_at ? r.fail_with : r.sticky;
  }
  cudaError_t error() const { return error_; }

 private:
  std::lock_guard<std::recursive_mutex> lock_;
  cudaError_t error_;
};

#define SHIM_CALL() \
  Call call;        \
  if (call.error() != cudaSuccess) return call.error()

cudaError_t device_error() {
  const Machine& machine = runtime().machine;
  if (machine.driver_version < 13000) return cudaErrorInsufficientDriver;
  return machine.device_count == 0 ? cudaErrorNoDevice : cudaSuccess;
}

void run_front(cudaStream_t stream) {
  const Work item = std::move(stream->queue.front());
  stream->queue.pop_front();
  // May run the work of other streams if it waits for them.
  const cudaError_t error = runtime().sticky == cudaSuccess ? item() : cudaSuccess;
  if (runtime().sticky == cudaSuccess) runtime().sticky = error;
}

cudaError_t drain(cudaStream_t stream) {
  if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  while (!stream->queue.empty()) run_front(stream);
  return runtime().sticky;
}

/// Runs the stream up to that record.
cudaError_t reach(const Record& record) {
  const auto& streams = runtime().streams;
  while (!record.reached) {
    const bool there = std::find(streams.begin(), streams.end(), record.stream) != streams.end();
    if (!there || record.stream->queue.empty()) break;  // reset
    run_front(record.stream);
  }
  return runtime().sticky;
}

cudaError_t drain_all() {
  for (cudaStream_t stream : runtime().streams) {
    if (const cudaError_t error = drain(stream); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

void enqueue(cudaStream_t stream, Work work) {
  if (stream->capture != nullptr) return stream->capture->work.push_back(std::move(work));
  stream->queue.push_back(std::move(work));
}

/// Whether a copy reads or writes `at` when the stream reaches it, not during the call.
bool page_locked(const void* at) {
  const auto* byte = static_cast<const std::byte*>(at);
  const auto& all = runtime().host_memory;
  auto it = all.upper_bound(byte);
  if (it == all.begin()) return false;
  --it;
  return byte < it->first + it->second;
}

/// Per kernel, where it is not the usual.
std::unordered_map<const void*, size_t>& most_shared() {
  static std::unordered_map<const void*, size_t> bytes;
  return bytes;
}

bool valid(const cudaLaunchConfig_t& config, size_t most_shared_bytes) {
  const auto positive = [](const dim3& d) { return d.x > 0 && d.y > 0 && d.z > 0; };
  // Blocks of whole warps in one dimension, which is all that hearth's kernels use and block.h
  // runs.
  return positive(config.gridDim) && positive(config.blockDim) && config.gridDim.x <= 0x7fffffffu &&
         config.gridDim.y <= 65535 && config.gridDim.z <= 65535 && config.blockDim.x <= 1024 &&
         config.blockDim.x % 32 == 0 && config.blockDim.y == 1 && config.blockDim.z == 1 &&
         config.dynamicSmemBytes <= most_shared_bytes;
}

cudaError_t run_grid(const cudaLaunchConfig_t& config, const std::function<void()>& thread) {
  Runtime& r = runtime();
  const dim3 grid = config.gridDim;
  std::vector<uint64_t> blocks(uint64_t{grid.x} * grid.y * grid.z);
  std::iota(blocks.begin(), blocks.end(), uint64_t{0});
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::swap(blocks[i], blocks[i + r.order.pick(blocks.size() - i)]);
    const uint64_t b = blocks[i];
    const uint3 index = {static_cast<unsigned>(b % grid.x),
                         static_cast<unsigned>(b / grid.x % grid.y),
                         static_cast<unsigned>(b / grid.x / grid.y)};
    r.failure = hearth::shim::run_block(config, index, thread, r.order);
    if (!r.failure.empty()) return cudaErrorLaunchFailure;
  }
  return cudaSuccess;
}

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText& error_text(cudaError_t error) {
  for (const ErrorText& entry : kErrors) {
    if (entry.error == error) return entry;
  }
  static constexpr ErrorText kOther = {cudaErrorUnknown, "cudaError", "another error"};
  return kOther;
}

}  // namespace

namespace hearth::shim {

void set_order(uint64_t seed) {
  std::lock_guard lock(runtime().mutex);
  runtime().order = Order(seed);
}

void set_machine(const Machine& machine) {
  std::lock_guard lock(runtime().mutex);
  runtime().machine = machine;
}

void fail_call(int64_t nth, cudaError_t error) {
  std::lock_guard lock(runtime().mutex);
  runtime().fail_at = nth == 0 ? 0 : runtime().calls + nth;
  runtime().fail_with = error;
}

void fail_allocation(int64_t nth) {
  std::lock_guard lock(runtime().mutex);
  runtime().refuse_in = nth;
}

void fail_instantiations(int64_t count) {
  std::lock_guard lock(runtime().mutex);
  runtime().refuse_graphs = count;
}

void fail_uploads(int64_t count) {
  std::lock_guard lock(runtime().mutex);
  runtime().refuse_uploads = count;
}

int64_t num_calls() { return runtime().calls; }
int64_t num_launches() { return runtime().launches; }
int64_t num_graph_launches() { return runtime().graph_launches; }
int64_t num_bytes_to_host() { return runtime().bytes_to_host; }
size_t bytes_in_use() { return runtime().bytes_in_use; }
const std::string& last_failure() { return runtime().failure; }

void reset() {
  std::lock_guard lock(runtime().mutex);
  Runtime& r = runtime();
  r.sticky = cudaSuccess;
  r.failure.clear();
  r.fail_at = 0;
  r.refuse_in = 0;
  r.refuse_graphs = 0;
  r.refuse_uploads = 0;
  for (cudaStream_t stream : r.streams) stream->queue.clear();
}

cudaError_t function_attributes() {
  SHIM_CALL();
  return runtime().machine.image;
}

void set_most_shared(const void* kernel, int bytes) {
  most_shared()[kernel] = static_cast<size_t>(bytes);
}

cudaError_t enqueue_launch(const void* kernel, const cudaLaunchConfig_t& config,
                           std::function<void()> thread) {
  SHIM_CALL();
  const auto most = most_shared().find(kernel);
  if (!valid(config, most == most_shared().end() ? size_t{48} * 1024 : most->second))
    return cudaErrorInvalidConfiguration;
  ++runtime().launches;
  enqueue(config.stream, [config, thread = std::move(thread)] { return run_grid(config, thread); });
  return cudaSuccess;
}

}  // namespace hearth::shim

const char* cudaGetErrorName(cudaError_t error) { return error_text(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return error_text(error).text; }
cudaError_t cudaGetLastError() { return runtime().sticky; }

cudaError_t cudaDriverGetVersion(int* version) {
  SHIM_CALL();
  *version = runtime().machine.driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  SHIM_CALL();
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  SHIM_CALL();
  if (const cudaError_t error = device_error(); error != cudaSuccess) return error;
  *count = runtime().machine.device_count;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  SHIM_CALL();
  const bool known = device >= 0 && device < runtime().machine.device_count;
  return known ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDevice(int* device) {
  SHIM_CALL();
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  SHIM_CALL();
  const Machine& machine = runtime().machine;
  if (device < 0 || device >= machine.device_count) return cudaErrorInvalidDevice;
  *properties = {
      "CUDA on the CPU", machine.memory_bytes, machine.major, machine.minor, 2, 0, 0x65, 0};
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  SHIM_CALL();
  *total_bytes = runtime().machine.memory_bytes;
  *free_bytes = *total_bytes - runtime().bytes_in_use;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  SHIM_CALL();
  Runtime& r = runtime();
  for (cudaStream_t stream : r.streams) {
    if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  }
  if (r.refuse_in > 0 && --r.refuse_in == 0) return cudaErrorMemoryAllocation;
  if (bytes > r.machine.memory_bytes - r.bytes_in_use) return cudaErrorMemoryAllocation;
  // The device's alignment is 256; the heap's red zone begins directly after the last byte.
  void* block = nullptr;
  if (posix_memalign(&block, 256, bytes) != 0) return cudaErrorMemoryAllocation;
  std::memset(block, 0xff, bytes);  // NaN until it is written
  r.memory[block] = bytes;
  r.bytes_in_use += bytes;
  *memory = block;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  SHIM_CALL();
  if (memory == nullptr) return cudaSuccess;
  if (const cudaError_t error = drain_all(); error != cudaSuccess) return error;
  Runtime& r = runtime();
  const auto it = r.memory.find(memory);
  if (it == r.memory.end()) return cudaErrorInvalidValue;
  r.bytes_in_use -= it->second;
  r.memory.erase(it);
  std::free(memory);
  return cudaSuccess;
}

bool hearth::shim::take_device_bytes(size_t bytes) {
  Runtime& r = runtime();
  if (r.refuse_in > 0 && --r.refuse_in == 0) return false;
  if (bytes > r.machine.memory_bytes - r.bytes_in_use) return false;
  r.bytes_in_use += bytes;
  return true;
}

void hearth::shim::return_device_bytes(size_t bytes) { runtime().bytes_in_use -= bytes; }

bool hearth::shim::device_idle() {
  return std::ranges::all_of(runtime().streams,
                             [](cudaStream_t stream) { return stream->queue.empty(); });
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  SHIM_CALL();
  Runtime& r = runtime();
  if (r.refuse_in > 0 && --r.refuse_in == 0) return cudaErrorMemoryAllocation;
  *memory = std::malloc(bytes);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*memory, 0xff, bytes);
  r.host_memory[static_cast<const std::byte*>(*memory)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  SHIM_CALL();
  if (runtime().host_memory.erase(static_cast<const std::byte*>(memory)) == 0) {
    return cudaErrorInvalidValue;
  }
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  SHIM_CALL();
  enqueue(stream, [=] {
    std::memset(memory, value, bytes);
    return cudaSuccess;
  });
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  SHIM_CALL();
  if (kind == cudaMemcpyDeviceToHost) runtime().bytes_to_host += static_cast<int64_t>(bytes);
  if (kind == cudaMemcpyDeviceToDevice || page_locked(kind == cudaMemcpyHostToDevice ? src : dst)) {
    enqueue(stream, [=] {
      std::memcpy(dst, src, bytes);
      return cudaSuccess;
    });
    return cudaSuccess;
  }
  // Pageable host memory is read during the call on the way in, and written before the return on
  // the way out.
  if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  if (kind == cudaMemcpyHostToDevice) {
    const auto* begin = static_cast<const std::byte*>(src);
    enqueue(stream, [dst, staged = std::vector<std::byte>(begin, begin + bytes)] {
      std::memcpy(dst, staged.data(), staged.size());
      return cudaSuccess;
    });
    return cudaSuccess;
  }
  if (const cudaError_t error = drain(stream); error != cudaSuccess) return error;
  std::memcpy(dst, src, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  SHIM_CALL();
  *stream = new cudaStreamImpl;
  runtime().streams.push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Call call;
  // Handles can be destroyed with a failed context, too.
  const cudaError_t error = call.error() != cudaSuccess ? call.error() : drain(stream);
  std::erase(runtime().streams, stream);
  delete stream;
  return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  SHIM_CALL();
  return drain(stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  SHIM_CALL();
  if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  enqueue(stream, [record = event->last] { return reach(*record); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  SHIM_CALL();
  *event = new cudaEventImpl{.flags = flags};
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Call call;
  delete event;
  return call.error();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  SHIM_CALL();
  if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  event->last = std::make_shared<Record>(Record{stream, false});
  enqueue(stream, [record = event->last] {
    record->reached = true;
    record->at = std::chrono::steady_clock::now();
    return cudaSuccess;
  });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  SHIM_CALL();
  const Record& record = *event->last;
  const auto waits = [&record] { return !record.reached && !record.stream->queue.empty(); };
  // Repeated queries let the stream make progress.
  if (waits()) run_front(record.stream);
  if (runtime().sticky != cudaSuccess) return runtime().sticky;
  return waits() ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  SHIM_CALL();
  return reach(*event->last);
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  SHIM_CALL();
  if ((from->flags | to->flags) & cudaEventDisableTiming) return cudaErrorInvalidValue;
  if (!from->last->reached || !to->last->reached) return cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(to->last->at - from->last->at).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  SHIM_CALL();
  stream->capture = std::make_unique<cudaGraphImpl>();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  SHIM_CALL();
  *graph = stream->capture.release();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  SHIM_CALL();
  if (runtime().refuse_graphs > 0) {
    --runtime().refuse_graphs;
    return cudaErrorMemoryAllocation;
  }
  const size_t bytes = runtime().machine.graph_bytes;
  if (bytes > runtime().machine.memory_bytes - runtime().bytes_in_use) {
    return cudaErrorMemoryAllocation;
  }
  runtime().bytes_in_use += bytes;
  *exec = new cudaGraphImpl(*graph);
  (*exec)->device_bytes = bytes;
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  SHIM_CALL();
  if (runtime().refuse_uploads > 0) {
    --runtime().refuse_uploads;
    return cudaErrorMemoryAllocation;
  }
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  SHIM_CALL();
  ++runtime().graph_launches;
  for (const Work& item : exec->work) enqueue(stream, item);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  SHIM_CALL();
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  SHIM_CALL();
  runtime().bytes_in_use -= exec->device_bytes;
  delete exec;
  return cudaSuccess;
}
