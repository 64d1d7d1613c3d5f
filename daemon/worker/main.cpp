// hearth-worker-<device>: one model on one device, serving a broker; and the verbs that compute
// without a daemon, which the command line runs as `hearth-worker-<device> VERB`.

#include <signal.h>
#include <sys/signalfd.h>

#include <cstdio>

#include "daemon/worker/load/device.h"
#include "daemon/worker/load/options.h"
#include "daemon/worker/load/sampling_defaults.h"
#include "daemon/worker/serve/broker_link.h"
#include "daemon/worker/serve/front_door.h"
#include "daemon/worker/tools/command_line.h"
#include "daemon/worker/tools/doctor.h"
#include "daemon/worker/tools/verbs.h"
#include "ipc/schema/version.h"
#include "kernels/base/log.h"

namespace hearth::worker {
namespace {

struct ServeFlags {
  ServeOptions options;
  std::string kv_type = "f16";
  std::string policy = "continuous";
  std::string speculation = "lookup";
  std::string sampling;
  std::string log_level = "info";
  bool restore_both = false;
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

void add_serve_options(Verb verb, ServeFlags* flags) {
  ServeOptions& options = flags->options;
  engine::EngineConfig& engine = options.engine;
  engine::SchedulerConfig& scheduler = engine.scheduler;
  verb.option("--socket", options.socket, "the broker's socket for this worker").required();
  verb.option("--model", options.model, "model file").required();
  add_device_options(verb, &options.device);
  verb.option("--kv-type", flags->kv_type, "f16, bf16, q8_0 or f32");
  verb.option("--kv-bytes", engine.kv_bytes, "memory for KV; 0: chosen");
  verb.option("--block-size", engine.block_size, "tokens per KV block");
  verb.option("--context-length", engine.context_length, "tokens; 0: the model's");
  verb.option("--prefix-cache", engine.prefix_cache, "keep prompts' KV for later requests");
  verb.option("--speculation", flags->speculation,
              "guess tokens ahead: lookup (in the text so far) or off");
  verb.option("--draft", options.draft,
              "a small model of the same tokens that guesses too: a file, or a name beside MODEL");
  verb.option("--prefix-dir", options.prefix_dir, "where prefixes are kept; none: nowhere");
  verb.option("--prefix-store-bytes", options.prefix_store_bytes, "KV kept there, at most");
  verb.option("--prefix-owner-bytes", options.prefix_owner_bytes, "of one owner; 0: no bound");
  verb.option("--prefix-pinned-bytes", options.prefix_pinned_bytes, "of it pinned");
  verb.option("--prefix-ram-bytes", options.prefix_ram_bytes,
              "of host memory for KV that has left a GPU; 0: none");
  verb.option("--always-restore", engine.always_restore,
              "take from there what recomputing would bring sooner; for tests");
  verb.option("--restore-both", flags->restore_both,
              "and compute its front meanwhile, whether that pays or not; for tests");
  verb.option("--max-seqs", scheduler.max_seqs, "sequences running at once");
  verb.option("--max-step-tokens", scheduler.max_step_tokens, "rows of one step");
  verb.option("--policy", flags->policy, "continuous or static");
  verb.option("--chunked-prefill", scheduler.chunked_prefill, "prompts in parts");
  verb.option("--waiting-served-ratio", scheduler.waiting_served_ratio,
              "without chunked prefill: waiting/running at which a prompt pauses decode");
  verb.option("--sampling", flags->sampling,
              "how tokens are drawn where neither request nor file says: temperature=0.7 top_k=20");
  verb.option("--log-level", flags->log_level).one_of({"debug", "info", "warn", "error"});
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
  HEARTH_ASSIGN_OR_RETURN(options.sampling, parse_sampling(flags.sampling));
  LogLevel level = LogLevel::kInfo;
  parse_log_level(flags.log_level, &level);
  if (flags.restore_both) options.engine.restore_overlap = engine::RestoreOverlap::kAlways;
  init_logging("hearth-worker", level);
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
  add_serve_options(serve_verb, &serve_flags);
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

  for (const auto add : {add_bench, add_cache, add_convert, add_inspect, add_perplexity, add_plan,
                         add_quantize, add_render, add_tokenize}) {
    add(program);
  }
  return line.parse_and_run(argc, argv);
}

}  // namespace
}  // namespace hearth::worker

int main(int argc, char** argv) { return hearth::worker::run(argc, argv); }
