#include "daemon/worker/load/price_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <utility>

#include "ipc/files/paths.h"
#include "ipc/wire/json.h"

namespace hearth::worker {
namespace fs = std::filesystem;
namespace {

using ipc::Json;

constexpr size_t kMaxBytes = 1 << 16;
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

}  // namespace

PriceFile price_file(const fs::path& folder, const std::string& fingerprint,
                     const std::string& numerics, std::string device) {
  if (folder.empty() || fingerprint.empty() || !ipc::ensure_private_dir(folder).ok()) return {};
  return {folder / fmt::format("{}-{}.json", plain_name(fingerprint), plain_name(numerics)),
          std::move(device)};
}

engine::MeasuredCosts load_prices(const PriceFile& file) {
  std::ifstream in(file.path, std::ios::binary);
  if (file.path.empty() || !in.is_open()) return {};
  std::string text(kMaxBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  const Result<Json> object = ipc::parse_json_object(text, kLimits);
  if (!object.ok() || object->value("device", Json()) != file.device) return {};
  const Json list = object->value("prefill_token_us", Json());
  if (!list.is_array()) return {};
  engine::MeasuredCosts prices;
  for (const Json& each : list) {
    if (!each.is_number()) return {};
    prices.token_us.push_back(each.get<double>());
  }
  return prices;
}

void save_prices(const PriceFile& file, const engine::MeasuredCosts& prices) {
  const bool any = std::ranges::any_of(prices.token_us, [](double us) { return us > 0; });
  if (file.path.empty() || !any) return;
  Json object = Json::object();
  object["made"] = today();
  object["device"] = file.device;
  object["prefill_token_us"] = prices.token_us;
  // Renamed into place, so that no reader sees half of it.
  const fs::path part = file.path.string() + fmt::format(".{}", ::getpid());
  std::error_code ignored;
  std::ofstream out(part, std::ios::binary);
  out << ipc::dump_json(object) << "\n";
  out.close();
  if (out) {
    fs::rename(part, file.path, ignored);
  } else {
    fs::remove(part, ignored);
  }
}

}  // namespace hearth::worker
