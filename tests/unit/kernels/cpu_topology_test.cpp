#include "kernels/host/cpu_topology.h"

#include <doctest/doctest.h>

#include "kernels/host/cgroup.h"
#include "kernels/host/cpu_features.h"
#include "kernels/ops.h"
#include "tests/unit/kernels/fake_root.h"

namespace hearth::kernels {
namespace {

using Cpus = std::vector<int32_t>;

TEST_CASE("cpu lists as the kernel writes them") {
  CHECK(parse_cpu_list("0-3,8,10-11\n") == Cpus{0, 1, 2, 3, 8, 10, 11});
  CHECK(parse_cpu_list("5") == Cpus{5});
  CHECK(parse_cpu_list("") == Cpus{});
}

TEST_CASE("text that is not a cpu list gives nothing") {
  for (const char* text : {"a", "1,", ",1", "3-1", "1--2", "-1", "1-", "1 2", "0-99999999",
                           "99999999999999999999", "1;2"}) {
    CHECK_MESSAGE(!parse_cpu_list(text).has_value(), text);
  }
}

TEST_CASE("threads of one core count once; CPUs without topology count as cores") {
  FakeRoot root;
  const std::string cpu = "sys/devices/system/cpu/cpu";
  root.write(cpu + "0/topology/thread_siblings_list", "0,4\n");
  root.write(cpu + "4/topology/thread_siblings_list", "0,4\n");
  root.write(cpu + "1/topology/thread_siblings_list", "1,5\n");
  root.write(cpu + "5/topology/thread_siblings_list", "1,5\n");
  root.write(cpu + "2/topology/thread_siblings_list", "nonsense\n");
  CHECK(physical_cores({0, 1, 4, 5}, root.path()) == 2);
  CHECK(physical_cores({4, 5}, root.path()) == 2);
  CHECK(physical_cores({0, 4}, root.path()) == 1);
  CHECK(physical_cores({0, 2, 3, 4}, root.path()) == 3);
  CHECK(physical_cores({}, root.path()) == 0);
}

TEST_CASE("cgroup limits: the tightest of all parents, rounded up") {
  FakeRoot root;
  CHECK_FALSE(cgroup_cpus(root.path()).has_value());
  root.write("proc/self/cgroup", "0::/user.slice/app\n");
  root.write("sys/fs/cgroup/user.slice/app/cpu.max", "max 100000\n");
  CHECK_FALSE(cgroup_cpus(root.path()).has_value());
  root.write("sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
  CHECK(cgroup_cpus(root.path()) == 3);
  root.write("sys/fs/cgroup/user.slice/app/cpu.max", "50000 100000\n");
  CHECK(cgroup_cpus(root.path()) == 1);
  root.write("sys/fs/cgroup/user.slice/app/cpu.max", "0 0\n");
  root.write("sys/fs/cgroup/user.slice/cpu.max", "1e300 1\n");
  CHECK(cgroup_cpus(root.path()) == 65536);
}

TEST_CASE("a cgroup path that leaves the namespace means the root") {
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/../../other\n");
  root.write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  CHECK(cgroup_directories(root.path()).size() == 1);
  CHECK(cgroup_cpus(root.path()) == 1);
}

TEST_CASE("the brand string, or none") {
  FakeRoot root;
  CHECK(cpu_name(root.path()) == "unknown CPU");
  root.write("proc/cpuinfo", "processor : 0\nmodel name\t: Example 9000 @ 3 GHz\nflags : fpu\n");
  CHECK(cpu_name(root.path()) == "Example 9000 @ 3 GHz");
  root.write("proc/cpuinfo",
             "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\nCPU revision\t: 3\n");
  CHECK(cpu_name(root.path()) == "CPU 0x41:0xd08");
}

TEST_CASE("this machine has at least one core, and variants follow from the features") {
  CHECK(usable_cores() >= 1);
  const CpuFeatures features = cpu_features();
  const std::vector<std::string> variants = cpu_variants();
  CHECK(variants.front() == "plain");
  CHECK(variants.size() == 1u + features.avx2 + features.avx2vnni + features.avx512 +
                               features.avx512vnni + features.neon + features.neondot);
  CHECK((!features.avx512vnni || features.avx512));
  CHECK((!features.avx512 || features.avx2));
  CHECK((!features.neondot || features.neon));
}

TEST_CASE("a table names its CPU, and refuses variants this CPU does not have") {
  const auto best = cpu_ops({});
  REQUIRE(best.ok());
  CHECK(best->device.kind == "cpu");
  CHECK(best->device.variant == cpu_variants().back());
  CHECK(best->device.num_threads == usable_cores());
  CHECK(best->device.memory_bytes > 0);

  const auto unknown = cpu_ops({.num_threads = 1, .variant = "sse1"});
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().code == ErrorCode::kUnsupported);
  CHECK(unknown.error().message.find("plain") != std::string::npos);
  for (const int32_t threads : {-1, 1 << 20}) {
    const auto refused = cpu_ops({.num_threads = threads, .variant = ""});
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == ErrorCode::kInvalidArgument);
  }
}

TEST_CASE("device memory: zeroed, aligned, owned; too much is an error with the size") {
  for (const OpTable& ops : {reference_ops(), cpu_ops({.num_threads = 1, .variant = ""}).value()}) {
    auto buffer = DeviceBuffer::allocate(ops, 3000, "test");
    REQUIRE(buffer.ok());
    CHECK(reinterpret_cast<uintptr_t>(buffer->data()) % 64 == 0);
    CHECK(buffer->as<uint64_t>()[374] == 0);
    const auto refused = DeviceBuffer::allocate(ops, size_t{1} << 62, "everything");
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == ErrorCode::kOutOfMemory);
    CHECK(refused.error().message.find("everything") != std::string::npos);
  }
}

}  // namespace
}  // namespace hearth::kernels
