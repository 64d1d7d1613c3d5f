#include "daemon/broker/config/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>

#include "daemon/broker/config/settings.h"
#include "daemon/http/guard.h"
#include "daemon/http/requests/volatile_lines.h"
#include "daemon/http/tls.h"
#include "ipc/wire/curve.h"
#include "kernels/base/chars.h"

namespace hearth::broker {
namespace {

Error invalid(const char* key, const std::string& value, const char* want) {
  return Error::invalid(fmt::format("{} is \"{}\": {}", key, value, want), key);
}

/// scheme://host[:port], as browsers write it.
bool is_origin(const std::string& text) {
  const size_t scheme = text.find("://");
  if (scheme == 0 || scheme == text.npos) return false;
  const std::string host = text.substr(scheme + 3);
  return !host.empty() && host.find_first_of("/?# *") == host.npos;
}

Result<void> check_http(const HttpConfig& http) {
  if (!http.enabled) return {};
  for (const std::string& origin : http.allowed_origins) {
    if (origin == "*") {
      return invalid("http.allowed_origins", origin,
                     "every page that a browser shows could ask; want the origins of those that "
                     "may, such as \"http://localhost:3000\"");
    }
    if (!is_origin(origin)) {
      return invalid("http.allowed_origins", origin, "want scheme://host[:port] without a path");
    }
  }
  for (const std::string& pattern : http.volatile_lines) {
    if (http::is_line_pattern(pattern)) continue;
    return invalid("http.volatile_lines", pattern,
                   "want part of a line of at least four characters, with * for what changes");
  }
  for (const std::string& address : http.trusted_proxy) {
    if (!address.empty() && http::canonical_address(address) == address) continue;
    return invalid("http.trusted_proxy", address, "want literal addresses, such as \"192.0.2.1\"");
  }
  if (http.listen.empty()) return {};
  HEARTH_ASSIGN_OR_RETURN(const http::Endpoint endpoint, http::parse_endpoint(http.listen));
  if (!http.keys_file.empty()) HEARTH_TRY(http::Keys::load(http.keys_file));
  const bool certificate = !http.tls_certificate_file.empty();
  if (certificate != !http.tls_key_file.empty()) {
    return Error::invalid("http: want both tls_certificate_file and tls_key_file, or neither",
                          "http.tls_certificate_file");
  }
  if (certificate) {
    HEARTH_TRY(http::TlsIdentity::load(http.tls_certificate_file, http.tls_key_file));
  }
  if (endpoint.loopback) return {};
  if (http.keys_file.empty()) {
    return invalid("http.listen", http.listen,
                   "other machines reach it; want http.keys_file, too, so that each request shows "
                   "a key");
  }
  if (!certificate && http.trusted_proxy.empty()) {
    return invalid("http.listen", http.listen,
                   "other machines reach it, and keys would cross the network in the open; want "
                   "http.tls_certificate_file and http.tls_key_file, or http.trusted_proxy with "
                   "the addresses of the proxy that speaks TLS");
  }
  return {};
}

Result<void> check_tcp(const ServerConfig& server) {
  if (server.tcp.empty()) return {};
  const size_t colon = server.tcp.rfind(':');
  const std::string port = colon == server.tcp.npos ? "" : server.tcp.substr(colon + 1);
  const bool number = !port.empty() && port.size() <= 5 &&
                      std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
  if (colon == 0 || !number || std::stoi(port) > 65'535) {
    return invalid("server.tcp", server.tcp, "want ADDRESS:PORT");
  }
  if (server.tcp_secret_file.empty() || server.tcp_clients_file.empty()) {
    return Error::invalid(
        "server.tcp: want server.tcp_secret_file (hearth keygen) and "
        "server.tcp_clients_file, too: no client connects without a key",
        "server");
  }
  HEARTH_TRY(ipc::read_secret_key(server.tcp_secret_file));
  HEARTH_TRY(ipc::read_client_keys(server.tcp_clients_file));
  return {};
}

Result<void> check_kv_address(const char* key, const std::string& address) {
  if (address.empty()) return {};
  HEARTH_ASSIGN_OR_RETURN(const http::Endpoint endpoint, http::parse_endpoint(address, key));
  if (endpoint.loopback) return {};
  return invalid(key, address,
                 "other machines reach it, and KV events have neither keys nor encryption; want a "
                 "loopback address, which a tunnel (ssh -L) or a proxy with TLS forwards");
}

Result<void> check_kv_events(const KvEventsConfig& kv_events) {
  HEARTH_TRY(check_kv_address("kv_events.listen", kv_events.listen));
  HEARTH_TRY(check_kv_address("kv_events.replay_listen", kv_events.replay_listen));
  const auto fits = [](char c) { return is_ascii_alnum(c) || c == '.' || c == '_' || c == '-'; };
  if (kv_events.pod.size() <= 64 && std::ranges::all_of(kv_events.pod, fits)) return {};
  return invalid("kv_events.pod", kv_events.pod,
                 "want up to 64 letters, digits, '.', '_' and '-': topics are kv@POD@MODEL");
}

/// The cores that this process may use.
std::vector<int32_t> usable_cores() {
  cpu_set_t set;
  std::vector<int32_t> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int32_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

Result<void> check_device(const std::string& name, const DeviceConfig& device) {
  const std::string key = "devices." + name;
  if (std::ranges::count(kDeviceKinds, name) > 0 || name.find('@') != name.npos) {
    return invalid(key.c_str(), name, "want a name without @ that is not a kind of device");
  }
  if (device.kind != "cpu" && (!device.cores.empty() || device.threads > 0)) {
    return invalid((key + ".kind").c_str(), device.kind, "only a cpu has cores and threads");
  }
  const std::vector<int32_t> usable = usable_cores();
  for (const int32_t core : device.cores) {
    if (usable.empty() || std::ranges::count(usable, core) > 0) continue;
    return Error::invalid(fmt::format("{}.cores: met {}, this process may use the cores {}", key,
                                      core, fmt::join(usable, ", ")),
                          key);
  }
  return {};
}

/// Each of `devices`, the value of `key`, exists and is named once.
Result<void> check_known(const std::string& key, const std::vector<std::string>& devices,
                         const Config& config) {
  std::vector<std::string> known = kDeviceKinds;
  for (const auto& [name, device] : config.devices) known.push_back(name);
  for (const std::string& device : devices) {
    const bool twice = std::ranges::count(devices, device) > 1;
    if (!twice && std::ranges::count(known, device) > 0) continue;
    return Error::invalid(fmt::format("{}: met \"{}\"{}, want some of {}", key, device,
                                      twice ? " twice" : "", fmt::join(known, ", ")),
                          key);
  }
  return {};
}

Result<void> check_devices_of(const std::string& model, const Config& config) {
  const std::string key = "models." + model + ".devices";
  const std::vector<std::string> devices = config.devices_of(model);
  if (devices.empty()) return {};
  if (devices.size() > kMaxReplicas || config.models.at(model).device) {
    return Error::invalid(fmt::format("{}: want at most {} devices, and no models.{}.device", key,
                                      kMaxReplicas, model),
                          key);
  }
  return check_known(key, devices, config);
}

Result<void> check_stages_of(const std::string& model, const Config& config) {
  const ModelConfig& own = config.models.at(model);
  const bool split = config.is_split(model);
  const std::string key = fmt::format("models.{}.{}", model, split ? "split" : "stages");
  const std::vector<std::string> stages = config.stages_of(model);
  if (split && own.stages) {
    return Error::invalid(fmt::format("{}: want no models.{}.stages", key, model), key);
  }
  if ((stages.empty() && !split) || config.experts_apart(model)) return {};
  if (stages.size() < 2 || stages.size() > kMaxReplicas || own.device || own.devices) {
    return Error::invalid(fmt::format("{0}: want 2 to {1} devices, and neither models.{2}.device "
                                      "nor models.{2}.devices",
                                      key, kMaxReplicas, model),
                          key);
  }
  HEARTH_TRY(check_known(key, stages, config));
  for (const std::string& stage : stages) {
    const std::string kind = config.device(stage).kind;
    if (kind != "auto") continue;
    return Error::invalid(
        fmt::format("{}: {} is of kind auto, want devices of kind cpu or cuda:N", key, stage), key);
  }
  if (config.worker_of(model).mapping == "memory") return {};
  return Error::invalid(
      fmt::format("{}: mapping is \"file\", want \"memory\": the devices hold their "
                  "weights in memory",
                  key),
      key);
}

Result<void> check_experts_of(const std::string& model, const Config& config) {
  const std::string key = "models." + model + ".experts";
  const ModelConfig& own = config.models.at(model);
  if (!own.experts && own.hot_expert_bytes) {
    return Error::invalid(
        fmt::format("models.{0}.hot_expert_bytes: want models.{0}.experts, too", model),
        "models." + model + ".hot_expert_bytes");
  }
  if (!own.experts) return {};
  if (own.stages || own.split || own.devices) {
    return Error::invalid(fmt::format("{0}: want neither models.{1}.stages nor models.{1}.devices "
                                      "nor models.{1}.split",
                                      key, model),
                          key);
  }
  HEARTH_TRY(check_known(key, {*own.experts}, config));
  const std::string kind = config.device(*own.experts).kind;
  if (kind != "cpu") {
    return Error::invalid(
        fmt::format("{}: {} is of kind {}, want a device of kind cpu", key, *own.experts, kind),
        key);
  }
  if (config.worker_of(model).mapping == "memory") return {};
  return Error::invalid(fmt::format("{}: mapping is \"file\", want \"memory\"", key), key);
}

}  // namespace

Result<void> check_config(const Config& config) {
  HEARTH_TRY(check_http(config.http));
  HEARTH_TRY(check_kv_events(config.kv_events));
  for (const auto& [role, remote] : config.remotes) HEARTH_TRY(check_remote(role, remote));
  for (const auto& [name, device] : config.devices) HEARTH_TRY(check_device(name, device));
  for (const auto& [name, model] : config.models) HEARTH_TRY(check_devices_of(name, config));
  for (const auto& [name, model] : config.models) HEARTH_TRY(check_stages_of(name, config));
  for (const auto& [name, model] : config.models) HEARTH_TRY(check_experts_of(name, config));
  return check_tcp(config.server);
}

}  // namespace hearth::broker
