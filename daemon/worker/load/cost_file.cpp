#include "daemon/worker/load/cost_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <optional>
#include <utility>

#include "ipc/files/paths.h"
#include "ipc/wire/json.h"
#include "kernels/base/log.h"

namespace hearth::worker {
namespace fs = std::filesystem;
namespace {

using ipc::Json;

constexpr size_t kMaxBytes = 1 << 16;
constexpr const char* kReadRate = "read_bytes_per_s";
constexpr const char* kInt8Rate = "int8_ops_per_s";
constexpr ipc::JsonLimits kLimits{.max_bytes = kMaxBytes, .max_depth = 4};

std::string plain_name(const std::string& text) {
  std::string out = text;
  std::ranges::replace_if(
      out, [](char c) { return !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-'; },
      '_');
  return out;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

/// An id that differs after each boot; empty: unknown.
std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(in, text);
  return text;
}

/// The JSON object in a file, if it is for this device.
std::optional<Json> read_object(const fs::path& path, const std::string& device) {
  std::ifstream in(path, std::ios::binary);
  if (path.empty() || !in.is_open()) return std::nullopt;
  std::string text(kMaxBytes + 1, '\0');
  in.read(text.data(), text.size());
  text.resize(in.gcount());
  Result<Json> object = ipc::parse_json_object(text, kLimits);
  if (!object.ok() || object->value("device", Json()) != device) return std::nullopt;
  return std::move(object).value();
}

/// Renamed into place, so that readers never see a partial file.
void write_object(const fs::path& path, const Json& object) {
  const fs::path part = path.string() + fmt::format(".{}", ::getpid());
  std::error_code ignored;
  std::ofstream out(part, std::ios::binary);
  out << ipc::dump_json(object) << "\n";
  out.close();
  if (out) {
    fs::rename(part, path, ignored);
  } else {
    fs::remove(part, ignored);
  }
}

double number_of(const Json& object, const char* key) {
  const Json value = object.value(key, Json());
  return value.is_number() ? value.get<double>() : 0;
}

bool far_apart(double a, double b) {
  return a > 0 && b > 0 && (a > b * kOtherMachine || b > a * kOtherMachine);
}

}  // namespace

CostFile cost_file(const fs::path& folder, const std::string& fingerprint,
                   const std::string& numerics, std::string device) {
  if (folder.empty() || fingerprint.empty() || !ipc::ensure_private_dir(folder).ok()) return {};
  return {folder / fmt::format("{}-{}.json", plain_name(fingerprint), plain_name(numerics)),
          std::move(device), folder / "ceilings.json"};
}

engine::MeasuredCosts load_costs(const CostFile& file) {
  const std::optional<Json> object = read_object(file.path, file.device);
  if (!object) return {};
  if (const std::optional<Json> now = read_object(file.ceilings, file.device)) {
    for (const char* rate : {kReadRate, kInt8Rate}) {
      const double then = number_of(*object, rate), last = number_of(*now, rate);
      if (!far_apart(then, last)) continue;
      log_info("costs_dropped", "file={} {}={:.3g} now={:.3g}", file.path.filename().string(), rate,
               then, last);
      return {};
    }
  }
  const Json list = object->value("prefill_token_us", Json());
  if (!list.is_array()) return {};
  engine::MeasuredCosts costs;
  for (const Json& each : list) {
    if (!each.is_number()) return {};
    costs.token_us.push_back(each.get<double>());
  }
  return costs;
}

void save_costs(const CostFile& file, const engine::MeasuredCosts& costs) {
  const bool any = std::ranges::any_of(costs.token_us, [](double us) { return us > 0; });
  if (file.path.empty() || !any) return;
  Json object = Json::object();
  object["made"] = today();
  object["device"] = file.device;
  object["prefill_token_us"] = costs.token_us;
  if (has_ceilings(file)) {
    const std::optional<Json> now = read_object(file.ceilings, file.device);
    for (const char* rate : {kReadRate, kInt8Rate}) {
      if (now && number_of(*now, rate) > 0) object[rate] = number_of(*now, rate);
    }
  }
  write_object(file.path, object);
}

bool has_ceilings(const CostFile& file) {
  const std::optional<Json> object = read_object(file.ceilings, file.device);
  return object && object->value("boot", Json()) == boot_id();
}

void note_ceilings(const CostFile& file, const kernels::Ceilings& ceilings) {
  if (file.ceilings.empty()) return;
  Json object = Json::object();
  object["made"] = today();
  object["boot"] = boot_id();
  object["device"] = file.device;
  object[kReadRate] = ceilings.read_bytes_per_s;
  object[kInt8Rate] = ceilings.int8_ops_per_s;
  write_object(file.ceilings, object);
}

}  // namespace hearth::worker
