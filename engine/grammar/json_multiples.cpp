#include "engine/grammar/json_multiples.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "engine/grammar/json_pieces.h"

namespace hearth::engine {
namespace {

constexpr int kMostDigits = 15;

constexpr auto kPowers = [] {
  std::array<int64_t, kMostDigits + 1> out{};
  out[0] = 1;
  for (size_t i = 1; i < out.size(); ++i) out[i] = out[i - 1] * 10;
  return out;
}();

int64_t power_of_ten(int exponent) { return kPowers.at(exponent); }

}  // namespace

Multiples::Multiples(RuleSet& rules, int64_t of, int places)
    : rules_(rules), of_(of), places_(places) {}

bool Multiples::has_any(int64_t low, int64_t high) const {
  return low <= high && high / of_ * of_ >= low;
}

bool Multiples::is_alive(const Range& range, int64_t digits, int left) const {
  const int64_t first = digits * power_of_ten(left);
  return has_any(std::max(range.low, first), std::min(range.high, first + power_of_ten(left) - 1));
}

std::optional<std::pair<int, int64_t>> Multiples::shared_key(const Range& range, int64_t digits,
                                                             int left) const {
  const int64_t power = power_of_ten(left), first = digits * power;
  if (first < range.low || first + power - 1 > range.high) return std::nullopt;
  return std::pair(left, digits % (of_ / std::gcd(of_, power)));
}

std::vector<std::pair<Multiples::Range, int>> Multiples::lengths(int64_t low, int64_t high) const {
  std::vector<std::pair<Range, int>> out;
  for (int length = places_ + 1; length <= kMostDigits; ++length) {
    const int64_t shortest = length == places_ + 1 ? 0 : power_of_ten(length - 1);
    const Range range{std::max(low, shortest), std::min(high, power_of_ten(length) - 1)};
    if (has_any(range.low, range.high)) out.emplace_back(range, length);
  }
  return out;
}

void Multiples::count_after(const Range& range, int64_t digits, int left) {
  if (left == 0 || counted_ > kMostRules) return;
  if (const auto key = shared_key(range, digits, left)) {
    if (!shared_.emplace(*key, nullptr).second) return;
  }
  ++counted_;
  for (int digit = 0; digit < 10; ++digit) {
    if (is_alive(range, digits * 10 + digit, left - 1)) {
      count_after(range, digits * 10 + digit, left - 1);
    }
  }
}

bool Multiples::fits(int64_t low, int64_t high) {
  shared_.clear();
  counted_ = 0;
  for (const auto& [range, length] : lengths(std::max<int64_t>(low, 0), high)) {
    count_after(range, 0, length);
  }
  for (const auto& [range, length] : lengths(std::max<int64_t>(1, -high), -low)) {
    count_after(range, 0, length);
  }
  shared_.clear();
  return counted_ <= kMostRules;
}

Result<PiecePtr> Multiples::after(const Range& range, int64_t digits, int left) {
  if (left == 0) return nothing_piece();
  const auto key = shared_key(range, digits, left);
  if (key) {
    const auto known = shared_.find(*key);
    if (known != shared_.end()) return known->second;
  }
  // Digits after which the same follows are one class.
  std::vector<std::pair<CharRanges, PiecePtr>> classes;
  for (uint32_t digit = 0; digit < 10; ++digit) {
    const int64_t longer = digits * 10 + digit;
    if (!is_alive(range, longer, left - 1)) continue;
    HEARTH_ASSIGN_OR_RETURN(PiecePtr rest, after(range, longer, left - 1));
    const CharRanges::value_type one = {'0' + digit, '0' + digit};
    const auto same = std::ranges::find_if(classes, [&](const auto& each) {
      return left == 1 || each.second == rest;  // nothing follows the last digit
    });
    if (same != classes.end()) {
      same->first.push_back(one);
    } else {
      classes.emplace_back(CharRanges{one}, std::move(rest));
    }
  }
  const bool point = places_ > 0 && left - 1 == places_;
  std::vector<PiecePtr> ways;
  for (auto& [chars, rest] : classes) {
    std::vector<PiecePtr> way = {chars_piece(std::move(chars))};
    if (point) way.push_back(text_piece("."));
    way.push_back(std::move(rest));
    ways.push_back(seq_piece(std::move(way)));
  }
  HEARTH_ASSIGN_OR_RETURN(PiecePtr out, rules_.as_rule(any_piece(std::move(ways))));
  if (key) shared_.emplace(*key, out);
  return out;
}

Result<PiecePtr> Multiples::naturals(int64_t low, int64_t high) {
  std::vector<PiecePtr> out;
  for (const auto& [range, length] : lengths(low, high)) {
    HEARTH_ASSIGN_OR_RETURN(PiecePtr one, after(range, 0, length));
    out.push_back(std::move(one));
  }
  if (out.empty()) return PiecePtr();
  return any_piece(std::move(out));
}

Result<PiecePtr> Multiples::between(std::optional<int64_t> low, std::optional<int64_t> high) {
  int64_t from = low.value_or(-kMostInteger), to = high.value_or(kMostInteger);
  for (int digits = kMostDigits - 1; digits > 0 && !fits(from, to); --digits) {
    const int64_t span = power_of_ten(digits) - 1;
    if (low) {
      to = std::min(high.value_or(kMostInteger), *low + span);
    } else if (high) {
      from = *high - span;
    } else {
      from = -span;
      to = span;
    }
    from = std::max(from, -kMostInteger);
    to = std::min(to, kMostInteger);
  }
  std::vector<PiecePtr> out;
  HEARTH_ASSIGN_OR_RETURN(PiecePtr some, naturals(std::max<int64_t>(from, 0), to));
  if (some != nullptr) out.push_back(std::move(some));
  HEARTH_ASSIGN_OR_RETURN(some, naturals(std::max<int64_t>(1, -to), -from));
  if (some != nullptr) out.push_back(seq_piece({text_piece("-"), std::move(some)}));
  if (out.empty()) return PiecePtr();
  return any_piece(std::move(out));
}

}  // namespace hearth::engine
