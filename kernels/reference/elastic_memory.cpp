#include "kernels/ops/elastic_memory.h"

#include "kernels/host/host_memory.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {

const ElasticMemory kElasticMemory = {
    .granule = kHugePage,
    .reserve = [](void*, size_t bytes) { return reserve_host(bytes); },
    .release = [](void*, std::byte* memory, size_t bytes) { release_reserved_host(memory, bytes); },
    .back = [](void*, std::byte* begin, size_t bytes) { return back_host(begin, bytes); },
    .give_back = [](void*, std::byte* begin, size_t bytes) { give_back_host(begin, bytes); },
};

}  // namespace hearth::kernels::reference
