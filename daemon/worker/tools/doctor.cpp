#include "daemon/worker/tools/doctor.h"

#include <fmt/core.h>

#include <cstdio>

#include "ipc/schema/version.h"
#include "kernels/base/chars.h"

namespace hearth::worker {
namespace {

std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += byte_of(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

}  // namespace

int run_doctor(const DeviceOptions& options, bool as_json) {
  std::vector<DeviceCheck> checks = describe_device(options);
  checks.insert(checks.begin(), {"ok", "worker", fmt::format("version {}", ipc::version())});
  std::string json;
  bool usable = true;
  for (const DeviceCheck& check : checks) {
    usable = usable && check.level != "fail";
    if (as_json) {
      json += fmt::format(R"({}{{"level":"{}","name":{},"detail":{}}})", json.empty() ? "" : ",",
                          check.level, json_text(check.name), json_text(check.detail));
    } else {
      std::printf("%-5s %-16s %s\n", std::string(check.level).c_str(), check.name.c_str(),
                  check.detail.c_str());
    }
  }
  if (as_json) std::printf("{\"checks\":[%s]}\n", json.c_str());
  return usable ? 0 : 1;
}

}  // namespace hearth::worker
