#include <doctest/doctest.h>

#include <algorithm>

#include "daemon/broker/config/reload.h"

namespace hearth::broker {
namespace {

Config config_of(std::string_view text) {
  Config config;
  const Result<void> read = apply_toml(text, "f.toml", &config);
  REQUIRE_MESSAGE(read.ok(), (read.ok() ? "" : read.error().message));
  return config;
}

std::vector<std::string> keys(const std::vector<Setting>& settings) {
  std::vector<std::string> out;
  for (const Setting& setting : settings) out.push_back(setting.key);
  return out;
}

TEST_CASE("reloadable settings are applied, others are named and stay") {
  Config running = config_of("[server]\nruntime_dir = \"/a\"\n[limits]\nmax_requests = 5\n");
  const Config next = config_of(
      "[server]\nruntime_dir = \"/b\"\nlog_level = \"debug\"\n"
      "[limits]\nmax_requests = 7\nmax_message_bytes = 2048\noutput_buffer_bytes = 8192\n"
      "[residency]\nmemory_bytes = 9\nkeep_alive_ms = 3\n[worker]\nthreads = 2\n");
  const ConfigChanges changes = take_over(next, &running);
  CHECK(keys(changes.taken) == std::vector<std::string>{"server.log_level", "limits.max_requests",
                                                        "residency.keep_alive_ms",
                                                        "worker.threads"});
  CHECK(keys(changes.refused) ==
        std::vector<std::string>{"server.runtime_dir", "limits.max_message_bytes",
                                 "limits.output_buffer_bytes", "residency.memory_bytes"});
  CHECK(running.server.runtime_dir == "/a");
  CHECK(running.server.log_level == LogLevel::kDebug);
  CHECK(running.limits.max_requests == 7);
  CHECK(running.limits.max_message_bytes == LimitsConfig().max_message_bytes);
  CHECK(running.limits.output_buffer_bytes == LimitsConfig().output_buffer_bytes);
  CHECK(running.residency.memory_bytes == 0);
  CHECK(running.residency.keep_alive_ms == 3);
  CHECK(running.worker.threads == 2);
  CHECK(running.sources.at("limits.max_requests") == "f.toml:5");
  CHECK(changes.roles.empty());
  CHECK(keys(take_over(next, &running).refused).size() == 4);  // reported each time
  CHECK(take_over(next, &running).taken.empty());
}

TEST_CASE("every setting is either reloaded or named") {
  const Config defaults;
  for (const Setting& setting : list_settings(defaults)) {
    CAPTURE(setting.key);
    Config running, next;
    // Another value of the same type.
    std::string value = setting.value;
    if (value == "true" || value == "false") {
      value = value == "true" ? "false" : "true";
    } else if (value.front() == '"' || value.front() == '[') {
      continue;  // names and choices are tested below and above
    } else {
      value = value.find('.') != value.npos ? "0.5" : "2048";
    }
    if (!apply_assignment(setting.key + "=" + value, &next).ok()) continue;
    const ConfigChanges changes = take_over(next, &running);
    REQUIRE(changes.taken.size() + changes.refused.size() == 1);
    const std::vector<Setting> now = list_settings(running);
    const auto at = std::ranges::find(now, setting.key, &Setting::key);
    REQUIRE(at != now.end());
    CHECK((at->value == value) == is_reloadable(setting.key));
  }
}

TEST_CASE("settings of single models are reloaded: new, changed and removed ones") {
  Config running = config_of(
      "[models.a]\nkv_type = \"f32\"\nkeep_alive_ms = 5\n[models.\"b.c\"]\ndraft = \"none\"\n");
  const Config next = config_of("[models.a]\nkv_type = \"q8_0\"\n[models.d]\nkv_bytes = 7\n");
  const ConfigChanges changes = take_over(next, &running);
  std::vector<std::string> taken = keys(changes.taken);
  std::ranges::sort(taken);
  CHECK(taken == std::vector<std::string>{"models.\"b.c\".draft", "models.a.keep_alive_ms",
                                          "models.a.kv_type", "models.d.kv_bytes"});
  CHECK(changes.refused.empty());
  CHECK(running.worker_of("a").kv_type == "q8_0");
  CHECK(running.keep_alive_ms("a") == ResidencyConfig().keep_alive_ms);
  CHECK(running.worker_of("b.c").draft == "auto");
  CHECK(running.worker_of("d").kv_bytes == 7);
  CHECK(running.sources.at("models.d.kv_bytes") == "f.toml:4");
}

TEST_CASE("roles that point elsewhere, are new, or are gone") {
  Config running = config_of("[roles]\na = \"one\"\nb = \"two\"\nc = \"three\"\n");
  const Config next = config_of("[roles]\na = \"one\"\nb = \"other\"\nd = \"four\"\n");
  ConfigChanges changes = take_over(next, &running);
  std::ranges::sort(changes.roles);
  CHECK(changes.roles == std::vector<std::string>{"b", "c", "d"});
  CHECK(running.roles == next.roles);
}

}  // namespace
}  // namespace hearth::broker
