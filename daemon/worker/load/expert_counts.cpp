#include "daemon/worker/load/expert_counts.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <tuple>

#include "ipc/files/paths.h"
#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace fs = std::filesystem;
namespace {

/// More than any model has.
constexpr size_t kMostLayers = 4096, kMostExperts = 65536;

}  // namespace

fs::path expert_count_file(const fs::path& folder, const std::string& name) {
  if (!ipc::ensure_private_dir(folder).ok()) return {};
  return folder / name;
}

// A line for each layer.
ExpertCounts load_expert_counts(const fs::path& file) {
  std::ifstream in(file);
  ExpertCounts counts;
  std::string line;
  while (!file.empty() && std::getline(in, line)) {
    if (counts.size() == kMostLayers) return {};
    std::istringstream numbers(line);
    std::vector<uint64_t>& layer = counts.emplace_back();
    uint64_t count = 0;
    while (numbers >> count) {
      if (layer.size() == kMostExperts || count > UINT64_MAX / 4) return {};
      layer.push_back(count);
    }
    if (!numbers.eof() || count == UINT64_MAX) return {};  // not a number, or too large a one
  }
  return counts;
}

void add_expert_counts(const fs::path& file, const ExpertCounts& counts) {
  if (file.empty() || counts.empty()) return;
  const ExpertCounts before = load_expert_counts(file);
  const fs::path part = file.string() + "." + std::to_string(::getpid());
  std::ofstream out(part);
  for (size_t layer = 0; layer < counts.size(); ++layer) {
    for (size_t expert = 0; expert < counts[layer].size(); ++expert) {
      const bool known = layer < before.size() && expert < before[layer].size();
      out << counts[layer][expert] + (known ? before[layer][expert] / 2 : 0) << ' ';
    }
    out << '\n';
  }
  out.close();
  std::error_code ignored;
  if (out) {
    fs::rename(part, file, ignored);
  } else {
    fs::remove(part, ignored);
  }
}

models::HotExperts hot_experts(const ExpertCounts& counts, uint64_t bytes_each, uint64_t bytes) {
  struct Chosen {
    uint64_t count;
    size_t layer;
    int32_t expert;
  };
  std::vector<Chosen> all;
  for (size_t layer = 0; layer < counts.size(); ++layer) {
    for (size_t expert = 0; expert < counts[layer].size(); ++expert) {
      const uint64_t count = counts[layer][expert];
      if (count > 0) all.push_back({count, layer, narrow<int32_t>(expert)});
    }
  }
  std::ranges::sort(all, [](const Chosen& a, const Chosen& b) {
    return std::tuple(b.count, a.layer, a.expert) < std::tuple(a.count, b.layer, b.expert);
  });
  const size_t fit = bytes_each == 0 ? 0 : bytes / bytes_each;
  all.resize(std::min(all.size(), fit));
  models::HotExperts hot(counts.size());
  for (const Chosen& chosen : all) hot[chosen.layer].push_back(chosen.expert);
  for (std::vector<int32_t>& layer : hot) std::ranges::sort(layer);
  return hot;
}

}  // namespace hearth::worker
