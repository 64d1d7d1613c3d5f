#include "daemon/broker/config/reload.h"

#include <algorithm>
#include <array>
#include <map>

namespace hearth::broker {
namespace {

// Not reloadable: the socket paths, the administrators, and whatever sizes resources taken at
// start.
constexpr std::array<std::string_view, 14> kReloadable = {"server.model_dirs",
                                                          "server.other_model_dirs",
                                                          "server.log_level",
                                                          "server.drain_timeout_ms",
                                                          "server.sleep_closes",
                                                          "limits.max_requests",
                                                          "limits.max_requests_per_owner",
                                                          "limits.max_queued_bytes",
                                                          "limits.max_queued_bytes_per_owner",
                                                          "limits.max_output_tokens_per_owner",
                                                          "limits.max_resident",
                                                          "limits.attach_bytes_per_owner",
                                                          "limits.attach_bytes",
                                                          "limits.attach_keep_ms"};

}  // namespace

bool is_reloadable(std::string_view key) {
  if (key == "residency.memory_bytes") return false;
  if (key.starts_with("devices.") && key.ends_with(".memory_bytes")) return false;
  // Workers receive theirs at start.
  for (const std::string_view section :
       {"residency.", "worker.", "sampling.", "roles.", "devices.", "models.", "owners."}) {
    if (key.starts_with(section)) return true;
  }
  return std::ranges::count(kReloadable, key) > 0;
}

ConfigChanges take_over(const Config& next, Config* running) {
  std::map<std::string, Setting> before;
  for (Setting& setting : list_settings(*running)) before.emplace(setting.key, std::move(setting));
  ConfigChanges changes;
  for (const Setting& setting : list_settings(next)) {
    const auto old = before.find(setting.key);
    const bool same = old != before.end() && old->second.value == setting.value;
    if (old != before.end()) before.erase(old);
    if (same) continue;
    (is_reloadable(setting.key) ? changes.taken : changes.refused).push_back(setting);
  }
  // The remaining entries are from sections with free-form keys, and were removed.
  for (auto& [key, setting] : before) {
    setting.value = "(gone)";
    changes.taken.push_back(std::move(setting));
  }
  const auto note_roles = [&](const auto& some, const auto& others) {
    for (const auto& [role, model] : some) {
      const auto other = others.find(role);
      const bool differs = other == others.end() || other->second != model;
      if (differs && std::ranges::count(changes.roles, role) == 0) changes.roles.push_back(role);
    }
  };
  note_roles(running->roles, next.roles);
  note_roles(next.roles, running->roles);

  running->server.model_dirs = next.server.model_dirs;
  running->server.other_model_dirs = next.server.other_model_dirs;
  running->server.log_level = next.server.log_level;
  running->server.drain_timeout_ms = next.server.drain_timeout_ms;
  running->server.sleep_closes = next.server.sleep_closes;
  LimitsConfig limits = next.limits;
  limits.max_message_bytes = running->limits.max_message_bytes;
  limits.output_buffer_bytes = running->limits.output_buffer_bytes;
  limits.max_connections = running->limits.max_connections;
  limits.max_connections_per_owner = running->limits.max_connections_per_owner;
  running->limits = limits;
  const int64_t memory_bytes = running->residency.memory_bytes;
  running->residency = next.residency;
  running->residency.memory_bytes = memory_bytes;
  running->worker = next.worker;
  running->sampling = next.sampling;
  running->roles = next.roles;
  running->remotes = next.remotes;
  running->devices = next.devices;
  running->models = next.models;
  running->owners = next.owners;
  for (const auto& [key, source] : next.sources) {
    if (is_reloadable(key)) running->sources[key] = source;
  }
  return changes;
}

}  // namespace hearth::broker
