#include "engine/grammar/grammar.h"

#include <fmt/core.h>

#include <algorithm>

#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

constexpr uint32_t kLastChar = 0x10FFFF;

std::shared_ptr<Piece> piece(Piece::Type type) {
  auto out = std::make_shared<Piece>();
  out->type = type;
  return out;
}

/// UTF-8 of a range of characters, as ranges of bytes one after the other: cut so that all bytes
/// after the first differing one cover all of their values.
using ByteRanges = std::vector<std::pair<uint8_t, uint8_t>>;

int utf8_length(uint32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

void encode(uint32_t c, int length, uint8_t* out) {
  static constexpr uint8_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (int i = length - 1; i > 0; --i) {
    out[i] = static_cast<uint8_t>(0x80 | (c & 0x3F));
    c >>= 6;
  }
  out[0] = static_cast<uint8_t>(kLead[length] | c);
}

void split_utf8(uint32_t low, uint32_t high, std::vector<ByteRanges>& out) {
  static constexpr uint32_t kLengthEnds[] = {0x7F, 0x7FF, 0xFFFF};
  for (const uint32_t end : kLengthEnds) {
    if (low <= end && high > end) {
      split_utf8(low, end, out);
      return split_utf8(end + 1, high, out);
    }
  }
  const int length = utf8_length(low);
  for (int i = 1; i < length; ++i) {
    const uint32_t mask = (uint32_t{1} << (6 * i)) - 1;
    if ((low & ~mask) == (high & ~mask)) continue;
    if ((low & mask) != 0) {
      split_utf8(low, low | mask, out);
      return split_utf8((low | mask) + 1, high, out);
    }
    if ((high & mask) != mask) {
      split_utf8(low, (high & ~mask) - 1, out);
      return split_utf8(high & ~mask, high, out);
    }
  }
  uint8_t first[4], last[4];
  encode(low, length, first);
  encode(high, length, last);
  ByteRanges bytes;
  for (int i = 0; i < length; ++i) bytes.emplace_back(first[i], last[i]);
  out.push_back(std::move(bytes));
}

}  // namespace

PiecePtr text_piece(std::string text) {
  auto out = piece(Piece::Type::kText);
  out->text = std::move(text);
  return out;
}
PiecePtr chars_piece(CharRanges chars) {
  auto out = piece(Piece::Type::kChars);
  out->chars = normalized(std::move(chars));
  return out;
}
PiecePtr bytes_piece(CharRanges bytes) {
  auto out = piece(Piece::Type::kBytes);
  out->chars = normalized(std::move(bytes));
  return out;
}
PiecePtr seq_piece(std::vector<PiecePtr> parts) {
  auto out = piece(Piece::Type::kSeq);
  out->parts = std::move(parts);
  return out;
}
PiecePtr any_piece(std::vector<PiecePtr> parts) {
  if (parts.size() == 1) return parts.front();
  auto out = piece(Piece::Type::kAny);
  out->parts = std::move(parts);
  return out;
}
PiecePtr repeat_piece(PiecePtr part, int32_t min, int32_t max) {
  auto out = piece(Piece::Type::kRepeat);
  out->parts = {std::move(part)};
  out->min = min;
  out->max = max;
  return out;
}
PiecePtr optional_piece(PiecePtr part) { return repeat_piece(std::move(part), 0, 1); }
PiecePtr rule_piece(int32_t rule) {
  auto out = piece(Piece::Type::kRule);
  out->rule = rule;
  return out;
}

CharRanges normalized(CharRanges chars) {
  std::ranges::sort(chars);
  CharRanges out;
  for (const auto& [low, high] : chars) {
    if (low > high) continue;
    if (!out.empty() && low <= out.back().second + 1) {
      out.back().second = std::max(out.back().second, high);
    } else {
      out.emplace_back(low, high);
    }
  }
  return out;
}

CharRanges complement(CharRanges chars) {
  chars.emplace_back(0xD800, 0xDFFF);
  CharRanges out;
  uint32_t next = 0;
  for (const auto& [low, high] : normalized(std::move(chars))) {
    if (low > next) out.emplace_back(next, low - 1);
    next = high + 1;
  }
  if (next <= kLastChar) out.emplace_back(next, kLastChar);
  return out;
}

class Grammar::Builder {
 public:
  explicit Builder(Grammar& grammar) : g_(grammar) {}

  int32_t node() {
    g_.nodes_.emplace_back();
    g_.is_end_.push_back(false);
    return size32(g_.nodes_) - 1;
  }
  void end(int32_t node) { g_.is_end_[node] = true; }

  /// Edges for `p` from `from` to `to`.
  Result<void> put(const Piece& p, int32_t from, int32_t to, int depth) {
    if (g_.nodes_.size() > kMaxGrammarNodes || depth > kMaxGrammarDepth) {
      return Error::too_large("the grammar is too large, or nested too deeply");
    }
    switch (p.type) {
      case Piece::Type::kText: {
        int32_t at = from;
        for (size_t i = 0; i < p.text.size(); ++i) {
          const int32_t next = i + 1 == p.text.size() ? to : node();
          const auto byte = byte_of(p.text[i]);
          edge(at, {Edge::Type::kBytes, byte, byte, 0, next});
          at = next;
        }
        if (p.text.empty()) nothing(from, to);
        return {};
      }
      case Piece::Type::kChars: chars(p.chars, from, to); return {};
      case Piece::Type::kBytes:
        for (const auto& [low, high] : p.chars) {
          edge(from, {Edge::Type::kBytes, narrow<uint8_t>(low), narrow<uint8_t>(high), 0, to});
        }
        return {};
      case Piece::Type::kSeq: {
        int32_t at = from;
        for (size_t i = 0; i < p.parts.size(); ++i) {
          const int32_t next = i + 1 == p.parts.size() ? to : node();
          HEARTH_TRY(put(*p.parts[i], at, next, depth + 1));
          at = next;
        }
        if (p.parts.empty()) nothing(from, to);
        return {};
      }
      case Piece::Type::kAny:
        for (const PiecePtr& part : p.parts) {
          // Nodes of its own: loops of one alternative must not lead into another.
          const int32_t begin = node();
          nothing(from, begin);
          HEARTH_TRY(put(*part, begin, to, depth + 1));
        }
        return {};
      case Piece::Type::kRepeat: return repeat(p, from, to, depth);
      case Piece::Type::kRule: edge(from, {Edge::Type::kRule, 0, 0, p.rule, to}); return {};
    }
    return {};
  }

 private:
  void edge(int32_t from, Edge e) { g_.nodes_[from].push_back(e); }
  void nothing(int32_t from, int32_t to) { edge(from, {Edge::Type::kNothing, 0, 0, 0, to}); }

  void chars(const CharRanges& ranges, int32_t from, int32_t to) {
    std::vector<ByteRanges> sequences;
    for (const auto& [low, high] : ranges) split_utf8(low, high, sequences);
    for (const ByteRanges& bytes : sequences) {
      int32_t at = from;
      for (size_t i = 0; i < bytes.size(); ++i) {
        const int32_t next = i + 1 == bytes.size() ? to : node();
        edge(at, {Edge::Type::kBytes, bytes[i].first, bytes[i].second, 0, next});
        at = next;
      }
    }
  }

  Result<void> repeat(const Piece& p, int32_t from, int32_t to, int depth) {
    int32_t at = node();
    nothing(from, at);
    for (int32_t i = 0; i < p.min; ++i) {
      const int32_t next = node();
      HEARTH_TRY(put(*p.parts[0], at, next, depth + 1));
      at = next;
    }
    if (p.max < 0) {
      const int32_t back = node();
      HEARTH_TRY(put(*p.parts[0], at, back, depth + 1));
      nothing(back, at);
    }
    for (int32_t i = p.min; i < p.max; ++i) {
      nothing(at, to);
      const int32_t next = node();
      HEARTH_TRY(put(*p.parts[0], at, next, depth + 1));
      at = next;
    }
    nothing(at, to);
    return {};
  }

  Grammar& g_;
};

namespace {

/// Whether a piece matches the empty text, given which rules do.
bool nullable(const Piece& p, const std::vector<bool>& rules) {
  const auto part = [&rules](const PiecePtr& each) { return nullable(*each, rules); };
  switch (p.type) {
    case Piece::Type::kText: return p.text.empty();
    case Piece::Type::kChars:
    case Piece::Type::kBytes: return false;
    case Piece::Type::kSeq: return std::ranges::all_of(p.parts, part);
    case Piece::Type::kAny: return std::ranges::any_of(p.parts, part);
    case Piece::Type::kRepeat: return p.min == 0 || part(p.parts[0]);
    case Piece::Type::kRule: return rules[p.rule];
  }
  return false;
}

/// Rules that a piece may begin with.
void first_rules(const Piece& p, const std::vector<bool>& rules, std::vector<int32_t>& out) {
  switch (p.type) {
    case Piece::Type::kSeq:
      for (const PiecePtr& part : p.parts) {
        first_rules(*part, rules, out);
        if (!nullable(*part, rules)) return;
      }
      return;
    case Piece::Type::kAny:
      for (const PiecePtr& part : p.parts) first_rules(*part, rules, out);
      return;
    case Piece::Type::kRepeat: first_rules(*p.parts[0], rules, out); return;
    case Piece::Type::kRule: out.push_back(p.rule); return;
    default: return;
  }
}

Result<int> depth_of(const Piece& p, int depth = 0) {
  if (depth > kMaxGrammarDepth) {
    return Error::too_large("the grammar is nested too deeply");
  }
  for (const PiecePtr& part : p.parts) HEARTH_TRY(depth_of(*part, depth + 1));
  return depth;
}

Result<void> check_left_recursion(const std::vector<PiecePtr>& rules,
                                  const std::vector<std::string>& names) {
  std::vector<bool> empty(rules.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < rules.size(); ++i) {
      if (empty[i] || !nullable(*rules[i], empty)) continue;
      empty[i] = true;
      changed = true;
    }
  }
  // Depth first without recursion: 1 is on the way, 2 is done.
  std::vector<std::vector<int32_t>> begins(rules.size());
  for (size_t i = 0; i < rules.size(); ++i) first_rules(*rules[i], empty, begins[i]);
  std::vector<int> state(rules.size(), 0);
  for (size_t root = 0; root < rules.size(); ++root) {
    std::vector<std::pair<size_t, size_t>> way;
    if (state[root] == 0) {
      way.emplace_back(root, 0);
      state[root] = 1;
    }
    while (!way.empty()) {
      auto& [rule, at] = way.back();
      if (at == begins[rule].size()) {
        state[rule] = 2;
        way.pop_back();
        continue;
      }
      const size_t next = begins[rule][at++];
      if (state[next] == 1) {
        return Error::unsupported(
            fmt::format("the rule '{}' begins with itself: not supported",
                        next < names.size() ? names[next] : std::to_string(next)));
      }
      if (state[next] != 0) continue;
      state[next] = 1;
      way.emplace_back(next, 0);
    }
  }
  return {};
}

}  // namespace

Result<Grammar> Grammar::compile(const std::vector<PiecePtr>& rules,
                                 const std::vector<std::string>& names) {
  for (const PiecePtr& rule : rules) HEARTH_TRY(depth_of(*rule));
  HEARTH_TRY(check_left_recursion(rules, names));
  Grammar out;
  Builder builder(out);
  for (const PiecePtr& rule : rules) {
    const int32_t first = builder.node(), last = builder.node();
    out.first_.push_back(first);
    builder.end(last);
    HEARTH_TRY(builder.put(*rule, first, last, 0));
  }
  return out;
}

}  // namespace hearth::engine
