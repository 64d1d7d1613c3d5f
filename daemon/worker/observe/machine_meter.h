#pragma once
// What this process holds in memory, and what the machine's processors draw, where the kernel tells
// (powercap's energy counters, which most systems show to root alone). One thread.

#include <cstdint>
#include <filesystem>
#include <vector>

namespace hearth::worker {

class MachineMeter {
 public:
  static constexpr int64_t kEveryUs = 1'000'000;

  /// `powercap`: /sys/class/powercap; `statm`: /proc/self/statm. Others for tests.
  explicit MachineMeter(const std::filesystem::path& powercap = "/sys/class/powercap",
                        std::filesystem::path statm = "/proc/self/statm");

  /// Looks again where the last look was long enough ago.
  void read(int64_t now_us);
  uint64_t resident_bytes() const { return resident_bytes_; }  ///< 0: not known
  int64_t power_mw() const { return power_mw_; }  ///< mean since the last look; 0: not known

 private:
  struct Package {
    std::filesystem::path energy;  ///< a file: microjoules, beginning again at `range_uj`
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
