// The machine's power and this process's memory, from files in the kernel's format.

#include "daemon/worker/observe/machine_meter.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace hearth::worker {
namespace {
namespace fs = std::filesystem;

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "hearth-meter-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
};

TEST_CASE("processors are summed, their parts are not, and restarted counters continue") {
  const Folder folder;
  folder.write("intel-rapl:0/energy_uj", "900000");
  folder.write("intel-rapl:0/max_energy_range_uj", "1000000");
  folder.write("intel-rapl:1/energy_uj", "100");
  folder.write("intel-rapl:1/max_energy_range_uj", "1000000");
  folder.write("intel-rapl:0:0/energy_uj", "5");
  folder.write("intel-rapl:0:0/max_energy_range_uj", "10");
  folder.write("intel-rapl:2/energy_uj", "no number");
  folder.write("dtpm/energy_uj", "7");
  folder.write("statm", "1000 25 3 1 0 5 0\n");
  MachineMeter meter(folder.path, folder.path / "statm");
  meter.read(1'000'000);
  CHECK(meter.power_mw() == 0);
  CHECK(meter.resident_bytes() == 25u * static_cast<uint64_t>(::getpagesize()));
  folder.write("intel-rapl:0/energy_uj", "400000");  // 0.5 J on
  folder.write("intel-rapl:1/energy_uj", "500100");  // 0.5 J on
  meter.read(1'500'000);                             // too early to look
  CHECK(meter.power_mw() == 0);
  meter.read(3'000'000);
  CHECK(meter.power_mw() == 500);
}

TEST_CASE("where the kernel reports nothing, the meter reports nothing") {
  const Folder folder;
  MachineMeter meter(folder.path / "none", folder.path / "none");
  meter.read(1);
  meter.read(2'000'000);
  CHECK(meter.power_mw() == 0);
  CHECK(meter.resident_bytes() == 0);
}

TEST_CASE("this machine, whatever it reports") {
  MachineMeter meter;
  meter.read(1);
  CHECK(meter.resident_bytes() > 0);
}

}  // namespace
}  // namespace hearth::worker
