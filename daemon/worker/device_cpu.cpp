#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "daemon/worker/device.h"

namespace hearth::worker {
namespace {

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line.empty() ? "not there" : line;
}

std::string gib(uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1u << 30));
}

std::string allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return "not known";
  return fmt::format("{} of {}", CPU_COUNT(&set), ::sysconf(_SC_NPROCESSORS_ONLN));
}

std::string limit_text(int resource, bool is_bytes) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return "not known";
  if (limit.rlim_cur == RLIM_INFINITY) return "no limit";
  return is_bytes ? gib(limit.rlim_cur) : fmt::format("{}", limit.rlim_cur);
}

kernels::CpuOptions to_kernels(const DeviceOptions& options) {
  return {.num_threads = options.threads, .variant = options.cpu_variant};
}

}  // namespace

std::string_view device_kind() { return "cpu"; }

Result<kernels::OpTable> open_device(const DeviceOptions& options) {
  return kernels::cpu_ops(to_kernels(options));
}

DeviceReport describe_device(const DeviceOptions& options) {
  DeviceReport report;
  auto& facts = report.facts;
  const std::vector<std::string> variants = kernels::cpu_variants();
  const Result<kernels::OpTable> ops = kernels::cpu_ops(to_kernels(options));
  if (ops) {
    const kernels::DeviceInfo& device = ops->device;
    facts.emplace_back("device", fmt::format("{}: {}", device.kind, device.name));
    facts.emplace_back("variants", fmt::format("{}", fmt::join(variants, ", ")));
    facts.emplace_back(
        "variant",
        fmt::format("{} ({})", device.variant,
                    options.cpu_variant.empty() ? "the best that this CPU can run" : "as asked"));
    facts.emplace_back(
        "threads",
        fmt::format("{} ({})", device.num_threads,
                    options.threads == 0 ? "one per physical core that we may use" : "as asked"));
    facts.emplace_back("memory", fmt::format("{} free of {}", gib(device.memory_free_bytes),
                                             gib(device.memory_bytes)));
    facts.emplace_back("numerics", ops->numerics_id);
  } else {
    report.usable = false;
    facts.emplace_back("device", "cpu");
    facts.emplace_back("variants", fmt::format("{}", fmt::join(variants, ", ")));
    facts.emplace_back("problem", ops.error().message);
  }
  facts.emplace_back("cpus allowed", allowed_cpus());
  facts.emplace_back("huge pages", first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  facts.emplace_back("locked memory", limit_text(RLIMIT_MEMLOCK, true));
  facts.emplace_back("open files", limit_text(RLIMIT_NOFILE, false));
  return report;
}

}  // namespace hearth::worker
