#include "engine/grammar/lark.h"

#include <fmt/core.h>

#include <bitset>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/json_pieces.h"
#include "engine/grammar/lark_reader.h"
#include "engine/grammar/text_automaton.h"
#include "engine/grammar/text_length.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

using Type = LarkItem::Type;
using Symbols = std::bitset<kMostLarkSymbols>;

/// Blanks that are written where %ignore allows them.
constexpr int32_t kMostBlanks = 64;

/// The terminals that texts of an item begin and end with.
struct Ends {
  bool empty = true;  ///< some text has no terminal
  Symbols first, last;

  /// Of this and then `next`.
  void then(const Ends& next) {
    if (empty) first |= next.first;
    last = next.empty ? last | next.last : next.last;
    empty = empty && next.empty;
  }
  void or_else(const Ends& other) {
    empty = empty || other.empty;
    first |= other.first;
    last |= other.last;
  }
  bool operator==(const Ends&) const = default;
};

/// expr: expr "+" term | term  ->  expr: term ("+" term)*
Result<void> without_left_recursion(LarkGrammar::Rule& rule, int32_t number) {
  LarkItem begins{.type = Type::kAny}, goes_on{.type = Type::kAny};
  for (LarkItem& way : rule.body.parts) {
    const bool itself =
        !way.parts.empty() && way.parts[0].type == Type::kRule && way.parts[0].symbol == number;
    if (itself) way.parts.erase(way.parts.begin());
    if (itself && way.parts.empty()) continue;
    (itself ? goes_on : begins).parts.push_back(std::move(way));
  }
  if (begins.parts.empty()) {
    return Error::invalid(fmt::format("lark: the rule '{}' has no end", rule.name));
  }
  if (goes_on.parts.empty()) {
    rule.body = std::move(begins);
    return {};
  }
  LarkItem more{.type = Type::kRepeat, .min = 0, .max = -1}, both, body{.type = Type::kAny};
  more.parts.push_back(std::move(goes_on));
  both.parts.push_back(std::move(begins));
  both.parts.push_back(std::move(more));
  body.parts.push_back(std::move(both));
  rule.body = std::move(body);
  return {};
}

class LarkCompiler {
 public:
  LarkCompiler(LarkGrammar grammar, RuleSet& rules, PiecePtr (*encode)(const CharRanges&),
               int64_t* steps)
      : grammar_(std::move(grammar)), rules_(rules), encode_(encode), steps_(steps) {}

  Result<PiecePtr> run() {
    for (size_t i = 0; i < grammar_.rules.size(); ++i) {
      HEARTH_TRY(without_left_recursion(grammar_.rules[i], narrow<int32_t>(i)));
    }
    HEARTH_TRY(read_terminals());
    HEARTH_TRY(read_ignored());
    ends_of_rules_.assign(grammar_.rules.size(), Ends{.empty = false, .first = {}, .last = {}});
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < grammar_.rules.size(); ++i) {
        const Ends now = ends_of(grammar_.rules[i].body);
        changed = changed || now != ends_of_rules_[i];
        ends_of_rules_[i] = now;
      }
    }
    std::vector<int32_t> numbers;
    for (const LarkGrammar::Rule& rule : grammar_.rules) {
      HEARTH_ASSIGN_OR_RETURN(const int32_t number, rules_.add(nullptr, rule.name));
      rule_pieces_.push_back(rule_piece(number));
      numbers.push_back(number);
    }
    // A grammar that is refused may be left out of its schema, whose rules all need a body.
    for (const int32_t number : numbers) rules_.set(number, nothing_piece());
    for (size_t i = 0; i < grammar_.rules.size(); ++i) {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr body, lowered(grammar_.rules[i].body));
      rules_.set(numbers[i], std::move(body));
    }
    return rule_pieces_[0];
  }

 private:
  struct Terminal {
    TextAutomaton::Bytes first;
    TextAutomaton::Bytes after;  ///< could go on with a whole text
    bool empty = false;
    PiecePtr piece;
  };
  Result<Terminal> terminal_of(const PiecePtr& text, const std::string& name) {
    HEARTH_ASSIGN_OR_RETURN(const TextAutomaton automaton, TextAutomaton::of(text));
    *steps_ -= narrow<int64_t>(automaton.num_nodes());
    const auto after = automaton.bytes_after(steps_);
    if (!after) {
      return Error::too_large(fmt::format("lark: the terminal '{}' is too large", name));
    }
    HEARTH_ASSIGN_OR_RETURN(PiecePtr piece, rules_.as_rule(encoded(text, encode_)));
    return Terminal{.first = automaton.first_bytes(),
                    .after = *after,
                    .empty = automaton.matches_empty(),
                    .piece = std::move(piece)};
  }

  Result<void> read_terminals() {
    for (const LarkGrammar::Terminal& each : grammar_.terminals) {
      HEARTH_ASSIGN_OR_RETURN(Terminal one, terminal_of(each.text, each.name));
      terminals_.push_back(std::move(one));
    }
    unsafe_.resize(terminals_.size());
    for (size_t x = 0; x < terminals_.size(); ++x) {
      for (size_t y = 0; y < terminals_.size(); ++y) {
        unsafe_[x][y] = (terminals_[x].after & terminals_[y].first).any();
      }
    }
    return {};
  }

  /// Single characters that are ignored: between terminals any number of them is.
  Result<void> read_ignored() {
    CharRanges chars;
    for (const PiecePtr& text : grammar_.ignored) {
      HEARTH_ASSIGN_OR_RETURN(const TextAutomaton automaton, TextAutomaton::of(text));
      const auto after = automaton.bytes_after(steps_);
      if (!after) return Error::too_large("lark: this %ignore is too large");
      bool begins_so = false;
      for (const uint32_t c : {' ', '\t', '\n', '\r', '\f'}) {
        HEARTH_ASSIGN_OR_RETURN(const TextAutomaton one, TextAutomaton::of(chars_piece({{c, c}})));
        const auto whole = TextAutomaton::share_text(one, automaton, steps_);
        if (whole.value_or(false)) chars.emplace_back(c, c);
        begins_so = begins_so || (one.first_bytes() & automaton.first_bytes()).any();
      }
      if (begins_so) ignored_after_ |= *after;
    }
    if (chars.empty()) return {};
    for (const auto& [c, same] : normalized(chars)) {
      for (uint32_t each = c; each <= same; ++each) ignored_first_.set(each);
    }
    const PiecePtr one = encode_(normalized(std::move(chars)));
    for (size_t x = 0; x < terminals_.size(); ++x) {
      takes_blanks_after_[x] = (terminals_[x].after & ignored_first_).any();
      goes_on_blanks_[x] = (terminals_[x].first & ignored_after_).any();
    }
    HEARTH_ASSIGN_OR_RETURN(blanks_, rules_.as_rule(repeat_piece(one, 0, kMostBlanks)));
    HEARTH_ASSIGN_OR_RETURN(some_blanks_, rules_.as_rule(repeat_piece(one, 1, kMostBlanks)));
    return {};
  }

  Ends ends_of(const LarkItem& item) const {
    Ends out;
    switch (item.type) {
      case Type::kTerminal:
        out.empty = terminals_[item.symbol].empty;
        out.first.set(item.symbol);
        out.last.set(item.symbol);
        return out;
      case Type::kRule: return ends_of_rules_[item.symbol];
      case Type::kSeq:
        for (const LarkItem& part : item.parts) out.then(ends_of(part));
        return out;
      case Type::kAny:
        out.empty = false;
        for (const LarkItem& part : item.parts) out.or_else(ends_of(part));
        return out;
      case Type::kRepeat:
        if (item.max != 0) out = ends_of(item.parts[0]);
        out.empty = out.empty || item.min == 0;
        return out;
    }
    return out;
  }

  /// What stands between two parts. Blanks must not be taken for a part of what is written before
  /// or after them, which is of another rule where a part is empty.
  Result<PiecePtr> between(const Ends& before, const Ends& after) const {
    const bool fits_before =
        before.empty ? takes_blanks_after_.none() : (takes_blanks_after_ & before.last).none();
    const bool fits_after =
        after.empty ? goes_on_blanks_.none() : (goes_on_blanks_ & after.first).none();
    const bool blanks_fit = blanks_ != nullptr && fits_before && fits_after;
    for (size_t x = 0; x < terminals_.size(); ++x) {
      const Symbols unsafe = unsafe_[x] & after.first;
      if (!before.last[x] || unsafe.none()) continue;
      if (blanks_fit) return some_blanks_;
      size_t y = 0;
      while (!unsafe[y]) ++y;
      return Error::unsupported(fmt::format(
          "lark: {} right before {}, which may go on with it, is not supported",
          grammar_.terminals[x].name.substr(0, 60), grammar_.terminals[y].name.substr(0, 60)));
    }
    return blanks_fit ? blanks_ : nothing_piece();
  }

  Result<PiecePtr> lowered(const LarkItem& item) {
    switch (item.type) {
      case Type::kTerminal: return terminals_[item.symbol].piece;
      case Type::kRule: return rule_pieces_[item.symbol];
      case Type::kSeq: return sequence(item.parts);
      case Type::kAny: {
        std::vector<PiecePtr> out;
        for (const LarkItem& part : item.parts) {
          HEARTH_ASSIGN_OR_RETURN(PiecePtr one, lowered(part));
          out.push_back(std::move(one));
        }
        return any_piece(std::move(out));
      }
      case Type::kRepeat: return repeated(item, nothing_piece());
    }
    return nothing_piece();
  }

  /// `before`: stands before the first.
  Result<PiecePtr> repeated(const LarkItem& item, PiecePtr before) {
    if (item.max == 0) return nothing_piece();
    HEARTH_ASSIGN_OR_RETURN(PiecePtr one, lowered(item.parts[0]));
    HEARTH_ASSIGN_OR_RETURN(one, rules_.as_rule(std::move(one)));
    PiecePtr all = seq_piece({std::move(before), one});
    if (item.max != 1) {
      const Ends ends = ends_of(item.parts[0]);
      HEARTH_ASSIGN_OR_RETURN(PiecePtr gap, between(ends, ends));
      all = seq_piece(
          {std::move(all), repeat_piece(seq_piece({std::move(gap), one}), std::max(0, item.min - 1),
                                        item.max < 0 ? -1 : item.max - 1)});
    }
    return item.min == 0 ? optional_piece(std::move(all)) : all;
  }

  Result<PiecePtr> sequence(const std::vector<LarkItem>& parts) {
    std::vector<PiecePtr> out;
    std::vector<Ends> from(parts.size() + 1);  // of this part and all after it
    for (size_t i = parts.size(); i-- > 0;) {
      from[i] = ends_of(parts[i]);
      from[i].then(from[i + 1]);
    }
    Ends before;
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool repeat = parts[i].type == Type::kRepeat;
      if (repeat && parts[i].max == 0) continue;
      const Ends ends = ends_of(parts[i]), once = repeat ? ends_of(parts[i].parts[0]) : ends;
      PiecePtr gap = nothing_piece();
      if (before.last.any()) {
        HEARTH_ASSIGN_OR_RETURN(gap, between(before, once));
      }
      if (repeat && parts[i].min == 0 && before.last.none()) {
        // What separates it from the rest belongs to it: without it, the rest is the beginning.
        if (!from[i + 1].empty) {
          HEARTH_ASSIGN_OR_RETURN(PiecePtr after, between(once, from[i + 1]));
          LarkItem some = parts[i];
          some.min = 1;
          HEARTH_ASSIGN_OR_RETURN(PiecePtr one, repeated(some, nothing_piece()));
          out.push_back(optional_piece(seq_piece({std::move(one), std::move(after)})));
          continue;
        }
      }
      PiecePtr piece;
      if (repeat) {
        HEARTH_ASSIGN_OR_RETURN(piece, repeated(parts[i], std::move(gap)));
      } else {
        HEARTH_ASSIGN_OR_RETURN(piece, lowered(parts[i]));
        piece = seq_piece({std::move(gap), std::move(piece)});
      }
      out.push_back(std::move(piece));
      before.then(ends);
    }
    return seq_piece(std::move(out));
  }

  LarkGrammar grammar_;
  RuleSet& rules_;
  PiecePtr (*const encode_)(const CharRanges&);
  int64_t* const steps_;
  std::vector<Terminal> terminals_;
  std::vector<Symbols> unsafe_;  ///< terminals that could go on with each
  Symbols takes_blanks_after_;   ///< could go on with blanks
  Symbols goes_on_blanks_;       ///< could be taken for more of what is ignored
  TextAutomaton::Bytes ignored_first_, ignored_after_;
  PiecePtr blanks_, some_blanks_;  ///< null: nothing is ignored
  std::vector<Ends> ends_of_rules_;
  std::vector<PiecePtr> rule_pieces_;
};

}  // namespace

Result<PiecePtr> compile_lark(std::string_view source, RuleSet& rules,
                              PiecePtr (*encode)(const CharRanges&), int64_t* steps) {
  HEARTH_ASSIGN_OR_RETURN(LarkGrammar grammar, read_lark(source));
  return LarkCompiler(std::move(grammar), rules, encode, steps).run();
}

}  // namespace hearth::engine
