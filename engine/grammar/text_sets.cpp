#include "engine/grammar/text_sets.h"

#include <algorithm>
#include <utility>

#include "engine/grammar/json_pieces.h"
#include "kernels/base/sizes.h"
#include "models/template/text.h"

namespace hearth::engine {
namespace {

using Type = Piece::Type;

/// Characters of one text.
constexpr int kMostChars = 200;

bool same_piece(const PiecePtr& a, const PiecePtr& b) {
  if (a == b) return true;
  return a->type == b->type && a->text == b->text && a->chars == b->chars && a->min == b->min &&
         a->max == b->max && a->rule == b->rule &&
         std::ranges::equal(a->parts, b->parts, same_piece);
}

bool is_empty_text(const PiecePtr& piece) {
  return (piece->type == Type::kText && piece->text.empty()) ||
         (piece->type == Type::kSeq && piece->parts.empty());
}

bool has_empty(const Piece& piece) {
  const auto of = [](const PiecePtr& part) { return has_empty(*part); };
  switch (piece.type) {
    case Type::kText: return piece.text.empty();
    case Type::kSeq: return std::ranges::all_of(piece.parts, of);
    case Type::kAny: return std::ranges::any_of(piece.parts, of);
    case Type::kRepeat: return piece.min == 0 || has_empty(*piece.parts[0]);
    case Type::kChars:
    case Type::kBytes:
    case Type::kRule: break;
  }
  return false;
}

CharRanges common_chars(const CharRanges& a, const CharRanges& b) {
  CharRanges out;
  for (const auto& [a_low, a_high] : a) {
    for (const auto& [b_low, b_high] : b) {
      const uint32_t low = std::max(a_low, b_low), high = std::min(a_high, b_high);
      if (low <= high) out.emplace_back(low, high);
    }
  }
  return normalized(std::move(out));
}

class TextSets {
 public:
  explicit TextSets(int64_t* steps) : steps_(*steps) {}
  bool failed() const { return steps_ < 0; }

  /// The texts that begin with one of these characters, with it (`keep`) or without. Null: none.
  PiecePtr beginning(const PiecePtr& piece, const CharRanges& chars, bool keep) {
    if (--steps_ < 0) return nullptr;
    switch (piece->type) {
      case Type::kText:
      case Type::kBytes:
      case Type::kRule: break;  // patterns have neither texts nor rules
      case Type::kChars: {
        CharRanges both = common_chars(piece->chars, chars);
        if (both.empty()) return nullptr;
        return keep ? chars_piece(std::move(both)) : nothing_piece();
      }
      case Type::kAny: {
        std::vector<PiecePtr> out;
        for (const PiecePtr& part : piece->parts) add(beginning(part, chars, keep), &out);
        return one_of(std::move(out));
      }
      case Type::kSeq: {
        std::vector<PiecePtr> out;
        for (size_t i = 0; i < piece->parts.size() && !failed(); ++i) {
          steps_ -= size32(piece->parts);
          std::vector<PiecePtr> rest(piece->parts.begin() + i + 1, piece->parts.end());
          add(then(beginning(piece->parts[i], chars, keep), std::move(rest)), &out);
          if (!has_empty(*piece->parts[i])) break;
        }
        return one_of(std::move(out));
      }
      case Type::kRepeat: {
        const PiecePtr& part = piece->parts[0];
        if (piece->max == 0) break;
        const int32_t min = has_empty(*part) ? 0 : std::max(piece->min - 1, 0);
        const int32_t max = piece->max < 0 ? -1 : piece->max - 1;
        return then(beginning(part, chars, keep), {repeat_piece(part, min, max)});
      }
    }
    return nullptr;
  }

  /// What may follow the first `at` bytes of the `texts`, which all begin alike, without them.
  /// Null: none.
  PiecePtr without(const PiecePtr& piece, const std::vector<std::string>& texts, size_t at,
                   int depth) {
    if (depth > kMostChars) steps_ = -1;
    steps_ -= size32(texts);
    if (failed()) return nullptr;
    std::vector<PiecePtr> out;
    bool ends = false;
    CharRanges next;
    for (const std::string& text : texts) {
      if (text.size() == at) {
        ends = true;
        continue;
      }
      const uint32_t code = models::jinja::first_char(std::string_view(text).substr(at)).code;
      next.emplace_back(code, code);
    }
    if (has_empty(*piece) && !ends) out.push_back(nothing_piece());
    next = normalized(std::move(next));
    add(beginning(piece, complement(next), true), &out);
    for (const auto& [low, high] : next) {
      for (uint32_t code = low; code <= high; ++code) {
        const PiecePtr after = beginning(piece, {{code, code}}, false);
        if (after == nullptr) continue;
        std::vector<std::string> group;
        size_t bytes = 0;
        for (const std::string& text : texts) {
          if (text.size() == at) continue;
          const models::jinja::Char first =
              models::jinja::first_char(std::string_view(text).substr(at));
          if (first.code != code) continue;
          bytes = first.bytes;
          group.push_back(text);
        }
        PiecePtr rest = without(after, group, at + bytes, depth + 1);
        if (rest != nullptr) add(then(chars_piece({{code, code}}), {std::move(rest)}), &out);
      }
    }
    return one_of(std::move(out));
  }

 private:
  void add(PiecePtr piece, std::vector<PiecePtr>* out) {
    if (piece == nullptr) return;
    steps_ -= size32(*out);
    const auto same = [&piece](const PiecePtr& each) { return same_piece(each, piece); };
    if (std::ranges::none_of(*out, same)) out->push_back(std::move(piece));
  }
  static PiecePtr one_of(std::vector<PiecePtr> parts) {
    if (parts.empty()) return nullptr;
    return parts.size() == 1 ? std::move(parts.front()) : any_piece(std::move(parts));
  }
  static PiecePtr then(PiecePtr first, std::vector<PiecePtr> rest) {
    if (first == nullptr) return nullptr;
    std::erase_if(rest, is_empty_text);
    if (rest.empty()) return first;
    if (!is_empty_text(first)) rest.insert(rest.begin(), std::move(first));
    return rest.size() == 1 ? std::move(rest.front()) : seq_piece(std::move(rest));
  }

  int64_t& steps_;
};

}  // namespace

std::optional<bool> matches_text(const PiecePtr& pattern, std::string_view text, int64_t* steps) {
  TextSets sets(steps);
  PiecePtr rest = pattern;
  while (!text.empty() && rest != nullptr) {
    const models::jinja::Char first = models::jinja::first_char(text);
    rest = sets.beginning(rest, {{first.code, first.code}}, false);
    text.remove_prefix(first.bytes);
  }
  if (sets.failed()) return std::nullopt;
  return rest != nullptr && has_empty(*rest);
}

std::optional<PiecePtr> without_texts(const PiecePtr& pattern, std::vector<std::string> texts,
                                      int64_t* steps) {
  TextSets sets(steps);
  std::ranges::sort(texts);
  PiecePtr out = sets.without(pattern, texts, 0, 0);
  if (sets.failed()) return std::nullopt;
  return out == nullptr ? any_piece({}) : out;
}

}  // namespace hearth::engine
