// Compiled for AVX2 and called only if the processor has it. All of xxhash.h is static here, so the
// linker cannot use it in place of the portable code of another file.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>

namespace hearth::engine {

void hash_update_avx2(void* state, const void* data, size_t size) {
  ::XXH3_128bits_update(static_cast<XXH3_state_t*>(state), data, size);
}

}  // namespace hearth::engine
