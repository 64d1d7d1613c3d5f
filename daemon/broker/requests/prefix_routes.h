#pragma once
// Which of a model's workers have computed the beginning of a prompt, by what they were sent. A
// prompt is cut into pieces of its text as the client sends it, because the broker has no tokens;
// the hash of a piece covers all pieces before it. What a worker has evicted since is not known
// here: then its part of the prefix comes from the store, or is computed again. Owned by the io
// thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ipc/schema/requests.h"

namespace hearth::broker {

class PrefixRoutes {
 public:
  /// Of the pieces of a prompt, the first ones of a long prompt. Empty: the prompt is shorter than
  /// a piece, or caches nothing. `owner` shares prefixes with no other owner, unless the request
  /// does.
  static std::vector<uint64_t> chain(const ipc::ComputeRequest& request, std::string_view owner);

  /// The worker is sent a prompt of these pieces.
  void note(std::span<const uint64_t> chain, size_t worker);
  /// How many of the first pieces this worker was sent.
  int32_t known(std::span<const uint64_t> chain, size_t worker) const;
  /// The worker's memory is gone.
  void forget(size_t worker);

 private:
  using Workers = std::unordered_map<uint64_t, uint32_t>;  // one bit for each, up to kMaxReplicas
  uint32_t workers_of(uint64_t piece) const;

  // Once the newer half is full, it becomes the older one, whose pieces are forgotten.
  Workers newer_;
  Workers older_;
};

/// A worker that a request may go to.
struct RouteChoice {
  bool ready = false;
  int32_t requests = 0;  ///< that wait for it or run on it
  int32_t known = 0;     ///< see PrefixRoutes
};
/// The worker that knows most of the prompt, unless its queue is much longer than the shortest;
/// then that one, which learns the prefix. Workers that are not ready are chosen if none is.
/// `choices` is not empty.
size_t choose_route(std::span<const RouteChoice> choices);

}  // namespace hearth::broker
