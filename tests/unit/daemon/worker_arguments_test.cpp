#include <doctest/doctest.h>

#include <algorithm>

#include "daemon/broker/residency/worker_process.h"

namespace hearth::broker {
namespace {

std::string value_of(const std::vector<std::string>& argv, const std::string& flag) {
  const auto at = std::find(argv.begin(), argv.end(), flag);
  return at == argv.end() || at + 1 == argv.end() ? "" : *(at + 1);
}

TEST_CASE("every setting of [worker] reaches the worker") {
  WorkerConfig config;
  config.device = "cuda:1";
  config.threads = 3;
  config.cpu_variant = "avx2";
  config.numerics = "fast";
  config.kv_type = "f32";
  config.kv_bytes = 123;
  config.block_size = 32;
  config.context_length = 77;
  config.max_seqs = 9;
  config.max_step_tokens = 10;
  config.policy = "static";
  config.chunked_prefill = false;
  config.waiting_served_ratio = 1.25;
  config.prefix_cache = false;
  config.speculation = "off";
  config.draft = "small";
  const std::vector<std::string> argv =
      worker_arguments("/bin/w", config, "/m/a b.gguf", "/run/1.sock", "/s", LogLevel::kWarn);
  CHECK(argv[0] == "/bin/w");
  CHECK(argv[1] == "serve");
  CHECK(value_of(argv, "--socket") == "/run/1.sock");
  CHECK(value_of(argv, "--model") == "/m/a b.gguf");
  CHECK(value_of(argv, "--log-level") == "warn");
  CHECK(value_of(argv, "--device") == "cuda:1");
  CHECK(value_of(argv, "--threads") == "3");
  CHECK(value_of(argv, "--cpu-variant") == "avx2");
  CHECK(value_of(argv, "--numerics") == "fast");
  CHECK(value_of(argv, "--kv-type") == "f32");
  CHECK(value_of(argv, "--kv-bytes") == "123");
  CHECK(value_of(argv, "--block-size") == "32");
  CHECK(value_of(argv, "--context-length") == "77");
  CHECK(value_of(argv, "--max-seqs") == "9");
  CHECK(value_of(argv, "--max-step-tokens") == "10");
  CHECK(value_of(argv, "--policy") == "static");
  CHECK(value_of(argv, "--chunked-prefill") == "false");
  CHECK(value_of(argv, "--waiting-served-ratio") == "1.25");
  CHECK(value_of(argv, "--prefix-cache") == "false");
  CHECK(value_of(argv, "--speculation") == "off");
  CHECK(value_of(argv, "--draft") == "small");
  CHECK(value_of(argv, "--prefix-ram-bytes") == "0");
  CHECK(std::ranges::find(argv, "--prefix-dir") == argv.end());

  config.prefix_cache = true;
  config.prefix_store_bytes = 5'000'000;
  config.prefix_owner_bytes = 7;
  config.prefix_pinned_bytes = 8;
  config.prefix_ram_bytes = 9;
  config.prefix_restore = "always";
  const std::vector<std::string> kept =
      worker_arguments("/bin/w", config, "/m", "/1", "/s", LogLevel::kWarn);
  CHECK(value_of(kept, "--prefix-dir") == "/s/prefix");
  CHECK(value_of(kept, "--prefix-store-bytes") == "5000000");
  CHECK(value_of(kept, "--prefix-owner-bytes") == "7");
  CHECK(value_of(kept, "--prefix-pinned-bytes") == "8");
  CHECK(value_of(kept, "--prefix-ram-bytes") == "9");
  CHECK(value_of(kept, "--always-restore") == "true");
  CHECK(value_of(kept, "--restore-both") == "false");
  const std::vector<std::string> nowhere =
      worker_arguments("/bin/w", config, "/m", "/1", "", LogLevel::kWarn);
  CHECK(std::ranges::find(nowhere, "--prefix-dir") == nowhere.end());
  config.prefix_store = false;
  const std::vector<std::string> off =
      worker_arguments("/bin/w", config, "/m", "/1", "/s", LogLevel::kWarn);
  CHECK(std::ranges::find(off, "--prefix-dir") == off.end());
}

TEST_CASE("a configured worker program is that one or an error that names it") {
  WorkerConfig config;
  config.program = "/bin/sh";
  CHECK(*find_worker_program(config) == "/bin/sh");
  config.program = "/nowhere/worker";
  const Result<std::filesystem::path> missing = find_worker_program(config);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().message.find("/nowhere/worker") != std::string::npos);
}

TEST_CASE("only worker.device = auto looks at what the machine has") {
  for (const bool worker : {false, true}) {
    for (const bool driver : {false, true}) {
      CHECK(choose_device("auto", worker, driver) == (worker && driver ? "cuda:0" : "cpu"));
      CHECK(choose_device("cpu", worker, driver) == "cpu");
      CHECK(choose_device("cuda:3", worker, driver) == "cuda:3");
    }
  }
  WorkerConfig config;
  config.device = "cuda:2";
  config.program = "/bin/sh";
  CHECK(*find_worker_program(config) == "/bin/sh");
  CHECK(device_of_worker(config) == "cuda:2");
}

}  // namespace
}  // namespace hearth::broker
