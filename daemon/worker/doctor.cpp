#include "daemon/worker/doctor.h"

#include <fmt/format.h>

#include <cstdio>

#include "ipc/version.h"

namespace hearth::worker {
namespace {

std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

}  // namespace

int run_doctor(const DeviceOptions& options, bool as_json) {
  DeviceReport report = describe_device(options);
  report.facts.insert(report.facts.begin(),
                      {{"program", std::string("hearth-worker-") + std::string(device_kind())},
                       {"version", std::string(ipc::version())}});
  if (as_json) {
    // Flat, in order, every value a string: the command line prints what it is given.
    std::string out = "{";
    for (const auto& [name, value] : report.facts) {
      out += fmt::format("{}{}:{}", out.size() > 1 ? "," : "", json_text(name), json_text(value));
    }
    std::printf("%s,\"usable\":%s}\n", out.c_str(), report.usable ? "true" : "false");
  } else {
    for (const auto& [name, value] : report.facts) {
      std::printf("%-16s %s\n", name.c_str(), value.c_str());
    }
  }
  return report.usable ? 0 : 1;
}

}  // namespace hearth::worker
