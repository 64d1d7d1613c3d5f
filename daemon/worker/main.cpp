// hearth-worker-<device>: serves one model on one device to a broker. Also has the verbs that
// compute without a daemon, which the command line runs as `hearth-worker-<device> VERB`.

#include <signal.h>
#include <sys/signalfd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/worker/load/device.h"
#include "daemon/worker/load/options.h"
#include "daemon/worker/load/stages.h"
#include "daemon/worker/serve/broker_link.h"
#include "daemon/worker/serve/front_door.h"
#include "daemon/worker/tools/command_line.h"
#include "daemon/worker/tools/doctor.h"
#include "daemon/worker/tools/verbs.h"
#include "ipc/schema/version.h"
#include "ipc/wire/worker_codec.h"
#include "kernels/base/log.h"

namespace hearth::worker {
namespace {

struct ServeFlags {
  std::filesystem::path socket;
  std::filesystem::path model;
  std::string settings = "{}";
};

int fail(const Error& error) {
  std::fprintf(stderr, "hearth-worker: %s\n", error.message.c_str());
  return 2;
}

void add_device_options(Verb verb, DeviceOptions* device) {
  verb.option("--device", device->device, "auto, cpu or cuda:N, of those this program has");
  verb.option("--threads", device->threads, "compute threads; 0: one per physical core")
      .range(0, 4096);
  verb.option("--cpu-variant", device->cpu_variant, "code path; default: the best there is");
  verb.option("--numerics", device->numerics, "exact, or fast: rows depend on their batch");
}

// Runs before any thread starts: threads inherit the mask, so only the front door receives SIGTERM.
int block_sigterm() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

Result<int> serve(const ServeFlags& flags) {
  HEARTH_ASSIGN_OR_RETURN(const ipc::ServeSettings settings,
                          ipc::decode_serve_settings(flags.settings));
  HEARTH_ASSIGN_OR_RETURN(const ServeOptions options,
                          serve_options(flags.socket, flags.model, settings));
  init_logging("hearth-worker", options.log_level);
  HEARTH_TRY(use_cores(settings.cores));  // before any thread starts, too
  const int signal_fd = block_sigterm();
  HEARTH_ASSIGN_OR_RETURN(BrokerLink link, BrokerLink::connect(options.socket));
  FrontDoor front_door(options, std::move(link), signal_fd);
  return front_door.run();
}

int run(int argc, char** argv) {
  CommandLine line("hearth-worker: computes one model on one device", std::string(ipc::version()));
  Verb program = line.program();

  ServeFlags serve_flags;
  Verb serve_verb = program.verb("serve", "serve a broker");
  serve_verb.option("--socket", serve_flags.socket, "the broker's socket for this worker")
      .required();
  serve_verb.option("--model", serve_flags.model, "model file").required();
  serve_verb.option("--settings", serve_flags.settings, "as JSON; absent members are defaults");
  serve_verb.run([&serve_flags] {
    Result<int> served = serve(serve_flags);
    return served ? *served : fail(served.error());
  });

  DeviceOptions doctor_device;
  bool as_json = false;
  Verb doctor_verb = program.verb("doctor", "what this device offers, and why");
  add_device_options(doctor_verb, &doctor_device);
  doctor_verb.flag("--json", as_json, "one JSON object");
  doctor_verb.run([&] { return run_doctor(doctor_device, as_json); });

  for (const auto add : {add_bench, add_cache, add_convert, add_describe, add_imatrix, add_inspect,
                         add_perplexity, add_plan, add_quantize, add_render, add_tokenize}) {
    add(program);
  }
  return line.parse_and_run(argc, argv);
}

}  // namespace
}  // namespace hearth::worker

int main(int argc, char** argv) { return hearth::worker::run(argc, argv); }
