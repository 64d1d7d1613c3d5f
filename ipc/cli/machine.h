#pragma once
// What the doctor reads of the machine, from the texts that the kernel gives; parsed apart from
// being read, so that tests can give the texts.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace hearth::cli {

struct CpuFacts {
  std::string model;            ///< "Intel(R) Xeon(R) ..."; empty where the kernel does not say
  std::set<std::string> flags;  ///< as the kernel names them
  int num_threads = 0;          ///< logical processors
  int num_cores = 0;            ///< physical ones; 0: not said
};
/// Text of /proc/cpuinfo (x86-64 and aarch64).
CpuFacts parse_cpuinfo(std::string_view text);
/// The instruction sets among `flags` that hearth has kernels for, best last: "avx2 avx512 vnni".
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

/// The file's text (at most 1 MiB), or nothing where it cannot be read.
std::optional<std::string> read_small_file(const std::string& path);

}  // namespace hearth::cli
