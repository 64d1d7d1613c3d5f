// hearth: the command line.

#include "ipc/cli/options.h"
#include "ipc/cli/program.h"
#include "ipc/cli/verbs.h"

namespace hearth::cli {
namespace {

int main_of(int argc, char** argv) {
  const Parsed parsed = parse(argc, argv);
  if (parsed.finished) return parsed.status;
  const Options& options = parsed.options;
  if (options.verb == "pull") return exec_pull(options.worker_words);
  if (options.verb == "cache") return cache(options.worker_words);
  if (!options.worker_words.empty()) return exec_worker(options.worker_words);
  const std::string& verb = options.verb;
  if (verb == "run") return run(options.run);
  if (verb == "chat") return chat(options.chat);
  if (verb == "tokenize") return tokenize(options.tokenize);
  if (verb == "models") return models(options.json);
  if (verb == "ps") return ps(options.json);
  if (verb == "stats" && !options.record.empty()) return record(options.record, options.record_s);
  if (verb == "stats") return stats(options.json);
  if (verb == "top") return top(options.once);
  if (verb == "cancel") return cancel(options.request_id);
  if (verb == "attach") return attach(options.attach);
  if (verb == "fork") return fork_request(options.attach);
  if (verb == "embed") return embed(options.embed);
  if (verb == "load") return load(options);
  if (verb == "unload") return unload(options);
  if (verb == "swap") return swap(options);
  if (verb == "ping") return ping(options.json, options.wait_ms);
  if (verb == "start") return start(options.allow_root);
  if (verb == "stop") return stop();
  if (verb == "config") return config();
  if (verb == "keygen") return keygen(options.key_file);
  if (verb == "doctor") return doctor(options.json);
  return protocol();
}

}  // namespace
}  // namespace hearth::cli

int main(int argc, char** argv) { return hearth::cli::main_of(argc, argv); }
