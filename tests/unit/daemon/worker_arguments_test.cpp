#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "daemon/broker/residency/worker_process.h"
#include "ipc/wire/worker_codec.h"

namespace hearth::broker {
namespace {

TEST_CASE("a worker is started with its settings as one JSON text") {
  ipc::ServeSettings settings;
  settings.engine.device = "cuda:1";
  settings.engine.waiting_served_ratio = 1.25;
  settings.engine.prefix_store_bytes = 5'000'000;
  settings.sampling.temperature = 0.7f;
  settings.log_level = "warn";
  settings.prefix_dir = "/s/prefix";
  const std::vector<std::string> argv =
      worker_arguments("/bin/w", "/m/a b.gguf", "/run/1.sock", settings);
  REQUIRE(argv.size() == 8);
  CHECK(argv[0] == "/bin/w");
  CHECK(argv[1] == "serve");
  CHECK(argv[2] == "--socket");
  CHECK(argv[3] == "/run/1.sock");
  CHECK(argv[4] == "--model");
  CHECK(argv[5] == "/m/a b.gguf");
  CHECK(argv[6] == "--settings");
  const Result<ipc::ServeSettings> back = ipc::decode_serve_settings(argv[7]);
  REQUIRE(back.ok());
  CHECK(*back == settings);
}

TEST_CASE("a configured worker program is used, or is an error that names it") {
  WorkerConfig config;
  config.program = "/bin/sh";
  CHECK(*find_worker_program(config) == "/bin/sh");
  config.program = "/nowhere/worker";
  const Result<std::filesystem::path> missing = find_worker_program(config);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().message.find("/nowhere/worker") != std::string::npos);
}

TEST_CASE("only worker.device = auto probes the machine") {
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
