// Compiled for AVX2, called only where it is. All of xxhash.h is static here: nothing of it can be
// taken for the portable code of another file.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>

namespace hearth::engine {

void hash_update_avx2(void* state, const void* data, size_t size) {
  ::XXH3_128bits_update(static_cast<XXH3_state_t*>(state), data, size);
}

}  // namespace hearth::engine
