#pragma once
// Work that waits, by owner. Owners take turns in ascending order, one piece per turn, so that one
// owner's many pieces do not delay another's single one; an owner's own pieces stay in order of
// arrival. Used by one thread.

#include <deque>
#include <map>
#include <optional>
#include <utility>

namespace hearth {

template <class Owner, class Work>
class Turns {
 public:
  using Piece = std::pair<Owner, Work>;

  bool empty() const { return waiting_.empty(); }
  void add(const Owner& owner, Work work) { waiting_[owner].push_back(std::move(work)); }

  /// The piece whose turn it is; nothing if none waits.
  std::optional<Piece> take() {
    return take_if([](const Owner&, const Work&) { return true; });
  }
  /// The same among the owners whose first piece `fits(owner, piece)`.
  template <class Fits>
  std::optional<Piece> take_if(Fits fits) {
    const auto first = waiting_.upper_bound(last_);
    for (auto turn = first; turn != waiting_.end(); ++turn) {
      if (fits(turn->first, turn->second.front())) return take_from(turn);
    }
    for (auto turn = waiting_.begin(); turn != first; ++turn) {
      if (fits(turn->first, turn->second.front())) return take_from(turn);
    }
    return std::nullopt;
  }

 private:
  using Waiting = std::map<Owner, std::deque<Work>>;

  Piece take_from(typename Waiting::iterator turn) {
    Piece piece(turn->first, std::move(turn->second.front()));
    turn->second.pop_front();
    last_ = piece.first;
    if (turn->second.empty()) waiting_.erase(turn);
    return piece;
  }

  Waiting waiting_;  // no list is empty
  Owner last_{};     // the owner of the last turn
};

}  // namespace hearth
