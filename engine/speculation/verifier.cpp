#include "engine/speculation/verifier.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace hearth::engine {
namespace {

double probability_of(std::span<const TokenProbability> from, int32_t token) {
  const auto found = std::ranges::lower_bound(from, token, {}, &TokenProbability::token);
  return found != from.end() && found->token == token ? found->probability : 0.0;
}

}  // namespace

Verdict verify_by_rejection(std::span<const TokenProbability> q,
                            std::span<const TokenProbability> p, int32_t drafted,
                            double accept_noise, double draw_noise) {
  HEARTH_CHECK(!q.empty(), "no token can be drawn");
  // accept_noise < q / p, without dividing by what may be 0.
  if (accept_noise * probability_of(p, drafted) < probability_of(q, drafted))
    return {true, drafted};
  const auto excess = [p](const TokenProbability& entry) {
    return std::max(0.0, entry.probability - probability_of(p, entry.token));
  };
  double total = 0;
  for (const TokenProbability& entry : q) total += excess(entry);
  // Where q and p are equal but for rounding, nothing is left over and q itself is drawn from.
  const bool none = total <= 0;
  double left = draw_noise * (none ? 1.0 : total);
  int32_t last = q.back().token;
  for (const TokenProbability& entry : q) {
    const double weight = none ? entry.probability : excess(entry);
    if (weight <= 0) continue;
    last = entry.token;
    left -= weight;
    if (left < 0) break;
  }
  return {false, last};
}

}  // namespace hearth::engine
