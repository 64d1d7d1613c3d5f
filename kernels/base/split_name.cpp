#include "kernels/base/split_name.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "kernels/base/chars.h"

namespace hearth {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kOf = "-of-";
constexpr std::string_view kModelSuffix = ".gguf";
constexpr size_t kPartDigits = 5;
constexpr size_t kMaxFolderEntries = 10'000;

/// The number that `digits` is; 0 if it is anything but five digits.
uint32_t part_number(std::string_view digits) {
  uint32_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, value);
  return digits.size() == kPartDigits && error == std::errc() && at == end ? value : 0;
}

bool is_model_suffix(std::string_view suffix) {
  return std::ranges::equal(suffix, kModelSuffix, {}, ascii_lower);
}

}  // namespace

std::string SplitName::stem_of(uint32_t number) const {
  return fmt::format("{}-{:05}-of-{:05}", base, number, parts);
}

std::optional<SplitName> parse_split_name(std::string_view stem) {
  constexpr size_t kTail = 1 + kPartDigits + kOf.size() + kPartDigits;
  if (stem.size() <= kTail) return std::nullopt;
  const std::string_view tail = stem.substr(stem.size() - kTail);
  if (tail.front() != '-' || tail.substr(1 + kPartDigits, kOf.size()) != kOf) return std::nullopt;
  SplitName out{.base = std::string(stem.substr(0, stem.size() - kTail)),
                .part = part_number(tail.substr(1, kPartDigits)),
                .parts = part_number(tail.substr(1 + kPartDigits + kOf.size()))};
  if (out.part < 1 || out.part > out.parts || out.parts > kMaxModelParts) return std::nullopt;
  return out;
}

std::string model_stem(std::string_view stem) {
  const std::optional<SplitName> split = parse_split_name(stem);
  return split ? split->base : std::string(stem);
}

std::vector<fs::path> parts_of_model(const fs::path& file) {
  const std::optional<SplitName> split = parse_split_name(file.stem().string());
  if (!split) return {file};
  std::vector<fs::path> out;
  for (uint32_t part = 1; part <= split->parts; ++part) {
    out.push_back(file.parent_path() / (split->stem_of(part) + file.extension().string()));
  }
  return out;
}

fs::path find_split_model(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error) || path.filename().empty()) return path;
  const bool suffixed = is_model_suffix(path.extension().string());
  const std::string wanted = (suffixed ? path.stem() : path.filename()).string();
  const fs::path folder = path.parent_path();
  std::optional<SplitName> best;
  std::string suffix;
  size_t entries = 0;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, error), end; !error && it != end;
       it.increment(error)) {
    if (++entries > kMaxFolderEntries) break;
    const fs::path name = it->path().filename();
    if (!is_model_suffix(name.extension().string())) continue;
    std::optional<SplitName> split = parse_split_name(name.stem().string());
    if (!split || split->base != wanted || (best && best->parts <= split->parts)) continue;
    best = std::move(split);
    suffix = name.extension().string();
  }
  return best ? folder / (best->stem_of(1) + suffix) : path;
}

}  // namespace hearth
