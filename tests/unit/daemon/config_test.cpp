#include "daemon/broker/config/config.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "daemon/broker/config/check.h"
#include "tests/paths.h"
#include "tests/skip.h"
#include "tests/temp_dir.h"

namespace hearth::broker {
namespace {

std::string error_of(std::string_view text) {
  Config config;
  const Result<void> result = apply_toml(text, "f.toml", &config);
  return result ? "" : result.error().message;
}

TEST_CASE("every key is read") {
  Config config;
  const Result<void> result = apply_toml(R"(
[server]
runtime_dir = "/tmp/x"
state_dir = "/tmp/s"
model_dirs = ["/a", "/b"]
other_model_dirs = ["/c"]
admin_group = "adm"
log_level = "debug"
drain_timeout_ms = 5
start = "loaded"
sleep_closes = "all"
[http]
enabled = false
listen = "127.0.0.1:1"
keys_file = "/k"
allowed_hosts = ["h:1"]
allowed_origins = ["http://o"]
leave_out_volatile_lines = true
volatile_lines = ["now: *"]
max_connections = 9
header_timeout_ms = 201
body_timeout_ms = 202
idle_timeout_ms = 203
write_timeout_ms = 204
[limits]
max_message_bytes = 2048
max_requests = 3
max_requests_per_owner = 2
max_queued_bytes = 4096
output_buffer_bytes = 8192
max_resident = 4
[residency]
memory_bytes = 5000
keep_alive_ms = 6
keep_alive_max_ms = 8
turn_ms = 7
load_on_demand = false
[worker]
program = "/bin/w"
threads = 7
cpu_variant = "avx2"
numerics = "fast"
kv_type = "f32"
kv_bytes = 1000
block_size = 32
context_length = 99
max_seqs = 5
max_step_tokens = 6
policy = "static"
chunked_prefill = false
waiting_served_ratio = 2
prefix_cache = false
speculation = "off"
draft = "small"
prefix_store = false
prefix_store_bytes = 1048577
prefix_ram_bytes = 1048579
prefix_restore = "always"
heartbeat_timeout_ms = 101
load_timeout_ms = 102
restart_delay_ms = 103
restart_delay_max_ms = 104
[roles]
default = "m"
small = "n"
)",
                                         "f.toml", &config);
  REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message));
  CHECK(config.server.runtime_dir == "/tmp/x");
  CHECK(config.server.state_dir == "/tmp/s");
  CHECK(config.server.model_dirs == std::vector<std::filesystem::path>{"/a", "/b"});
  CHECK(config.server.other_model_dirs == std::vector<std::filesystem::path>{"/c"});
  CHECK(config.server.admin_group == "adm");
  CHECK(config.server.log_level == LogLevel::kDebug);
  CHECK(config.server.drain_timeout_ms == 5);
  CHECK(config.limits.max_message_bytes == 2048);
  CHECK_FALSE(config.http.enabled);
  CHECK(config.http.listen == "127.0.0.1:1");
  CHECK(config.http.keys_file == "/k");
  CHECK(config.http.allowed_hosts == std::vector<std::string>{"h:1"});
  CHECK(config.http.allowed_origins == std::vector<std::string>{"http://o"});
  CHECK(config.http.leave_out_volatile_lines);
  CHECK(config.http.volatile_lines == std::vector<std::string>{"now: *"});
  CHECK(config.http.max_connections == 9);
  CHECK(config.http.header_timeout_ms == 201);
  CHECK(config.http.body_timeout_ms == 202);
  CHECK(config.http.idle_timeout_ms == 203);
  CHECK(config.http.write_timeout_ms == 204);
  CHECK(config.limits.max_requests == 3);
  CHECK(config.limits.max_requests_per_owner == 2);
  CHECK(config.limits.max_queued_bytes == 4096);
  CHECK(config.limits.output_buffer_bytes == 8192);
  CHECK(config.limits.max_resident == 4);
  CHECK(config.server.start == "loaded");
  CHECK(config.server.sleep_closes == "all");
  CHECK(config.residency.memory_bytes == 5000);
  CHECK(config.residency.keep_alive_ms == 6);
  CHECK(config.residency.keep_alive_max_ms == 8);
  CHECK(config.residency.turn_ms == 7);
  CHECK_FALSE(config.residency.load_on_demand);
  CHECK(config.worker.program == "/bin/w");
  CHECK(config.worker.threads == 7);
  CHECK(config.worker.cpu_variant == "avx2");
  CHECK(config.worker.numerics == "fast");
  CHECK(config.worker.kv_type == "f32");
  CHECK(config.worker.kv_bytes == 1000);
  CHECK(config.worker.block_size == 32);
  CHECK(config.worker.context_length == 99);
  CHECK(config.worker.max_seqs == 5);
  CHECK(config.worker.max_step_tokens == 6);
  CHECK(config.worker.policy == "static");
  CHECK_FALSE(config.worker.chunked_prefill);
  CHECK(config.worker.waiting_served_ratio == 2.0);
  CHECK_FALSE(config.worker.prefix_cache);
  CHECK(config.worker.speculation == "off");
  CHECK(config.worker.draft == "small");
  CHECK_FALSE(config.worker.prefix_store);
  CHECK(config.worker.prefix_store_bytes == 1048577);
  CHECK(config.worker.prefix_ram_bytes == 1048579);
  CHECK(config.worker.prefix_restore == "always");
  CHECK(config.worker.heartbeat_timeout_ms == 101);
  CHECK(config.worker.load_timeout_ms == 102);
  CHECK(config.worker.restart_delay_ms == 103);
  CHECK(config.worker.restart_delay_max_ms == 104);
  CHECK(config.roles == std::map<std::string, std::string>{{"default", "m"}, {"small", "n"}});
}

TEST_CASE("a model has settings of its own, and for the rest those of all workers") {
  Config config;
  const Result<void> result = apply_toml(R"(
[residency]
keep_alive_ms = 6
[worker]
kv_type = "f32"
context_length = 99
numerics = "fast"
block_size = 32
[models."m 1.5"]
keep_alive_ms = 0
context_length = 77
[models.n]
device = "cpu"
numerics = "exact"
kv_type = "q8_0"
kv_bytes = 11
mapping = "file"
weight_bytes = 12
draft = "none"
keep_alive_ms = 9
)",
                                         "f.toml", &config);
  REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message));
  CHECK(config.keep_alive_ms("m 1.5") == 0);
  CHECK(config.keep_alive_ms("n") == 9);
  CHECK(config.keep_alive_ms("other") == 6);
  CHECK(config.worker_of("m 1.5").context_length == 77);
  CHECK(config.worker_of("m 1.5").kv_type == "f32");
  CHECK(config.worker_of("n").context_length == 99);
  CHECK(config.worker_of("n").kv_type == "q8_0");
  CHECK(config.worker_of("n").kv_bytes == 11);
  CHECK(config.worker_of("n").mapping == "file");
  CHECK(config.worker_of("n").weight_bytes == 12);
  CHECK(config.worker_of("other").mapping == "memory");
  CHECK(config.worker_of("n").numerics == "exact");
  CHECK(config.worker_of("n").draft == "none");
  CHECK(config.worker_of("n").block_size == 32);
  CHECK(config.worker_of("other").context_length == 99);
  CHECK(error_of("[models.m]\nkeep_alive_ms = -1") ==
        "f.toml:2:17: models.m.keep_alive_ms is -1, want 0..604800000");
  CHECK(error_of("[models.\"a.b\"]\nkv_type = \"q4\"") ==
        "f.toml:2:11: models.a.b.kv_type is \"q4\", want one of f16, bf16, q8_0, fp8, q4_0, f32, "
        "or two as K/V");
  CHECK(error_of("[models.m]\nthreads = 2").find("unknown key models.m.threads; known here: ") !=
        std::string::npos);
  CHECK(error_of("[models]\nm = 2").find("models.m is a integer, want a [section]") !=
        std::string::npos);
  CHECK(error_of("models = 2").find("models: want a section [models.NAME]") != std::string::npos);
}

TEST_CASE("the types of K and V may differ") {
  Config config;
  REQUIRE(apply_toml("[worker]\nkv_type = \"q8_0/q4_0\"\n[models.m]\nkv_type = \"fp8\"", "f.toml",
                     &config)
              .ok());
  CHECK(config.worker.kv_type == "q8_0/q4_0");
  CHECK(config.worker_of("m").kv_type == "fp8");
  REQUIRE(apply_assignment("worker.kv_type=f16/fp8", &config).ok());
  CHECK(config.worker.kv_type == "f16/fp8");
  for (const char* bad : {"", "/", "q8_0/", "/q4_0", "q8_0/q4_0/f16", "q8_0/q4", "Q8_0"}) {
    CAPTURE(bad);
    CHECK(error_of("[worker]\nkv_type = \"" + std::string(bad) + "\"") ==
          "f.toml:2:11: worker.kv_type is \"" + std::string(bad) +
              "\", want one of f16, bf16, q8_0, fp8, q4_0, f32, or two as K/V");
  }
  CHECK(error_of("[worker]\nkv_type = 8").find("or two as K/V") != std::string::npos);
}

TEST_CASE("errors name file, line, column, the key, what was met and what was wanted") {
  CHECK(error_of("[limits]\nmax_requests = 0\n") ==
        "f.toml:2:16: limits.max_requests is 0, want 1..1048576");
  CHECK(error_of("[limits]\n\nmax_requests = \"4\"\n") ==
        "f.toml:3:16: limits.max_requests is a string, want an integer 1..1048576");
  CHECK(error_of("[worker]\nnumerics = \"faster\"") ==
        "f.toml:2:12: worker.numerics is \"faster\", want one of exact, fast");
  CHECK(error_of("[worker]\nkv_type = \"q4\"") ==
        "f.toml:2:11: worker.kv_type is \"q4\", want one of f16, bf16, q8_0, fp8, q4_0, f32, or "
        "two as K/V");
  CHECK(error_of("[worker]\nwaiting_served_ratio = nan").find("want 0..1000000") !=
        std::string::npos);
  CHECK(error_of("[worker]\nchunked_prefill = 1").find("want true or false") != std::string::npos);
  CHECK(error_of("[server]\nmodel_dirs = [\"/a\", 3]").find("f.toml:2:21: ") == 0);
  CHECK(error_of("[roles]\ndefault = 3").find("roles.default is a integer") != std::string::npos);
}

TEST_CASE("unknown keys and sections are errors that list the known ones") {
  const std::string key = error_of("[server]\nruntime_dirs = \"/x\"\n");
  CHECK(key.find("f.toml:2:") == 0);
  CHECK(
      key.find("unknown key server.runtime_dirs; known here: runtime_dir, state_dir, model_dirs") !=
      std::string::npos);
  CHECK(error_of("[limit]\nx=1").find("unknown section or key limit") != std::string::npos);
  CHECK(error_of("server = 3").find("server is a integer, want a [section]") != std::string::npos);
}

TEST_CASE("text that is not TOML is an error with its place, and changes nothing") {
  CHECK(error_of("[server\n").find("f.toml:1:") == 0);
  Config config;
  config.limits.max_requests = 77;
  CHECK_FALSE(apply_toml("[limits]\nmax_requests = 5\nmax_resident = -1\n", "f", &config).ok());
  CHECK(config.limits.max_requests == 77);
}

TEST_CASE("assignments take TOML values and bare words") {
  Config config;
  REQUIRE(apply_assignment("limits.max_requests=4", &config).ok());
  REQUIRE(apply_assignment("worker.kv_type=f32", &config).ok());
  REQUIRE(apply_assignment("server.model_dirs=[\"/m\"]", &config).ok());
  REQUIRE(apply_assignment("roles.default=my-model", &config).ok());
  CHECK(config.limits.max_requests == 4);
  CHECK(config.worker.kv_type == "f32");
  CHECK(config.server.model_dirs.size() == 1);
  CHECK(config.roles.at("default") == "my-model");
  CHECK_FALSE(apply_assignment("limits.max_requests", &config).ok());
  CHECK_FALSE(apply_assignment("=3", &config).ok());
  CHECK_FALSE(apply_assignment("limits.nothing=3", &config).ok());
  CHECK_FALSE(apply_assignment("limits.max_requests=many", &config).ok());
}

TEST_CASE("the environment overrides the file; a bad value names its variable") {
  std::map<std::string, std::string> variables = {
      {"HEARTH_RUNTIME_DIR", "/r"}, {"HEARTH_STATE_DIR", "/s"}, {"HEARTH_LOG", "warn"}};
  ipc::Environment environment;
  environment.variable = [&](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? std::string() : it->second;
  };
  ipc::Paths paths;
  paths.runtime = "/r";
  paths.state = "/s";
  paths.model_dirs = {"/other"};
  Config config;
  config.server.runtime_dir = "/from-file";
  config.server.model_dirs = {"/m"};
  REQUIRE(apply_environment(environment, paths, &config).ok());
  CHECK(config.server.runtime_dir == "/r");
  CHECK(config.server.state_dir == "/s");
  CHECK(config.sources["server.state_dir"] == "environment HEARTH_STATE_DIR");
  CHECK(config.server.model_dirs == std::vector<std::filesystem::path>{"/m"});
  CHECK(config.server.log_level == LogLevel::kWarn);
  variables["HEARTH_LOG"] = "loud";
  const Result<void> bad = apply_environment(environment, paths, &config);
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().message.find("HEARTH_LOG") != std::string::npos);
}

TEST_CASE("an unreadable file is an error; the shipped file is valid and states the defaults") {
  Config config;
  const Result<void> missing = apply_file("/nowhere/hearth.toml", &config);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == ErrorCode::kIo);

  const Config defaults;
  REQUIRE(apply_file(hearth::tests::source_path("packaging/hearth.toml"), &config).ok());
  CHECK(config.limits.max_message_bytes == defaults.limits.max_message_bytes);
  CHECK(config.limits.max_requests == defaults.limits.max_requests);
  CHECK(config.limits.max_requests_per_owner == defaults.limits.max_requests_per_owner);
  CHECK(config.limits.max_queued_bytes == defaults.limits.max_queued_bytes);
  CHECK(config.limits.output_buffer_bytes == defaults.limits.output_buffer_bytes);
  CHECK(config.limits.max_resident == defaults.limits.max_resident);
  CHECK(config.server.drain_timeout_ms == defaults.server.drain_timeout_ms);
  CHECK(config.worker.max_seqs == defaults.worker.max_seqs);
  CHECK(config.worker.max_step_tokens == defaults.worker.max_step_tokens);
  CHECK(config.worker.numerics == "exact");
  CHECK(config.worker.kv_type == defaults.worker.kv_type);
  CHECK(config.worker.heartbeat_timeout_ms == defaults.worker.heartbeat_timeout_ms);
  CHECK(config.worker.load_timeout_ms == defaults.worker.load_timeout_ms);
  CHECK(config.worker.restart_delay_ms == defaults.worker.restart_delay_ms);
  CHECK(config.worker.restart_delay_max_ms == defaults.worker.restart_delay_max_ms);
}

TEST_CASE("a file that another user could have written is refused") {
  const tests::TempDir temp;
  const std::filesystem::path file = temp.path() / "hearth.toml";
  std::ofstream(file) << "[limits]\nmax_requests = 7\n";
  const auto apply = [&file](std::filesystem::perms mode) {
    std::filesystem::permissions(file, mode);
    Config config;
    const Result<void> applied = apply_file(file, &config);
    CHECK(config.limits.max_requests == (applied.ok() ? 7 : Config().limits.max_requests));
    return applied.ok() ? std::string() : applied.error().message;
  };
  CHECK(apply(std::filesystem::perms(0644)).empty());
  CHECK(apply(std::filesystem::perms(0646)).find("has mode 0646") != std::string::npos);
  if (::geteuid() != 0) HEARTH_SKIP("needs root, to give the file to others");
  REQUIRE(::chown(file.c_str(), 65534, 0) == 0);
  CHECK(apply(std::filesystem::perms(0644)).find("belongs to uid 65534") != std::string::npos);
  REQUIRE(::chown(file.c_str(), 0, 65534) == 0);
  CHECK(apply(std::filesystem::perms(0644)).empty());
  CHECK(apply(std::filesystem::perms(0664)).find("has mode 0664") != std::string::npos);
}

TEST_CASE("every setting is listed with its source, and reads back unchanged") {
  Config config;
  REQUIRE(
      apply_toml("[limits]\nmax_requests = 9\n[worker]\nwaiting_served_ratio = 2\n"
                 "[roles]\ndefault = \"a \\\"b\\\"\"\n[models.\"a-1.5B.Q8_0\"]\nkeep_alive_ms = 5\n"
                 "[cache]\ntier = \"memory\"\n[cache_owners]\n\"uid:7\" = \"off\"\n"
                 "\"key:ada\" = \"disk\"\n[owners.\"key:ada\"]\nmax_requests = 3\n"
                 "priority = \"batch\"\n",
                 "/etc/f.toml", &config)
          .ok());
  CHECK(config.cache.allowed("key:ada", "disk") == "disk");
  CHECK(config.owners.at("key:ada").max_requests == 3);
  for (const char* wrong :
       {"[owners.ada]\n", "[owners]\nada = 1\n", "owners = 1\n",
        "[owners.\"uid:1\"]\npriority = \"high\"\n", "[owners.\"uid:1\"]\nmax_requests = 0\n",
        "[owners.\"uid:1\"]\ncache = \"off\"\n"}) {
    Config other;
    CHECK_FALSE_MESSAGE(apply_toml(wrong, "f", &other).ok(), wrong);
  }
  CHECK(config.cache.allowed("uid:7", "disk") == "off");
  CHECK(config.cache.allowed("uid:8", "disk") == "memory");
  CHECK(config.cache.allowed("uid:8", "off") == "off");
  CHECK_FALSE(apply_toml("[cache_owners]\n\"uid:7\" = \"often\"\n", "f", &config).ok());
  CHECK_FALSE(apply_toml("[cache_owners]\nada = \"off\"\n", "f", &config).ok());
  REQUIRE(apply_assignment("worker.kv_type=f32", &config).ok());
  config.server.model_dirs = {"/a", "/b c"};
  std::map<std::string, Setting> by_key;
  const std::vector<Setting> settings = list_settings(config);
  for (const Setting& setting : settings) by_key[setting.key] = setting;
  CHECK(by_key.size() == settings.size());
  CHECK(by_key["limits.max_requests"].value == "9");
  CHECK(by_key["limits.max_requests"].source == "/etc/f.toml:2");
  CHECK(by_key["worker.waiting_served_ratio"].value == "2.0");
  CHECK(by_key["worker.kv_type"].value == "\"f32\"");
  CHECK(by_key["owners.\"key:ada\".priority"].value == "\"batch\"");
  CHECK(by_key["owners.\"key:ada\".priority"].source == "/etc/f.toml:16");
  CHECK(by_key["worker.kv_type"].source == "--set worker.kv_type=f32");
  CHECK(by_key["worker.block_size"].source == "default");
  CHECK(by_key["server.log_level"].value == "\"info\"");
  CHECK(by_key["server.model_dirs"].value == "[\"/a\", \"/b c\"]");
  CHECK(by_key["roles.default"].source == "/etc/f.toml:6");
  const Setting& of_model = by_key["models.\"a-1.5B.Q8_0\".keep_alive_ms"];
  CHECK(of_model.value == "5");
  CHECK(of_model.source == "/etc/f.toml:8");
  CHECK_FALSE(by_key.contains("models.\"a-1.5B.Q8_0\".kv_type"));

  Config again;
  const Result<void> read = apply_toml(settings_as_toml(settings), "printed", &again);
  REQUIRE_MESSAGE(read.ok(), (read.ok() ? "" : read.error().message));
  const std::vector<Setting> same = list_settings(again);
  REQUIRE(same.size() == settings.size());
  for (size_t i = 0; i < same.size(); ++i) {
    CHECK(same[i].key == settings[i].key);
    CHECK(same[i].value == settings[i].value);
  }
}

TEST_CASE("sampling is set for all models and for single ones") {
  Config config;
  const Result<void> read = apply_toml(
      "[sampling]\ntemperature = 0.7\ntop_k = 20\n[sampling.\"a-1.5B\"]\ntop_k = 5\nmin_p = 0.1\n",
      "f.toml", &config);
  REQUIRE_MESSAGE(read.ok(), (read.ok() ? "" : read.error().message));
  ipc::SamplingSettings want{.temperature = 0.7f, .top_k = 20};
  CHECK(config.sampling.of("other") == want);
  want.top_k = 5;
  want.min_p = 0.1f;
  CHECK(config.sampling.of("a-1.5B") == want);
  CHECK(Config().sampling.of("m") == ipc::SamplingSettings());
  std::map<std::string, Setting> by_key;
  for (const Setting& setting : list_settings(config)) by_key[setting.key] = setting;
  CHECK(by_key["sampling.temperature"].value == "0.7");
  CHECK(by_key["sampling.\"a-1.5B\".top_k"].value == "5");
  CHECK(by_key["sampling.\"a-1.5B\".top_k"].source == "f.toml:5");
  Config again;
  REQUIRE(apply_toml(settings_as_toml(list_settings(config)), "printed", &again).ok());
  CHECK(again.sampling.models == config.sampling.models);
  REQUIRE(apply_assignment("sampling.tales.temperature=0", &again).ok());
  CHECK(again.sampling.of("tales").temperature == 0.0f);
  for (const char* wrong : {"temperature = 11", "temperature = \"hot\"", "top_k = 1.5", "heat = 1",
                            "[sampling.m]\ntop_p = 2"}) {
    CAPTURE(wrong);
    const std::string text = std::string("[sampling]\n") + wrong;
    CHECK_FALSE(apply_toml(text, "f.toml", &again).ok());
  }
}

TEST_CASE("whatever hearthd refuses at start, --check refuses") {
  const auto check = [](const char* assignment) -> Result<void> {
    Config config;
    HEARTH_TRY(apply_assignment(assignment, &config));
    return check_config(config);
  };
  CHECK(check_config(Config()).ok());
  CHECK(check("http.listen=127.0.0.1:8080").ok());
  CHECK(check("http.listen=[::1]:8080").ok());
  for (const char* wrong :
       {"http.listen=0.0.0.0:8080", "http.listen=localhost:8080", "http.listen=:8080",
        "http.listen=8080", "http.listen=127.0.0.1:99999", "server.tcp=:7117",
        "server.tcp=127.0.0.1", "server.tcp=127.0.0.1:7117", "http.allowed_origins=[\"*\"]",
        "http.allowed_origins=[\"localhost:3000\"]", "http.allowed_origins=[\"http://a/b\"]",
        "http.volatile_lines=[\"*\"]", "http.volatile_lines=[\"a*b*c\"]",
        "http.volatile_lines=[\"two\\nlines\"]"}) {
    CAPTURE(wrong);
    CHECK_FALSE(check(wrong).ok());
  }
  CHECK(check("http.allowed_origins=[\"http://localhost:3000\"]").ok());
}

TEST_CASE("the files of TLS and the addresses of proxies are read") {
  Config config;
  REQUIRE(apply_toml("[http]\ntls_certificate_file = \"/c\"\ntls_key_file = \"/ck\"\n"
                     "trusted_proxy = [\"192.0.2.1\"]\n",
                     "f", &config)
              .ok());
  CHECK(config.http.tls_certificate_file == "/c");
  CHECK(config.http.tls_key_file == "/ck");
  CHECK(config.http.trusted_proxy == std::vector<std::string>{"192.0.2.1"});
  CHECK_FALSE(apply_toml("[http]\ntrusted_proxy = \"192.0.2.1\"\n", "f", &config).ok());
}

TEST_CASE("an address that other machines reach wants keys, and TLS or a proxy that speaks it") {
  const tests::TempDir temp;
  const std::filesystem::path keys = temp.path() / "keys";
  std::ofstream(keys) << "me all 0123456789abcdef\n";
  std::filesystem::permissions(keys, std::filesystem::perms(0600));
  const auto error = [&](const auto& change) {
    Config config;
    config.http.listen = "192.0.2.7:8443";
    config.http.keys_file = keys;
    change(config.http);
    const Result<void> checked = check_config(config);
    return checked.ok() ? std::string() : checked.error().message;
  };
  const auto has = [](const std::string& met, const char* part) {
    CHECK_MESSAGE(met.find(part) != std::string::npos, met);
  };
  has(error([](HttpConfig& http) { http.keys_file.clear(); }), "want http.keys_file");
  has(error([](HttpConfig&) {}), "http.trusted_proxy");
  CHECK(error([](HttpConfig& http) { http.trusted_proxy = {"192.0.2.1", "2001:db8::1"}; }).empty());
  for (const char* wrong : {"", "proxy.example", "192.0.2.1:80", "192.0.2.0/24", "2001:DB8::1"}) {
    has(error([&](HttpConfig& http) { http.trusted_proxy = {wrong}; }), "want literal addresses");
  }
  has(error([](HttpConfig& http) { http.tls_key_file = "/k"; }), "want both");
  has(error([](HttpConfig& http) {
        http.tls_certificate_file = "/none";
        http.tls_key_file = "/none";
      }),
      "/none: cannot be opened");
}

TEST_CASE("KV events: their addresses reach no other machine, and a pod's name fits a topic") {
  Config config;
  REQUIRE(apply_toml("[kv_events]\npublish = \"shared\"\nlisten = \"127.0.0.1:5557\"\n"
                     "replay_listen = \"[::1]:5558\"\npod = \"box-1.a_b\"\nbuffer_bytes = 65536\n",
                     "f", &config)
              .ok());
  CHECK(config.kv_events.publish == "shared");
  CHECK(config.kv_events.listen == "127.0.0.1:5557");
  CHECK(config.kv_events.replay_listen == "[::1]:5558");
  CHECK(config.kv_events.pod == "box-1.a_b");
  CHECK(config.kv_events.buffer_bytes == 65536);
  CHECK(check_config(config).ok());

  const auto error = [](const std::string& assignment) {
    Config with;
    if (const Result<void> applied = apply_assignment(assignment, &with); !applied.ok()) {
      return applied.error().message;
    }
    const Result<void> checked = check_config(with);
    return checked.ok() ? std::string() : checked.error().message;
  };
  const auto has = [&](const std::string& assignment, const char* part) {
    const std::string met = error(assignment);
    CHECK_MESSAGE(met.find(part) != std::string::npos, assignment << ": " << met);
  };
  has("kv_events.listen=0.0.0.0:5557", "kv_events.listen is \"0.0.0.0:5557\": other machines");
  has("kv_events.replay_listen=192.0.2.7:1", "kv_events.replay_listen is \"192.0.2.7:1\": other");
  has("kv_events.listen=tcp://*:5557", "kv_events.listen is \"tcp://*:5557\": want ADDRESS:PORT");
  has("kv_events.publish=everything", "everything");
  has("kv_events.buffer_bytes=10", "kv_events.buffer_bytes");
  has("kv_events.pod=a@b", "kv_events.pod is \"a@b\": want up to 64");
  has("kv_events.pod=" + std::string(65, 'a'), "want up to 64");
  has("kv_events.topic=kv", "topic");
}

TEST_CASE("the manual and the shipped configuration contain every setting") {
  const auto text_of = [](const char* file) {
    std::ifstream in(std::filesystem::path(hearth::tests::source_dir()) / "packaging" / file);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  const std::string manual = text_of("man/hearth.toml.5"), config = text_of("hearth.toml");
  REQUIRE_FALSE(manual.empty());
  CHECK(manual.find(".SH \"SECTION [models.NAME]\"\n") != std::string::npos);
  CHECK(config.find("\n# [models.") != std::string::npos);
  CHECK(manual.find(".SH \"SECTION [owners.NAME]\"\n") != std::string::npos);
  CHECK(config.find("\n# [owners.") != std::string::npos);
  CHECK(config.find("\n# keep_alive_ms = ") != std::string::npos);
  CHECK(manual.find(".SH \"SECTION [roles.NAME]\"\n") != std::string::npos);
  Config with_remote;
  with_remote.remotes["code"].remote = "https://a";
  for (const Setting& setting : list_settings(with_remote)) {
    if (!setting.key.starts_with("roles.code.")) continue;
    const std::string key = setting.key.substr(std::string("roles.code.").size());
    CAPTURE(key);
    CHECK(config.find("\n# " + key + " = ") != std::string::npos);
    CHECK(manual.find(".B " + key + "\n") != std::string::npos);
  }
  for (const Setting& setting : list_settings(Config())) {
    CAPTURE(setting.key);
    const size_t dot = setting.key.find('.');
    CHECK(config.find("\n[" + setting.key.substr(0, dot) + "]\n") != std::string::npos);
    const std::string key = setting.key.substr(dot + 1);
    const bool there = config.find("\n" + key + " = ") != std::string::npos ||
                       config.find("\n# " + key + " = ") != std::string::npos;
    CHECK(there);
    CHECK(manual.find(".B " + key + "\n") != std::string::npos);
  }
}

}  // namespace
}  // namespace hearth::broker
