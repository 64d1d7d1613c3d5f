#pragma once
// A grammar of texts, as rules over bytes: a recursive transition network. Each rule is a small
// non-deterministic automaton whose edges take a byte of a range, nothing, or a complete rule. Made
// by the readers of JSON schemas and GBNF; used by `Constraint`.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::engine {

/// Bounds of one grammar. Sources are untrusted; a larger grammar is an error.
inline constexpr size_t kMaxGrammarNodes = 400'000;
inline constexpr int kMaxGrammarDepth = 100;
inline constexpr int32_t kMaxGrammarRepeat = 10'000;

/// A piece of a grammar: a tree without cycles; cycles go through rules.
struct Piece;
using PiecePtr = std::shared_ptr<const Piece>;

/// Characters (code points), as disjoint ascending ranges.
using CharRanges = std::vector<std::pair<uint32_t, uint32_t>>;

struct Piece {
  enum class Type {
    kText,    ///< `text`, byte by byte
    kChars,   ///< one character of `chars`, as UTF-8
    kBytes,   ///< one byte of `chars`
    kSeq,     ///< `parts` one after another
    kAny,     ///< one of `parts`; none: nothing matches
    kRepeat,  ///< parts[0], `min` to `max` times; max -1: any number
    kRule,    ///< the rule of that number
  };
  Type type = Type::kText;
  std::string text;
  CharRanges chars;
  std::vector<PiecePtr> parts;
  int32_t min = 0;
  int32_t max = -1;
  int32_t rule = 0;
};

PiecePtr text_piece(std::string text);
PiecePtr chars_piece(CharRanges chars);
PiecePtr bytes_piece(CharRanges bytes);
PiecePtr seq_piece(std::vector<PiecePtr> parts);
PiecePtr any_piece(std::vector<PiecePtr> parts);
PiecePtr repeat_piece(PiecePtr part, int32_t min, int32_t max);
PiecePtr optional_piece(PiecePtr part);
PiecePtr rule_piece(int32_t rule);

/// All characters except `chars` and surrogates.
CharRanges complement(CharRanges chars);
/// Sorted, without overlaps.
CharRanges normalized(CharRanges chars);

/// Immutable.
class Grammar {
 public:
  struct Edge {
    enum class Type : uint8_t { kBytes, kNothing, kRule };
    Type type = Type::kNothing;
    uint8_t low = 0, high = 0;
    int32_t rule = 0;
    int32_t to = 0;
  };

  /// `rules[0]` is the whole text. kTooLarge over a bound; kUnsupported: a rule that begins with
  /// itself (`names`, for the message).
  static Result<Grammar> compile(const std::vector<PiecePtr>& rules,
                                 const std::vector<std::string>& names);

  const std::vector<Edge>& edges(int32_t node) const { return nodes_[node]; }
  int32_t first(int32_t rule) const { return first_[rule]; }
  /// The end of the rule that the node belongs to. It has no edges.
  bool is_end(int32_t node) const { return is_end_[node]; }
  size_t num_nodes() const { return nodes_.size(); }

 private:
  class Builder;

  std::vector<std::vector<Edge>> nodes_;
  std::vector<bool> is_end_;
  std::vector<int32_t> first_;
};

/// The readers. kInvalidArgument: not a schema, not GBNF; kUnsupported: names the keyword or the
/// construct; kTooLarge. `field` of errors is json_schema, grammar or regex. `relaxed`: not null if
/// a schema may lose what cannot be promised; this is then named there.
Result<Grammar> compile_json_schema(std::string_view schema,
                                    std::vector<std::string>* relaxed = nullptr);
Result<Grammar> compile_gbnf(std::string_view source);
/// The whole text matches the regular expression.
Result<Grammar> compile_regex(std::string_view regex);
/// The texts that a regular expression matches, anywhere in the text unless anchored by ^ and $.
/// Each character goes through `encode` (the identity, or its form inside a JSON string).
Result<PiecePtr> compile_pattern(std::string_view pattern, PiecePtr (*encode)(const CharRanges&));
/// The texts that a regular expression of Python's matches as a whole. Refuses lazy repetitions, by
/// which a lexer would take less, and anchors.
Result<PiecePtr> compile_token_pattern(std::string_view pattern);

}  // namespace hearth::engine
