#include "engine/grammar/constraint.h"

#include <algorithm>
#include <unordered_set>

#include "kernels/base/chars.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

constexpr int32_t kUnknown = -2;
/// Most places examined for one state; a grammar that needs more is treated as too large.
constexpr size_t kMaxPlaces = 50'000;
constexpr size_t kMaxStacks = 1 << 20;

uint64_t pair_key(int32_t high, int32_t low) {
  return uint64_t{static_cast<uint32_t>(high)} << 32 | static_cast<uint32_t>(low);
}

}  // namespace

Constraint::Constraint(Grammar grammar, std::shared_ptr<const TokenTrie> trie, bool skip_space)
    : grammar_(std::move(grammar)), trie_(std::move(trie)) {
  stacks_.push_back({});  // the empty one
  // Unless nothing at all matches, this is state 0.
  if (state_of({{grammar_.first(0), 0}}) != kStart) {
    states_.clear();
    states_.emplace_back();
  }
  if (!skip_space) return;
  // A separate start state that is never reached again, so only one space is skipped.
  std::vector<Place> places = states_.front().places;
  const bool accepts = states_.front().accepts;
  const auto plain = size32(states_);
  states_.push_back({std::move(places), accepts, nullptr});
  for (auto& [key, number] : state_numbers_) {
    if (number == kStart) number = plain;
  }
  advance_byte(kStart, ' ');  // makes the row
  (*states_.front().steps)[byte_of(' ')] = plain;
}

int32_t Constraint::push(int32_t node, int32_t stack) {
  // A rule that ends where its caller's does comes back to the caller's caller at once: so a list
  // written as a rule that ends with itself needs no ever deeper stack.
  int32_t at = node;
  while (!grammar_.is_end(at)) {
    const auto& edges = grammar_.edges(at);
    if (edges.size() != 1 || edges[0].type != Grammar::Edge::Type::kNothing) break;
    at = edges[0].to;
  }
  if (grammar_.is_end(at)) return stack;
  const uint64_t key = pair_key(node, stack);
  const auto [found, is_new] = stack_numbers_.emplace(key, size32(stacks_));
  if (is_new) stacks_.push_back({node, stack});
  return found->second;
}

int32_t Constraint::state_of(const std::vector<Place>& from) {
  std::vector<Place> todo, places;
  std::unordered_set<uint64_t> known;
  const auto add = [&known, &todo](Place place) {
    if (known.insert(pair_key(place.node, place.stack)).second) todo.push_back(place);
  };
  for (const Place& place : from) add(place);
  bool accepts = false;
  for (size_t i = 0; i < todo.size(); ++i) {
    if (todo.size() > kMaxPlaces || stacks_.size() > kMaxStacks) {
      full_ = true;
      return kDead;
    }
    const Place place = todo[i];
    if (grammar_.is_end(place.node)) {
      if (place.stack == 0) {
        accepts = true;
      } else {
        add(stacks_[place.stack]);
      }
      continue;
    }
    bool takes_bytes = false;
    for (const Grammar::Edge& edge : grammar_.edges(place.node)) {
      switch (edge.type) {
        case Grammar::Edge::Type::kBytes: takes_bytes = true; break;
        case Grammar::Edge::Type::kNothing: add({edge.to, place.stack}); break;
        case Grammar::Edge::Type::kRule:
          add({grammar_.first(edge.rule), push(edge.to, place.stack)});
          break;
      }
    }
    if (takes_bytes) places.push_back(place);
  }
  if (places.empty() && !accepts) return kDead;
  std::ranges::sort(places);
  std::string key(reinterpret_cast<const char*>(places.data()), places.size() * sizeof(Place));
  key.push_back(accepts ? '1' : '0');
  const auto found = state_numbers_.find(key);
  if (found != state_numbers_.end()) return found->second;
  if (states_.size() >= kMaxStates) {
    full_ = true;
    return kDead;
  }
  const auto number = size32(states_);
  state_numbers_.emplace(std::move(key), number);
  states_.push_back({std::move(places), accepts, nullptr});
  return number;
}

int32_t Constraint::advance_byte(int32_t state, uint8_t byte) {
  {
    State& from = states_[state];
    if (from.steps == nullptr) {
      from.steps = std::make_unique<std::array<int32_t, 256>>();
      from.steps->fill(kUnknown);
    }
    if ((*from.steps)[byte] != kUnknown) return (*from.steps)[byte];
  }
  std::vector<Place> to;
  for (const Place& place : states_[state].places) {
    for (const Grammar::Edge& edge : grammar_.edges(place.node)) {
      if (edge.type != Grammar::Edge::Type::kBytes || byte < edge.low || byte > edge.high) continue;
      to.push_back({edge.to, place.stack});
    }
  }
  const int32_t number = to.empty() ? kDead : state_of(to);
  (*states_[state].steps)[byte] = number;
  return number;
}

int32_t Constraint::advance(int32_t state, int32_t token) {
  const std::string_view piece = trie_->piece(token);
  if (piece.empty()) return kDead;
  for (const char c : piece) {
    if (state == kDead) break;
    state = advance_byte(state, byte_of(c));
  }
  return state;
}

const Constraint::Mask& Constraint::mask(int32_t state) {
  const auto found = masks_.find(state);
  if (found != masks_.end()) return *found->second;
  const size_t words = (trie_->vocab_size() + 63) / 64;
  if (mask_bytes_ + words * 8 > kMaxMaskBytes) {
    masks_.clear();
    mask_bytes_ = 0;
  }
  auto mask = std::make_unique<Mask>();
  mask->bits.assign(words, 0);
  const std::span<const TokenTrie::Node> nodes = trie_->nodes();
  const std::span<const int32_t> tokens = trie_->tokens();
  std::vector<int32_t> at(trie_->max_bytes() + 1, kDead);  // by depth
  at[0] = state;
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const int32_t next = advance_byte(at[node.depth], node.byte);
    if (next == kDead) {
      i = node.after;
      continue;
    }
    at[node.depth + 1u] = next;
    for (int32_t t = node.tokens_begin; t < node.tokens_end; ++t) {
      const size_t id = tokens[t];
      mask->bits[id / 64] |= uint64_t{1} << (id % 64);
      ++mask->count;
    }
    ++i;
  }
  mask_bytes_ += words * 8;
  return *masks_.emplace(state, std::move(mask)).first->second;
}

}  // namespace hearth::engine
