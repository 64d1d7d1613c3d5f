#include "engine/grammar/text_automaton.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "kernels/base/numbers.h"

namespace hearth::engine {
namespace {

using Edge = Grammar::Edge;

/// The nodes that are reached without a byte, `from` included.
std::vector<int32_t> reached_by_nothing(const Grammar& grammar, int32_t from) {
  std::vector<int32_t> out = {from};
  std::unordered_set<int32_t> seen = {from};
  for (size_t i = 0; i < out.size(); ++i) {
    for (const Edge& edge : grammar.edges(out[i])) {
      if (edge.type == Edge::Type::kNothing && seen.insert(edge.to).second) out.push_back(edge.to);
    }
  }
  return out;
}

void add_bytes(const Grammar& grammar, int32_t node, TextAutomaton::Bytes* out) {
  for (const Edge& edge : grammar.edges(node)) {
    if (edge.type != Edge::Type::kBytes) continue;
    for (size_t byte = edge.low; byte <= edge.high; ++byte) out->set(byte);
  }
}

}  // namespace

Result<TextAutomaton> TextAutomaton::of(const PiecePtr& piece) {
  HEARTH_ASSIGN_OR_RETURN(Grammar grammar, Grammar::compile({piece}, {}));
  return TextAutomaton(std::move(grammar));
}

bool TextAutomaton::matches_empty() const {
  return std::ranges::any_of(reached_by_nothing(grammar_, grammar_.first(0)),
                             [this](int32_t node) { return grammar_.is_end(node); });
}

TextAutomaton::Bytes TextAutomaton::first_bytes() const {
  Bytes out;
  for (const int32_t node : reached_by_nothing(grammar_, grammar_.first(0))) {
    add_bytes(grammar_, node, &out);
  }
  return out;
}

template <typename Visit>
bool TextAutomaton::walk_pairs(const Grammar& a, const Grammar& b, int64_t* steps, Visit visit) {
  std::vector<std::pair<int32_t, int32_t>> open;
  std::unordered_set<uint64_t> seen;
  const auto add = [&](int32_t in_a, int32_t in_b) {
    const uint64_t key = uint64_t{narrow<uint32_t>(in_a)} << 32 | narrow<uint32_t>(in_b);
    if (seen.insert(key).second) open.emplace_back(in_a, in_b);
  };
  add(a.first(0), b.first(0));
  while (!open.empty()) {
    const auto [in_a, in_b] = open.back();
    open.pop_back();
    if (--*steps < 0) return false;
    if (!visit(in_a, in_b)) return true;
    for (const Edge& edge : a.edges(in_a)) {
      if (edge.type == Edge::Type::kNothing) add(edge.to, in_b);
    }
    for (const Edge& edge : b.edges(in_b)) {
      if (edge.type == Edge::Type::kNothing) add(in_a, edge.to);
      if (edge.type != Edge::Type::kBytes) continue;
      for (const Edge& other : a.edges(in_a)) {
        if (other.type != Edge::Type::kBytes) continue;
        if (--*steps < 0) return false;
        if (edge.low <= other.high && other.low <= edge.high) add(other.to, edge.to);
      }
    }
  }
  return true;
}

std::optional<TextAutomaton::Bytes> TextAutomaton::bytes_after(int64_t* steps) const {
  Bytes out;
  const bool done = walk_pairs(grammar_, grammar_, steps, [&](int32_t end, int32_t other) {
    if (grammar_.is_end(end)) add_bytes(grammar_, other, &out);
    return true;
  });
  if (!done) return std::nullopt;
  return out;
}

std::optional<bool> TextAutomaton::share_text(const TextAutomaton& a, const TextAutomaton& b,
                                              int64_t* steps) {
  bool found = false;
  const bool done = walk_pairs(a.grammar_, b.grammar_, steps, [&](int32_t in_a, int32_t in_b) {
    found = a.grammar_.is_end(in_a) && b.grammar_.is_end(in_b);
    return !found;
  });
  if (!done) return std::nullopt;
  return found;
}

}  // namespace hearth::engine
