#include "daemon/worker/observe/machine_meter.h"

#include <unistd.h>

#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace fs = std::filesystem;
namespace {

std::optional<uint64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

}  // namespace

MachineMeter::MachineMeter(const fs::path& powercap, fs::path statm) : statm_(std::move(statm)) {
  std::error_code problem;
  for (fs::directory_iterator entry(powercap, problem), end; !problem && entry != end;
       entry.increment(problem)) {
    // "intel-rapl:0" is a whole processor, "intel-rapl:0:1" a part of it.
    const std::string name = entry->path().filename();
    if (!name.starts_with("intel-rapl:") || name.find(':') != name.rfind(':')) continue;
    Package package;
    package.energy = entry->path() / "energy_uj";
    const auto range = number_in(entry->path() / "max_energy_range_uj");
    const auto now = number_in(package.energy);
    if (!range || !now) continue;
    package.range_uj = *range;
    package.last_uj = *now;
    packages_.push_back(std::move(package));
  }
}

void MachineMeter::read(int64_t now_us) {
  if (read_us_ != 0 && now_us - read_us_ < kEveryUs) return;
  const int64_t passed_us = read_us_ == 0 ? 0 : now_us - read_us_;
  read_us_ = now_us;
  std::ifstream in(statm_);
  uint64_t size = 0, resident = 0;
  resident_bytes_ = in >> size >> resident ? resident * (::getpagesize()) : 0;
  uint64_t energy_uj = 0;
  for (Package& package : packages_) {
    const uint64_t now_uj = number_in(package.energy).value_or(package.last_uj);
    energy_uj += now_uj >= package.last_uj ? now_uj - package.last_uj
                                           : now_uj + package.range_uj - package.last_uj;
    package.last_uj = now_uj;
  }
  if (passed_us > 0) {
    power_mw_ = static_cast<int64_t>(as_double(energy_uj) / as_double(passed_us) * 1e3);
  }
}

}  // namespace hearth::worker
