// hearth cache: the prefixes kept on disk. A user's own daemon keeps them in files of that user, so
// the worker program manages them directly, whether or not a daemon runs. The prefixes of another
// user's daemon, such as the system's service, are managed through that daemon. `warm` and `why`
// always ask a daemon.

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/connect/program.h"
#include "ipc/cli/terminal/input.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"
#include "ipc/text/wrap_lines.h"

namespace hearth::cli {
namespace {

struct WarmOptions {
  std::string model = "default";
  std::string file;
  int64_t ttl_s = 0;
  bool no_start = false;
};

/// Generates one token, because a request's prefix is offered to the disk when the request ends.
int warm(const WarmOptions& options) {
  Result<std::string> text = read_text({}, options.file);
  if (!text.ok()) return fail(text.error());
  std::optional<ipc::Client> client = connect_or_start(options.no_start);
  if (!client) return kNoDaemon;
  ipc::GenerateRequest request;
  request.model = options.model;
  request.prompt = std::move(*text);
  request.max_tokens = 1;
  request.temperature = 0;
  request.cache = "disk";
  request.cache_keep_s = options.ttl_s;
  const Result<ipc::DoneEvent> done = client->generate(request, {});
  if (!done.ok()) return fail(done.error());
  const ipc::Usage& usage = done->usage;
  write_stdout(terminal_safe(fmt::format("{}: {} tokens, {} of them were cached, {:.1f} s\n",
                                         done->model, usage.prompt_tokens, usage.cached_tokens,
                                         done->timings.total_ms / 1000)));
  return kOk;
}

int ask(const ipc::CacheRequest& request) {
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  const Result<ipc::CacheReply> reply = client->cache(request);
  if (!reply.ok()) return fail(reply.error());
  if (reply->ok) {
    write_stdout(terminal_safe(reply->text));
    return kOk;
  }
  write_stderr(terminal_safe(reply->text));
  return kFailed;
}

/// Prints what the workers of a daemon report about their stores; nothing if no daemon answers.
void print_states() {
  Result<ipc::Client> client = ipc::Client::connect({});
  if (!client.ok()) return;
  const Result<ipc::StatsReply> stats = client->stats();
  if (!stats.ok()) return;
  std::string out;
  for (const ipc::WorkerStats& worker : stats->workers) {
    const ipc::StoreSnapshot& store = worker.snapshot.store;
    if (store.ram_budget_bytes > 0) {
      out += fmt::format("{} holds in host memory {}\n", worker.model, ram_text(store));
    }
    if (store.state == "off") continue;
    out += fmt::format("{} is {}: {} chunks saved, {} loaded, {} dropped, {} refused{}{}\n",
                       worker.model, store.state, store.chunks_saved, store.chunks_loaded,
                       store.chunks_dropped, store.chunks_refused,
                       store.last_error.empty() ? "" : "; last problem: ", store.last_error);
  }
  write_stdout(terminal_safe(out));
}

/// True if the daemon that answers belongs to another user.
bool daemon_is_foreign() {
  Result<ipc::Client> client = ipc::Client::connect({});
  struct stat folder {};
  return client.ok() && ::stat(client->runtime_dir().c_str(), &folder) == 0 &&
         folder.st_uid != ::geteuid();
}

void add_to_daemon(CLI::App& app, ipc::CacheRequest& request) {
  const auto add = [&](const char* name, const char* meaning) {
    CLI::App* verb = app.add_subcommand(name, meaning);
    verb->add_option("--model", request.model, "only this model's prefixes");
    verb->add_flag("--all-owners", request.all, "the prefixes of every owner; for administrators");
    return verb;
  };
  CLI::App* ls = add("ls", "List prefixes: a line per run of tokens, branches below it");
  ls->add_flag("--json", request.as_json, "as JSON, one object per chunk");
  ls->add_flag("--show-text", request.show_text, "also show the first words of each line");
  add("stats", "Show sizes by model and owner")->add_flag("--json", request.as_json, "as JSON");
  CLI::App* rm = add("rm", "Remove prefixes, and all that continue them");
  rm->add_option("NAME", request.names, "as ls shows it");
  rm->add_flag("--all", request.all, "all of your prefixes");
  rm->add_flag("--wipe", request.wipe, "leave no byte of them in the files");
  CLI::App* pin = add("pin", "Protect prefixes, and everything before them, from eviction");
  pin->add_option("NAME", request.names, "as ls shows it")->required();
  pin->add_option("--ttl-s,--ttl", request.ttl_s, "for this many seconds; default: an hour");
  add("unpin", "Allow eviction again")
      ->add_option("NAME", request.names, "as ls shows it")
      ->required();
  add("verify", "Read everything and remove what is damaged; for administrators");
  add("compact", "Return freed space to the file system; for administrators");
}

}  // namespace

int cache(const std::vector<std::string>& words) {
  const std::string verb = words.size() > 1 ? words[1] : "";
  // The worker does not know the verbs that ask the daemon, so the help for all is printed here.
  const bool for_all = verb.empty() || verb == "--help" || verb == "-h";
  const bool asks_daemon = for_all || verb == "warm" || verb == "why";
  const auto has = [&words](std::string_view word) {
    return std::ranges::any_of(words,
                               [&](const std::string& each) { return each.starts_with(word); });
  };
  const bool about_files = has("--state-dir") || has("--help") || has("-h");
  if (verb == "stats" && !about_files && !has("--json")) print_states();
  const bool own_files =
      !asks_daemon && (verb.starts_with("-") || about_files || !daemon_is_foreign());
  if (own_files) return exec_worker(words);

  CLI::App app("Manage the prefixes on disk", "hearth cache");
  app.require_subcommand(1);
  ipc::CacheRequest request;
  add_to_daemon(app, request);
  WarmOptions options;
  CLI::App* warmer = app.add_subcommand("warm", "Compute a text once and store its prefix");
  std::vector<std::string> what;
  warmer->add_option("WHAT", what, "[MODEL] FILE: a model's name or a role; - is stdin")
      ->required()
      ->expected(1, 2);
  warmer->add_option("--ttl-s,--ttl", options.ttl_s, "also pin it for this many seconds");
  warmer->add_flag("--no-start", options.no_start, "do not start a daemon if none answers");
  app.add_subcommand("why",
                     "Explain why a request's prompt had to be computed, and from which token")
      ->add_option("REQUEST", request.names, "the request's id")
      ->required()
      ->expected(1);
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend() - 1);
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return write_stdout(ipc::wrap_lines(app.help(), 80)) ? kOk : kFailed;
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? kOk : kUsage;
  }
  if (verb == "warm") {
    options.file = what.back();
    if (what.size() == 2) options.model = what.front();
    return warm(options);
  }
  request.op = app.get_subcommands().front()->get_name();
  return ask(request);
}

}  // namespace hearth::cli
