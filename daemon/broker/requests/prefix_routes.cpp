#include "daemon/broker/requests/prefix_routes.h"

#include <algorithm>
#include <functional>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/base/numbers.h"

namespace hearth::broker {
namespace {

constexpr size_t kPieceBytes = 256;
constexpr size_t kMaxPieces = 1024;
/// Of each half: a few megabytes.
constexpr size_t kMaxKnown = size_t{1} << 16;
/// Requests by which a worker's queue may exceed the shortest one before prefixes no longer count.
constexpr int32_t kLongerQueue = 2;

uint64_t mixed(uint64_t hash, std::string_view text) {
  return (hash ^ std::hash<std::string_view>{}(text)) * 0x9E3779B97F4A7C15u;
}

/// Hashes of the pieces of several texts, one after the other.
class Pieces {
 public:
  explicit Pieces(uint64_t hash) : hash_(hash) {}

  void add(std::string_view text) {
    while (!text.empty() && out_.size() < kMaxPieces) {
      const size_t bytes = std::min(text.size(), kPieceBytes - piece_.size());
      piece_.append(text.substr(0, bytes));
      text.remove_prefix(bytes);
      if (piece_.size() < kPieceBytes) return;
      hash_ = mixed(hash_, piece_);
      out_.push_back(hash_);
      piece_.clear();
    }
  }
  std::vector<uint64_t> take() { return std::move(out_); }

 private:
  uint64_t hash_;
  std::string piece_;
  std::vector<uint64_t> out_;
};

}  // namespace

std::vector<uint64_t> PrefixRoutes::chain(const ipc::ComputeRequest& request,
                                          std::string_view owner) {
  const auto* generate = std::get_if<ipc::GenerateRequest>(&request);
  if (generate == nullptr || generate->cache == "off") return {};
  uint64_t root = mixed(0, generate->cache_share.empty() ? owner : generate->cache_share);
  root = mixed(root, generate->adapter);
  Pieces pieces(root);
  pieces.add(generate->tools.text);
  pieces.add(generate->messages.text);
  pieces.add(generate->prompt);
  const auto ids = std::as_bytes(std::span(generate->prompt_ids));
  pieces.add({reinterpret_cast<const char*>(ids.data()), ids.size()});
  return pieces.take();
}

void PrefixRoutes::note(std::span<const uint64_t> chain, size_t worker) {
  if (newer_.size() > kMaxKnown) older_ = std::exchange(newer_, {});
  for (const uint64_t piece : chain) newer_[piece] = workers_of(piece) | (1u << worker);
}

int32_t PrefixRoutes::known(std::span<const uint64_t> chain, size_t worker) const {
  const auto unknown = std::ranges::find_if(
      chain, [&](uint64_t piece) { return (workers_of(piece) >> worker & 1) == 0; });
  return narrow<int32_t>(unknown - chain.begin());
}

void PrefixRoutes::forget(size_t worker) {
  for (Workers* half : {&newer_, &older_}) {
    for (auto& [piece, workers] : *half) workers &= ~(1u << worker);
  }
}

uint32_t PrefixRoutes::workers_of(uint64_t piece) const {
  for (const Workers* half : {&newer_, &older_}) {
    if (const auto found = half->find(piece); found != half->end()) return found->second;
  }
  return 0;
}

size_t choose_route(std::span<const RouteChoice> choices) {
  const bool any_ready = std::ranges::any_of(choices, &RouteChoice::ready);
  int32_t shortest = INT32_MAX;
  for (const RouteChoice& choice : choices) {
    if (choice.ready == any_ready) shortest = std::min(shortest, choice.requests);
  }
  size_t best = 0;
  auto best_rank = std::tuple(false, false, 0, 0);
  for (size_t i = 0; i < choices.size(); ++i) {
    const RouteChoice& choice = choices[i];
    const bool near = choice.requests <= shortest + kLongerQueue;
    const auto rank =
        std::tuple(choice.ready == any_ready, near, near ? choice.known : 0, -choice.requests);
    if (i > 0 && rank <= best_rank) continue;
    best = i;
    best_rank = rank;
  }
  return best;
}

}  // namespace hearth::broker
