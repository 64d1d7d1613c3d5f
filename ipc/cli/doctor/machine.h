#pragma once
// Facts about the machine for the doctor, parsed from the kernel's text files. Parsing is separate
// from reading so that tests can supply the texts.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace hearth::cli {

struct CpuFacts {
  std::string model;            ///< "Intel(R) Xeon(R) ..."; empty if the kernel does not name it
  std::set<std::string> flags;  ///< as the kernel names them
  int num_threads = 0;          ///< logical processors
  int num_cores = 0;            ///< physical cores; 0: not known
};
/// Text of /proc/cpuinfo (x86-64 and aarch64).
CpuFacts parse_cpuinfo(std::string_view text);
/// The instruction sets among `flags` for which hearth has kernels, best last: "avx2 avx512 vnni".
std::string useful_features(const CpuFacts& cpu);

struct MemoryFacts {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;
  uint64_t huge_page_bytes = 0;
};
/// Text of /proc/meminfo.
MemoryFacts parse_meminfo(std::string_view text);
/// The chosen word of /sys/kernel/mm/transparent_hugepage/enabled: "always [madvise] never".
std::string parse_choice(std::string_view text);

/// The file's text (at most 1 MiB), or nothing if it cannot be read.
std::optional<std::string> read_small_file(const std::string& path);

}  // namespace hearth::cli
