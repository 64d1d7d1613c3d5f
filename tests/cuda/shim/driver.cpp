// The driver's virtual memory management on the CPU: addresses are pages without access, and memory
// is what mprotect allows. Its size counts as the device's memory in use.

#include <cuda.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <string_view>

#include "tests/cuda/shim/block.h"

namespace {

constexpr size_t kGranule = size_t{2} << 20;

struct Reservation {
  size_t bytes;
  size_t backed = 0;
};
/// By address; those of mappings and their handles, which outlive their release while mapped.
std::map<CUdeviceptr, Reservation> reservations;
std::map<CUdeviceptr, CUmemGenericAllocationHandle> mappings;
std::map<CUmemGenericAllocationHandle, int> references;

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

bool whole(CUdeviceptr address, size_t size) {
  return size > 0 && address % kGranule == 0 && size % kGranule == 0;
}

CUresult drop(CUmemGenericAllocationHandle handle) {
  const auto it = references.find(handle);
  if (it == references.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--it->second > 0) return CUDA_SUCCESS;
  references.erase(it);
  hearth::shim::return_device_bytes(kGranule);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *granularity = kGranule;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr,
                             unsigned long long) {
  if (alignment > kGranule || !whole(0, size)) return CUDA_ERROR_INVALID_VALUE;
  // One granule more, for the alignment.
  void* found =
      mmap(nullptr, size + kGranule, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto begin = reinterpret_cast<CUdeviceptr>(found);
  *address = (begin + kGranule - 1) / kGranule * kGranule;
  reservations[*address] = {size};
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  const auto it = reservations.find(address);
  if (it == reservations.end() || it->second.bytes != size) return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = mappings.lower_bound(address);
  if (mapped != mappings.end() && mapped->first < address + size) return CUDA_ERROR_INVALID_VALUE;
  munmap(pointer(address), size);
  reservations.erase(it);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* properties, unsigned long long) {
  static CUmemGenericAllocationHandle last = 0;
  if (size != kGranule || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!hearth::shim::take_device_bytes(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = ++last;
  references[*handle] = 1;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) { return drop(handle); }

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  if (!whole(address, size) || offset != 0 || !references.contains(handle) ||
      mappings.contains(address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++references[handle];
  mappings[address] = handle;
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  const auto it = mappings.find(address);
  // Of memory that queued work may use, as a device would not notice.
  if (size != kGranule || it == mappings.end() || !hearth::shim::device_idle()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  madvise(pointer(address), size, MADV_DONTNEED);
  mprotect(pointer(address), size, PROT_NONE);
  const CUresult result = drop(it->second);
  mappings.erase(it);
  return result;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* access, size_t) {
  if (!whole(address, size) || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (CUdeviceptr at = address; at < address + size; at += kGranule) {
    if (!mappings.contains(at)) return CUDA_ERROR_INVALID_VALUE;
  }
  mprotect(pointer(address), size, PROT_READ | PROT_WRITE);
  std::memset(pointer(address), 0xff, size);  // NaN until it is written
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  const std::map<std::string_view, void*> all = {
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&cuMemGetAllocationGranularity)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(&cuMemAddressReserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(&cuMemAddressFree)},
      {"cuMemCreate", reinterpret_cast<void*>(&cuMemCreate)},
      {"cuMemRelease", reinterpret_cast<void*>(&cuMemRelease)},
      {"cuMemMap", reinterpret_cast<void*>(&cuMemMap)},
      {"cuMemUnmap", reinterpret_cast<void*>(&cuMemUnmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(&cuMemSetAccess)}};
  const auto it = all.find(symbol);
  *status = it == all.end() ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  *function = it == all.end() ? nullptr : it->second;
  return cudaSuccess;
}
