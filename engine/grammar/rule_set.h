#pragma once
// The rules of a grammar under construction, shared by the readers of its parts. Bounded.

#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/grammar.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

class RuleSet {
 public:
  /// kTooLarge over the bound. Rule 0, the first, is the whole text. `name` is for messages.
  Result<int32_t> add(PiecePtr body, std::string name = {}) {
    if (rules_.size() >= kMaxRules) return Error::too_large("too large");
    rules_.push_back(std::move(body));
    names_.push_back(std::move(name));
    return size32(rules_) - 1;
  }
  /// Of a rule that was added without a body.
  void set(int32_t rule, PiecePtr body) { rules_[rule] = std::move(body); }
  /// Null: it was not set.
  const PiecePtr& body(int32_t rule) const { return rules_[rule]; }
  /// Puts the piece into a rule of its own, so that using it often costs little.
  Result<PiecePtr> as_rule(PiecePtr body) {
    HEARTH_ASSIGN_OR_RETURN(const int32_t rule, add(std::move(body)));
    return rule_piece(rule);
  }
  Result<Grammar> compile() const { return Grammar::compile(rules_, names_); }

 private:
  static constexpr size_t kMaxRules = 20'000;

  std::vector<PiecePtr> rules_;
  std::vector<std::string> names_;
};

}  // namespace hearth::engine
