#include "engine/store/keyed_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace hearth::engine {
namespace {

HashUpdate best_update() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return hash_update_avx2;
#endif
  return hash_update_plain;
}

const HashUpdate kUpdate = best_update();

}  // namespace

struct KeyedHash::State {
  XXH3_state_t xxh3;
};

KeyedHash::KeyedHash(std::span<const std::byte> secret) : state_(new State) {
  ::XXH3_128bits_reset_withSecret(&state_->xxh3, secret.data(), secret.size());
}
KeyedHash::~KeyedHash() = default;
KeyedHash::KeyedHash(KeyedHash&&) noexcept = default;
KeyedHash& KeyedHash::operator=(KeyedHash&&) noexcept = default;

void KeyedHash::bytes(std::span<const std::byte> data) {
  if (!data.empty()) kUpdate(&state_->xxh3, data.data(), data.size());
}

Hash128 KeyedHash::digest() const {
  const XXH128_hash_t digest = ::XXH3_128bits_digest(&state_->xxh3);
  return {digest.low64, digest.high64};
}

void hash_update_plain(void* state, const void* data, size_t size) {
  ::XXH3_128bits_update(static_cast<XXH3_state_t*>(state), data, size);
}

}  // namespace hearth::engine
