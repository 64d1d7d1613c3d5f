#include "kernels/cuda/host/elastic.h"

#include <cuda.h>

#include <set>

#include "kernels/base/check.h"
#include "kernels/cuda/host/check.h"

namespace hearth::kernels {

struct DriverMemory {
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_addresses = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;

  CUmemAllocationProp memory{};
  std::set<std::byte*> backed;  ///< granules of all reservations
};

namespace {

CUdeviceptr address(const std::byte* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

void must(CUresult result, const char* what) {
  HEARTH_CHECK(result == CUDA_SUCCESS, "{}: driver's error {}", what, static_cast<int>(result));
}

template <typename Function>
bool find_entry(const char* name, Function* function) {
  constexpr unsigned kSince = 10020;  // CUDA 10.2
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kSince, cudaEnableDefault, &status);
  if (error != cudaSuccess || status != cudaDriverEntryPointSuccess) return false;
  *function = reinterpret_cast<Function>(found);
  return found != nullptr;
}

ElasticState& elastic_of(void* state) { return static_cast<ElasticState&>(cuda_state(state)); }

/// The range in whole granules.
size_t whole(const ElasticState& state, size_t bytes) {
  const size_t granule = state.elastic.granule;
  return (bytes + granule - 1) / granule * granule;
}

std::byte* reserve(void* opaque, size_t bytes) {
  ElasticState& state = elastic_of(opaque);
  CUdeviceptr found = 0;
  const CUresult result =
      state.driver->reserve(&found, whole(state, bytes), state.elastic.granule, 0, 0);
  return result == CUDA_SUCCESS ? reinterpret_cast<std::byte*>(found) : nullptr;
}

void unmap(ElasticState& state, std::byte* begin, const std::byte* end) {
  state.held.overwrite(begin, end - begin);
  // Queued work may still use the memory.
  HEARTH_CUDA_CHECK(cudaStreamSynchronize(state.stream.get()));
  HEARTH_CUDA_CHECK(cudaStreamSynchronize(state.side.stream.get()));
  for (std::byte* at = begin; at < end; at += state.elastic.granule) {
    if (state.driver->backed.erase(at) == 0) continue;
    must(state.driver->unmap(address(at), state.elastic.granule), "cuMemUnmap");
  }
}

void give_back(void* opaque, std::byte* begin, size_t bytes) {
  unmap(elastic_of(opaque), begin, begin + bytes);
}

void release(void* opaque, std::byte* memory, size_t bytes) {
  give_back(opaque, memory, bytes);
  ElasticState& state = elastic_of(opaque);
  must(state.driver->free_addresses(address(memory), whole(state, bytes)), "cuMemAddressFree");
}

/// Maps a granule to memory of its own, so that each can be given back. False without memory.
bool back_granule(ElasticState& state, std::byte* at) {
  DriverMemory& driver = *state.driver;
  CUmemGenericAllocationHandle handle = 0;
  const CUresult made = driver.create(&handle, state.elastic.granule, &driver.memory, 0);
  if (made == CUDA_ERROR_OUT_OF_MEMORY) return false;
  must(made, "cuMemCreate");
  const CUresult mapped = driver.map(address(at), state.elastic.granule, 0, handle, 0);
  must(driver.release(handle), "cuMemRelease");  // the mapping keeps the memory
  if (mapped == CUDA_ERROR_OUT_OF_MEMORY) return false;
  must(mapped, "cuMemMap");
  driver.backed.insert(at);
  return true;
}

bool back(void* opaque, std::byte* begin, size_t bytes) {
  ElasticState& state = elastic_of(opaque);
  std::byte* const end = begin + whole(state, bytes);
  for (std::byte* at = begin; at < end; at += state.elastic.granule) {
    if (back_granule(state, at)) continue;
    unmap(state, begin, at);
    return false;
  }
  const CUmemAccessDesc access{state.driver->memory.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const CUresult allowed = state.driver->set_access(address(begin), end - begin, &access, 1);
  if (allowed == CUDA_ERROR_OUT_OF_MEMORY) {
    unmap(state, begin, end);
    return false;
  }
  must(allowed, "cuMemSetAccess");
  HEARTH_CUDA_CHECK(cudaMemsetAsync(begin, 0, end - begin, state.stream.get()));
  return true;
}

}  // namespace

ElasticState::ElasticState() : driver(std::make_unique<DriverMemory>()) {}
ElasticState::~ElasticState() = default;

bool open_elastic(ElasticState* state) {
  DriverMemory& driver = *state->driver;
  const bool found =
      find_entry("cuMemAddressReserve", &driver.reserve) &&
      find_entry("cuMemAddressFree", &driver.free_addresses) &&
      find_entry("cuMemCreate", &driver.create) && find_entry("cuMemRelease", &driver.release) &&
      find_entry("cuMemMap", &driver.map) && find_entry("cuMemUnmap", &driver.unmap) &&
      find_entry("cuMemSetAccess", &driver.set_access) &&
      find_entry("cuMemGetAllocationGranularity", &driver.granularity);
  if (!found) return false;
  driver.memory.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  driver.memory.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  driver.memory.location.id = state->device;
  size_t granule = 0;
  if (driver.granularity(&granule, &driver.memory, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) !=
      CUDA_SUCCESS) {
    return false;  // the device has no virtual memory management
  }
  state->elastic = {granule, reserve, release, back, give_back};
  return true;
}

}  // namespace hearth::kernels
