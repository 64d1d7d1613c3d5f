#pragma once
// How long users' requests ask a model to stay in memory (Ollama's `keep_alive`), and what of that
// is granted so that no user disturbs another. Pure; owned by the io thread.

#include <cstdint>
#include <optional>

namespace hearth::broker {

/// Of one model, from its load until its worker has stopped.
class AskedStay {
 public:
  /// A request of this user uses the model.
  void note_user(uint32_t owner) {
    shared_ = shared_ || (owner_ && *owner_ != owner);
    owner_ = owner;
  }
  /// An administrator has loaded it, for all users.
  void note_administrator() { shared_ = true; }
  /// A user asks it to stay for `ms` without requests. 0: it leaves once it is idle; below 0: it
  /// stays as long as it may. Counts until the next call.
  void ask(uint32_t owner, int64_t ms) {
    note_user(owner);
    asked_ms_ = ms;
  }

  /// The time without requests after which it leaves; 0: never. `configured_ms` is that time
  /// without any wish; a longer one is granted up to `most_ms`, a shorter one while no other user
  /// has used the model.
  int64_t granted_ms(int64_t configured_ms, int64_t most_ms) const;
  /// Whether the last wish changes nothing although it differs from what is configured.
  bool denied(int64_t configured_ms, int64_t most_ms) const;
  bool shared() const { return shared_; }

 private:
  std::optional<uint32_t> owner_;
  bool shared_ = false;
  std::optional<int64_t> asked_ms_;
};

}  // namespace hearth::broker
