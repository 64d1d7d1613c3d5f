#pragma once
// This process's resident memory, and the power of the machine's processors if the kernel reports
// it (powercap's energy counters, which most systems show only to root). One thread.

#include <cstdint>
#include <filesystem>
#include <vector>

namespace hearth::worker {

class MachineMeter {
 public:
  static constexpr int64_t kEveryUs = 1'000'000;

  /// `powercap`: /sys/class/powercap; `statm`: /proc/self/statm. Tests pass others.
  explicit MachineMeter(const std::filesystem::path& powercap = "/sys/class/powercap",
                        std::filesystem::path statm = "/proc/self/statm");

  /// Reads again if the last reading is old enough.
  void read(int64_t now_us);
  uint64_t resident_bytes() const { return resident_bytes_; }  ///< 0: unknown
  int64_t power_mw() const { return power_mw_; }  ///< mean since the last reading; 0: unknown

 private:
  struct Package {
    std::filesystem::path energy;  ///< a file with microjoules, which wrap around at `range_uj`
    uint64_t range_uj = 0;
    uint64_t last_uj = 0;
  };

  std::filesystem::path statm_;
  std::vector<Package> packages_;
  int64_t read_us_ = 0;  ///< 0: never
  uint64_t resident_bytes_ = 0;
  int64_t power_mw_ = 0;
};

}  // namespace hearth::worker
