#pragma once
// Which tokens may come next: a grammar over a vocabulary. A state is a set of places in the
// grammar, each with the rules to return to. States are computed when they are first reached,
// numbered, and kept with their transitions and masks, so a state that is reached again costs one
// lookup.
//
// A state's number never changes its meaning: sequences keep theirs by value, going back one token
// means using the previous state, and the samples of a request share all states. Used by one thread
// at a time: made in `prep`, then by the engine.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/grammar/token_trie.h"

namespace hearth::engine {

class Constraint {
 public:
  /// Bounds of what is kept; a text that needs more than the first ends its request.
  static constexpr size_t kMaxStates = 40'000;
  static constexpr size_t kMaxMaskBytes = 32u << 20;
  static constexpr int32_t kStart = 0;
  static constexpr int32_t kDead = -1;  ///< no text can continue from here

  /// `skip_space`: the text may begin with one space, which is removed before it is shown.
  Constraint(Grammar grammar, std::shared_ptr<const TokenTrie> trie, bool skip_space = false);

  int32_t advance_byte(int32_t state, uint8_t byte);
  /// kDead if the token is not allowed.
  int32_t advance(int32_t state, int32_t token);
  /// Whether the text may end here.
  bool accepts(int32_t state) const { return states_[state].accepts; }

  /// Bit `id % 64` of word `id / 64`: token `id` may come next. Valid until the next call of any
  /// other state.
  struct Mask {
    std::vector<uint64_t> bits;
    int64_t count = 0;
  };
  const Mask& mask(int32_t state);

  /// kMaxStates are reached: every further state is dead. Any thread may call this.
  bool full() const { return full_.load(std::memory_order_relaxed); }
  size_t num_states() const { return states_.size(); }

 private:
  /// A place in the grammar: a node, and where to continue when its rule is complete.
  struct Place {
    int32_t node = 0;
    int32_t stack = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct State {
    std::vector<Place> places;  ///< sorted; nodes that take bytes
    bool accepts = false;
    std::unique_ptr<std::array<int32_t, 256>> steps;
  };

  int32_t push(int32_t node, int32_t stack);
  int32_t state_of(const std::vector<Place>& from);

  const Grammar grammar_;
  const std::shared_ptr<const TokenTrie> trie_;
  std::vector<Place> stacks_;  ///< by number: the node to continue at, and the rest; 0 is empty
  std::unordered_map<uint64_t, int32_t> stack_numbers_;
  std::vector<State> states_;
  std::unordered_map<std::string, int32_t> state_numbers_;
  std::unordered_map<int32_t, std::unique_ptr<Mask>> masks_;
  size_t mask_bytes_ = 0;
  std::atomic<bool> full_ = false;
};

}  // namespace hearth::engine
