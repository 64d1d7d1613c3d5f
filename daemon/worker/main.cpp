// hearth-worker-<device>: one model on one device, serving a broker; and the verbs that compute
// without a daemon, which the command line runs as `hearth-worker-<device> VERB`.

#include <signal.h>
#include <sys/signalfd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "daemon/worker/broker_link.h"
#include "daemon/worker/device.h"
#include "daemon/worker/doctor.h"
#include "daemon/worker/front_door.h"
#include "daemon/worker/options.h"
#include "daemon/worker/verbs.h"
#include "ipc/version.h"
#include "kernels/base/log.h"

namespace hearth::worker {
namespace {

struct ServeFlags {
  ServeOptions options;
  std::string kv_type = "f16";
  std::string policy = "continuous";
  std::string speculation = "lookup";
  std::string log_level = "info";
};

int fail(const Error& error) {
  std::fprintf(stderr, "hearth-worker: %s\n", error.message.c_str());
  return 2;
}

void add_device_options(CLI::App& app, DeviceOptions* device) {
  app.add_option("--device", device->device, "auto, cpu or cuda:N, of those this program has");
  app.add_option("--threads", device->threads, "compute threads; 0: one per physical core")
      ->check(CLI::Range(0, 4096));
  app.add_option("--cpu-variant", device->cpu_variant, "code path; default: the best there is");
  app.add_option("--numerics", device->numerics, "exact, or fast: rows depend on their batch");
}

void add_serve_options(CLI::App& app, ServeFlags* flags) {
  ServeOptions& options = flags->options;
  engine::EngineConfig& engine = options.engine;
  engine::SchedulerConfig& scheduler = engine.scheduler;
  app.add_option("--socket", options.socket, "the broker's socket for this worker")->required();
  app.add_option("--model", options.model, "model file")->required();
  add_device_options(app, &options.device);
  app.add_option("--kv-type", flags->kv_type, "f16, bf16, q8_0 or f32");
  app.add_option("--kv-bytes", engine.kv_bytes, "memory for KV; 0: chosen");
  app.add_option("--block-size", engine.block_size, "tokens per KV block");
  app.add_option("--context-length", engine.context_length, "tokens; 0: the model's");
  app.add_option("--prefix-cache", engine.prefix_cache, "keep prompts' KV for later requests");
  app.add_option("--speculation", flags->speculation,
                 "guess tokens ahead: lookup (in the text so far) or off");
  app.add_option(
      "--draft", options.draft,
      "a small model of the same tokens that guesses too: a file, or a name beside MODEL");
  app.add_option("--prefix-dir", options.prefix_dir, "where prefixes are kept; none: nowhere");
  app.add_option("--prefix-store-bytes", options.prefix_store_bytes, "KV kept there, at most");
  app.add_option("--prefix-owner-bytes", options.prefix_owner_bytes, "of one owner; 0: no bound");
  app.add_option("--prefix-pinned-bytes", options.prefix_pinned_bytes, "of it pinned");
  app.add_option("--prefix-ram-bytes", options.prefix_ram_bytes,
                 "of host memory for KV that has left a GPU; 0: none");
  app.add_option("--always-restore", engine.always_restore,
                 "take from there what recomputing would bring sooner; for tests");
  app.add_option_function<bool>(
      "--restore-both",
      [&engine](const bool& both) {
        if (both) engine.restore_overlap = engine::RestoreOverlap::kAlways;
      },
      "and compute its front meanwhile, whether that pays or not; for tests");
  app.add_option("--max-seqs", scheduler.max_seqs, "sequences running at once");
  app.add_option("--max-step-tokens", scheduler.max_step_tokens, "rows of one step");
  app.add_option("--policy", flags->policy, "continuous or static");
  app.add_option("--chunked-prefill", scheduler.chunked_prefill, "prompts in parts");
  app.add_option("--waiting-served-ratio", scheduler.waiting_served_ratio,
                 "without chunked prefill: waiting/running at which a prompt pauses decode");
  app.add_option("--log-level", flags->log_level)
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
}

// Before any thread: they inherit the mask, so SIGTERM is read by the front door alone.
int block_sigterm() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

Result<int> serve(ServeFlags& flags) {
  ServeOptions& options = flags.options;
  HEARTH_ASSIGN_OR_RETURN(options.engine.kv_type, parse_kv_type(flags.kv_type));
  HEARTH_ASSIGN_OR_RETURN(options.engine.scheduler.policy, parse_policy(flags.policy));
  HEARTH_ASSIGN_OR_RETURN(options.engine.speculation, parse_speculation(flags.speculation));
  LogLevel level = LogLevel::kInfo;
  parse_log_level(flags.log_level, &level);
  init_logging("hearth-worker", level);
  const int signal_fd = block_sigterm();
  HEARTH_ASSIGN_OR_RETURN(BrokerLink link, BrokerLink::connect(options.socket));
  FrontDoor front_door(options, std::move(link), signal_fd);
  return front_door.run();
}

int run(int argc, char** argv) {
  CLI::App app("hearth-worker: computes one model on one device");
  app.set_version_flag("--version", std::string(ipc::version()));
  app.require_subcommand(1);

  ServeFlags serve_flags;
  CLI::App* serve_verb = app.add_subcommand("serve", "serve a broker");
  add_serve_options(*serve_verb, &serve_flags);

  DeviceOptions doctor_device;
  bool as_json = false;
  CLI::App* doctor_verb = app.add_subcommand("doctor", "what this device offers, and why");
  add_device_options(*doctor_verb, &doctor_device);
  doctor_verb->add_flag("--json", as_json, "one JSON object");
  int status = 0;
  add_bench(app, &status);
  add_cache(app, &status);
  add_convert(app, &status);
  add_inspect(app, &status);
  add_perplexity(app, &status);
  add_plan(app, &status);
  add_quantize(app, &status);
  add_render(app, &status);
  add_tokenize(app, &status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? 0 : kUsage;
  }

  if (doctor_verb->parsed()) return run_doctor(doctor_device, as_json);
  if (!serve_verb->parsed()) return status;
  Result<int> served = serve(serve_flags);
  return served ? *served : fail(served.error());
}

}  // namespace
}  // namespace hearth::worker

int main(int argc, char** argv) { return hearth::worker::run(argc, argv); }
