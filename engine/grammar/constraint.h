#pragma once
// Which tokens may come next: a grammar over a vocabulary. The states of the text so far are found
// as they are met (sets of places in the grammar, each with the rules to come back to), numbered,
// and remembered with their steps and masks; so a state that was met before costs a look.
//
// A state is a number that never changes its meaning: sequences keep theirs by value, a token taken
// back is the state before it, and samples of one request share all that was found. Used by one
// thread at a time: made in `prep`, then the engine's.

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
  /// Bounds of what is remembered; a text that leads over the first ends its request.
  static constexpr size_t kMaxStates = 40'000;
  static constexpr size_t kMaxMaskBytes = 32u << 20;
  static constexpr int32_t kStart = 0;
  static constexpr int32_t kDead = -1;  ///< no text goes on from here

  /// `skip_space`: one space may stand in front, which whoever shows the text takes off.
  Constraint(Grammar grammar, std::shared_ptr<const TokenTrie> trie, bool skip_space = false);

  int32_t advance_byte(int32_t state, uint8_t byte);
  /// kDead where the token is not allowed.
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

  /// Over kMaxStates: everything from there on is dead. Any thread may ask.
  bool full() const { return full_.load(std::memory_order_relaxed); }
  size_t num_states() const { return states_.size(); }

 private:
  /// A place in the grammar: a node, and where to go on once its rule is met.
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
  std::vector<Place> stacks_;  ///< by number: the node to go on at, and the rest; 0 is empty
  std::unordered_map<uint64_t, int32_t> stack_numbers_;
  std::vector<State> states_;
  std::unordered_map<std::string, int32_t> state_numbers_;
  std::unordered_map<int32_t, std::unique_ptr<Mask>> masks_;
  size_t mask_bytes_ = 0;
  std::atomic<bool> full_ = false;
};

}  // namespace hearth::engine
