#pragma once
// The free memory of the machine and of this process's control group, and whether processes wait
// for memory.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/broker/process/descriptor.h"
#include "kernels/base/clock.h"

namespace hearth::broker {

/// Reads the system a few times a second at most, pressure once a second. Its files are found once
/// and stay open, because opening them costs more than reading. Used by one thread.
class MemoryWatch {
 public:
  /// `root`: precedes the paths of the kernel's files; for tests.
  explicit MemoryWatch(const Clock& clock, const std::string& root = "");
  /// Memory that a process may still take: the kernel's MemAvailable, or the room in our control
  /// group if that is less. 0: unknown.
  uint64_t available_bytes();
  /// Whether processes that wait for memory stall for more than kPressedPercent of the time, on the
  /// machine or in our control group.
  bool pressed();

 private:
  void open_group(const std::string& root);
  void read();
  uint64_t room_in_group(uint64_t enough);
  std::string_view text_of(const Descriptor& file);

  const Clock& clock_;
  Descriptor meminfo_;
  std::array<Descriptor, 2> pressures_;  // of the machine and of the group
  // Of the group; without a limit none is open.
  Descriptor limit_;
  Descriptor usage_;
  Descriptor statistics_;
  std::string_view inactive_;  // key of the file pages that were not used lately
  std::string text_;           // of the file that was read last
  int64_t next_us_ = INT64_MIN;
  int64_t next_pressure_us_ = INT64_MIN;
  uint64_t available_bytes_ = 0;
  bool pressed_ = false;
};

inline constexpr double kPressedPercent = 10;

/// The share of the last 10 s in which some process stalled, in percent, from the text of
/// /proc/pressure/memory; 0: not found.
double parse_pressure(std::string_view text);

/// The path of our control group from the text of /proc/self/cgroup: of a version 1 controller, or
/// with "" that of version 2; "": there is none.
std::string group_path(std::string_view groups, std::string_view controller);

/// MemAvailable from the text of /proc/meminfo, in bytes; 0: not found.
uint64_t parse_available(std::string_view meminfo);

}  // namespace hearth::broker
