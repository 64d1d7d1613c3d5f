#include "ipc/cli/doctor/machine.h"

#include <array>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>

#include "kernels/base/sizes.h"

namespace hearth::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t from = text.find_first_not_of(" \t");
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(" \t") - from + 1);
}

/// Calls `take(key, value)` for each line "key : value".
template <class Take>
void each_line(std::string_view text, Take take) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    take(trimmed(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
  }
}

uint64_t leading_number(std::string_view text) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

CpuFacts parse_cpuinfo(std::string_view text) {
  CpuFacts cpu;
  std::set<std::pair<std::string, std::string>> cores;  // (package, core)
  std::string package;
  each_line(text, [&](std::string_view key, std::string_view value) {
    if (key == "processor") ++cpu.num_threads;
    if (key == "model name" && cpu.model.empty()) cpu.model = value;
    if (key == "physical id") package = value;
    if (key == "core id") cores.emplace(package, std::string(value));
    if ((key == "flags" || key == "Features") && cpu.flags.empty()) {
      std::istringstream words{std::string(value)};
      for (std::string word; words >> word;) cpu.flags.insert(word);
    }
  });
  cpu.num_cores = size32(cores);
  return cpu;
}

std::string useful_features(const CpuFacts& cpu) {
  constexpr auto kFeatures = std::to_array<std::pair<const char*, const char*>>({
      {"avx2", "avx2"},
      {"fma", "fma"},
      {"f16c", "f16c"},
      {"avx512f", "avx512"},
      {"avx512_vnni", "avx512-vnni"},
      {"asimd", "neon"},
      {"asimddp", "dotprod"},
  });
  std::string out;
  for (const auto& [flag, shown] : kFeatures) {
    if (!cpu.flags.contains(flag)) continue;
    if (!out.empty()) out += " ";
    out += shown;
  }
  return out;
}

MemoryFacts parse_meminfo(std::string_view text) {
  MemoryFacts memory;
  each_line(text, [&](std::string_view key, std::string_view value) {
    const uint64_t bytes = leading_number(value) * 1024;
    if (key == "MemTotal") memory.total_bytes = bytes;
    if (key == "MemAvailable") memory.available_bytes = bytes;
    if (key == "Hugepagesize") memory.huge_page_bytes = bytes;
  });
  return memory;
}

std::string parse_choice(std::string_view text) {
  const size_t open = text.find('[');
  const size_t close = text.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return "";
  return std::string(text.substr(open + 1, close - open - 1));
}

std::optional<std::string> read_small_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::string text(1 << 20, '\0');
  in.read(text.data(), text.size());
  text.resize(in.gcount());
  return text;
}

}  // namespace hearth::cli
