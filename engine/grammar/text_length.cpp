#include "engine/grammar/text_length.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/base/numbers.h"

namespace hearth::engine {
namespace {

using Type = Piece::Type;

/// Lengths beyond this are as good as unbounded.
constexpr int64_t kMost = int64_t{1} << 40;

struct Lengths {
  int64_t min = 0;
  int64_t max = 0;  ///< kMost: unbounded
};

int64_t times(int64_t length, int64_t count) {
  if (length == 0 || count == 0) return 0;
  return length >= kMost / count ? kMost : length * count;
}

Lengths lengths_of(const Piece& piece) {
  Lengths out;
  switch (piece.type) {
    case Type::kChars:
    case Type::kBytes: return {1, 1};
    case Type::kText:
    case Type::kRule: return {0, 0};  // patterns have no rules, and no texts but empty ones
    case Type::kSeq:
      for (const PiecePtr& part : piece.parts) {
        const Lengths of = lengths_of(*part);
        out = {out.min + of.min, std::min(kMost, out.max + of.max)};
      }
      return out;
    case Type::kAny:
      out.min = kMost;
      for (const PiecePtr& part : piece.parts) {
        const Lengths of = lengths_of(*part);
        out = {std::min(out.min, of.min), std::max(out.max, of.max)};
      }
      return out;
    case Type::kRepeat: {
      const Lengths of = lengths_of(*piece.parts[0]);
      return {times(of.min, piece.min), times(of.max, piece.max < 0 ? kMost : piece.max)};
    }
  }
  return out;
}

PiecePtr limited(const PiecePtr& piece, int64_t min, int64_t max);

/// Each part gets an equal share of the length that the others' shortest texts leave, and the parts
/// that can be longest make up for a minimum.
PiecePtr limited_seq(const Piece& seq, int64_t min, int64_t max) {
  std::vector<Lengths> of;
  int64_t least = 0, flexible = 0;
  for (const PiecePtr& part : seq.parts) {
    of.push_back(lengths_of(*part));
    least += of.back().min;
    flexible += of.back().max > of.back().min ? 1 : 0;
  }
  int64_t missing = std::max<int64_t>(0, min - least);
  for (Lengths& each : of) {
    const int64_t more = std::min(missing, each.max - each.min);
    each.min += more;
    missing -= more;
  }
  if (missing > 0) return nullptr;
  const int64_t spare = max - std::max(min, least);
  if (spare < 0) return nullptr;
  std::vector<PiecePtr> parts;
  for (size_t i = 0; i < of.size(); ++i) {
    const int64_t most =
        max >= kMost ? of[i].max
                     : std::min(of[i].max, of[i].min + spare / std::max<int64_t>(1, flexible));
    PiecePtr part = limited(seq.parts[i], of[i].min, most);
    if (part == nullptr) return nullptr;
    parts.push_back(std::move(part));
  }
  return seq_piece(std::move(parts));
}

PiecePtr limited_repeat(const Piece& repeat, int64_t min, int64_t max) {
  const PiecePtr& part = repeat.parts[0];
  const Lengths of = lengths_of(*part);
  if (of.max == 0) return nullptr;  // only empty texts, of a length that does not fit
  const int64_t least = std::max<int64_t>(1, of.min);
  int64_t from = repeat.min, to = repeat.max < 0 ? kMost : repeat.max;
  if (times(of.min, from) < min) from = std::max(from, (min + least - 1) / least);
  if (max < kMost) to = std::min(to, std::max(from, max / least));
  if (from > to || times(of.min, from) < min || times(of.min, to) > max) return nullptr;
  if (to > kMaxGrammarRepeat && to < kMost) to = std::max<int64_t>(from, kMaxGrammarRepeat);
  PiecePtr one = part;
  if (max < kMost && times(of.max, to) > max) {
    one = limited(part, of.min, to == 0 ? of.max : max / to);
    if (one == nullptr) return nullptr;
  }
  return repeat_piece(std::move(one), narrow<int32_t>(from),
                      to >= kMost ? -1 : narrow<int32_t>(to));
}

PiecePtr limited(const PiecePtr& piece, int64_t min, int64_t max) {
  const Lengths of = lengths_of(*piece);
  if (of.min >= min && of.max <= max) return piece;
  if (of.max < min || of.min > max) return nullptr;
  switch (piece->type) {
    case Type::kChars:
    case Type::kBytes:
    case Type::kText:
    case Type::kRule: return nullptr;
    case Type::kSeq: return limited_seq(*piece, min, max);
    case Type::kRepeat: return limited_repeat(*piece, min, max);
    case Type::kAny: break;
  }
  std::vector<PiecePtr> parts;
  for (const PiecePtr& part : piece->parts) {
    if (PiecePtr one = limited(part, min, max)) parts.push_back(std::move(one));
  }
  return parts.empty() ? nullptr : any_piece(std::move(parts));
}

}  // namespace

PiecePtr with_length(const PiecePtr& piece, int64_t min, int64_t max) {
  return limited(piece, min, max < 0 ? kMost : max);
}

PiecePtr encoded(const PiecePtr& piece, PiecePtr (*encode)(const CharRanges&)) {
  if (piece->type == Type::kChars) return encode(piece->chars);
  if (piece->parts.empty()) return piece;
  std::vector<PiecePtr> parts;
  for (const PiecePtr& part : piece->parts) parts.push_back(encoded(part, encode));
  switch (piece->type) {
    case Type::kSeq: return seq_piece(std::move(parts));
    case Type::kAny: return any_piece(std::move(parts));
    case Type::kRepeat: return repeat_piece(std::move(parts[0]), piece->min, piece->max);
    case Type::kChars:
    case Type::kBytes:
    case Type::kText:
    case Type::kRule: break;
  }
  return piece;
}

}  // namespace hearth::engine
