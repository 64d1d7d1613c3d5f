#include "engine/speculation/replay_pattern.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "engine/sampling/sampler.h"
#include "kernels/base/check.h"
#include "kernels/base/numbers.h"

namespace hearth::engine {
namespace {

constexpr uint64_t kDefaultSeed = 11;
constexpr size_t kMaxPatternPlaces = 64;
constexpr uint64_t kRivalSeed = 0x9E37;  ///< their luck is their own

template <typename T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Error bad_pattern(std::string_view text, std::string_view why) {
  return Error::invalid(
      fmt::format("pattern {}: {}; want a chance (0.8), chances by place (0.9,0.7,0.5) or ones "
                  "and zeros by position (1101), then chances of rivals (/0.4,0.2) or nothing, "
                  "then :SEED or nothing",
                  text, why),
      "replay");
}

/// Chances from 0 to 1, separated by commas.
Result<std::vector<double>> parse_chances(std::string_view text, std::string_view whole) {
  std::vector<double> chances;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto chance = number<double>(text.substr(begin, end - begin));
    // Written so that NaN is refused, too.
    if (!chance.has_value() || !(*chance >= 0 && *chance <= 1)) {
      return bad_pattern(whole, "a chance is not a number from 0 to 1");
    }
    if (chances.size() == kMaxPatternPlaces) return bad_pattern(whole, "too many places");
    chances.push_back(*chance);
    begin = end + 1;
  }
  return chances;
}

double luck(uint64_t seed, size_t position, int32_t sample) {
  const uint64_t bits = noise_bits(seed, sample, narrow<int32_t>(position), 0);
  return as_double(bits >> 11) * 0x1p-53;
}

}  // namespace

ReplayPattern::ReplayPattern(std::vector<bool> by_position) : by_position_(std::move(by_position)) {
  HEARTH_CHECK(!by_position_.empty(), "no bits");
}

ReplayPattern::ReplayPattern(std::vector<double> chances, uint64_t seed)
    : chances_(std::move(chances)), seed_(seed) {
  HEARTH_CHECK(!chances_.empty(), "no chances");
}

Result<ReplayPattern> ReplayPattern::parse(std::string_view text) {
  const std::string_view whole = text;
  uint64_t seed = kDefaultSeed;
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    const auto given = number<uint64_t>(text.substr(colon + 1));
    if (!given.has_value()) return bad_pattern(whole, "the seed is not a number");
    seed = *given;
    text = text.substr(0, colon);
  }
  std::vector<double> rivals;
  if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    HEARTH_ASSIGN_OR_RETURN(rivals, parse_chances(text.substr(slash + 1), whole));
    if (rivals.size() > size_t{kMaxRivals}) return bad_pattern(whole, "too many rivals");
    text = text.substr(0, slash);
  }
  std::vector<bool> bits;
  std::vector<double> chances;
  if (text.size() > 1 && text.find_first_not_of("01") == std::string_view::npos) {
    for (const char digit : text) bits.push_back(digit == '1');
  } else {
    HEARTH_ASSIGN_OR_RETURN(chances, parse_chances(text, whole));
  }
  ReplayPattern out =
      bits.empty() ? ReplayPattern(std::move(chances), seed) : ReplayPattern(std::move(bits));
  out.set_rivals(std::move(rivals));
  return out;
}

bool ReplayPattern::right(size_t position, size_t place) const {
  if (!by_position_.empty()) return by_position_[position % by_position_.size()];
  return luck(seed_, position, 0) < chances_[std::min(place, chances_.size() - 1)];
}

size_t ReplayPattern::right_rival(size_t position) const {
  size_t rank = 0;
  while (rank < rivals_.size() &&
         luck(seed_ ^ kRivalSeed, position, narrow<int32_t>(rank)) >= rivals_[rank]) {
    ++rank;
  }
  return rank;
}

ReplayScript::ReplayScript(ReplayPattern pattern, int32_t vocab_size)
    : pattern_(std::move(pattern)), vocab_size_(vocab_size) {
  HEARTH_CHECK(vocab_size > 1, "{} tokens", vocab_size);
}

void ReplayScript::know(RequestId id, int32_t sample, std::vector<int32_t> output) {
  outputs_[{id, sample}] = std::move(output);
}

std::optional<int32_t> ReplayScript::truth(const Sequence& seq, size_t position) const {
  const auto known = outputs_.find({seq.request->request.id, seq.sample});
  const size_t prompt = seq.request->request.prompt.size();
  if (known == outputs_.end() || position < prompt || position - prompt >= known->second.size()) {
    return std::nullopt;
  }
  return known->second[position - prompt];
}

std::optional<int32_t> ReplayScript::draft(const Sequence& seq, size_t position,
                                           size_t place) const {
  const std::optional<int32_t> token = truth(seq, position);
  if (!token.has_value() || pattern_.right(position, place)) return token;
  return (*token + 1) % vocab_size_;
}

std::optional<int32_t> ReplayScript::rival(const Sequence& seq, size_t position, size_t place,
                                           size_t rank) const {
  const std::optional<int32_t> token = truth(seq, position);
  if (!token.has_value()) return token;
  const bool right = !pattern_.right(position, place) && pattern_.right_rival(position) == rank;
  return right ? *token : (*token + 2 + narrow<int32_t>(rank)) % vocab_size_;
}

}  // namespace hearth::engine
