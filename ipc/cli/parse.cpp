#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "ipc/cli/options.h"
#include "ipc/cli/terminal.h"
#include "ipc/field_table.h"
#include "ipc/version.h"
#include "kernels/base/result.h"

namespace hearth::cli {
namespace {

using ipc::Field;
using ipc::FieldType;

constexpr const char* kFooter = R"(
Examples:
  hearth run tales "Once upon a time"        streams a story; starts a daemon if none answers
  cat letter.txt | hearth run tales > out    piped: nothing but the text on stdout
  hearth run tales --temperature 0 -f a.txt  greedy, from a file
  hearth run tales --json "Once" | jq .      one JSON line per event
  hearth chat MODEL                          a conversation; hearth chat --resume goes on with it
  hearth models                              what can be run
  hearth ps; hearth cancel ID                live requests; end one of yours
  hearth run tales --detach "Once"           goes on by itself, under the id that is printed
  hearth attach ID; hearth fork ID           back to such a request; another end of it
  hearth embed MODEL "a text"                its vector
  hearth swap default MODEL                  another model from now on; nothing is cut off
  hearth top                                 what it is doing, drawn every second
  hearth inspect FILE.gguf                   what a model file holds
  hearth tokenize tales "Once upon"          the tokens of a text
  hearth render MODEL -f messages.json       the prompt that its chat template makes
  hearth bench --quick FILE.gguf             how fast it runs here, and of what ceiling
  hearth config                              every setting, and where it came from
  hearth doctor                              what hearth would use here, and why

Exit status: 0 done; 1 the request failed; 2 the command line makes no sense;
3 no daemon answers, or it went away; 130 interrupted by Ctrl-C.

Sockets are in $HEARTH_RUNTIME_DIR, else $XDG_RUNTIME_DIR/hearth, else ~/.cache/hearth/run;
a running service (/run/hearth) is found by itself. HEARTH_MODEL_DIRS lists folders of models.)";

constexpr const char* kRunFooter = R"(
The prompt is the words after MODEL, a file (-f), or standard input when it is piped (its last
newline is dropped); without any, the model begins by itself. Words that begin with a dash go
after "--".

On a terminal the text streams as it comes, escape characters are shown and not obeyed, and a line
of timings follows: prompt tokens (cached ones), time to first token (TTFT), tokens per second, why
it ended. Piped, stdout gets the text alone. Ctrl-C ends the request and keeps what came.)";

constexpr const char* kChatFooter = R"(
/help lists what can be done with a conversation: another answer, the last question anew, the
system's words, the timings. Ctrl-C stops an answer and keeps what came; Ctrl-D ends. Conversations
are kept in $XDG_STATE_HOME/hearth/chats (else ~/.local/state), readable by you alone.)";

constexpr const char* kTokenizeFooter = R"(
A file, and a model in the model folders that you may read, is tokenized here, without a daemon:
each token with the bytes of the text that it stands for. Other names and roles are asked of the
daemon, which tells ids and vocabulary entries.)";

std::string flag_name(const Field& field) {
  std::string name = "--" + std::string(field.name);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

/// The default is worth a word where it is not "off".
std::string help_of(const Field& field) {
  std::string help(field.meaning);
  std::erase(help, '`');
  if (field.type == FieldType::kInteger || field.type == FieldType::kNumber) {
    help +=
        fmt::format(" {:.15g} to {:.15g}, default {}.", field.min, field.max, field.default_value);
  } else if (field.type == FieldType::kChoice) {
    help += fmt::format(" Default {}.", field.default_value);
  }
  return help;
}

/// The option that sets one field of a request.
void add_field(CLI::App& verb, const Field& field,
               std::vector<std::pair<std::string, std::string>>& fields) {
  const std::string name(field.name);
  const std::string group = "Fields of the request";
  switch (field.type) {
    case FieldType::kBool: {
      // A field that is on unless said otherwise gets the flag that turns it off.
      const bool on = field.default_value == "true";
      const std::string flag = on ? "--no-" + flag_name(field).substr(2) : flag_name(field);
      verb.add_flag_callback(
              flag, [&fields, name, on] { fields.emplace_back(name, on ? "false" : "true"); },
              on ? "Turn this off: " + help_of(field) : help_of(field))
          ->group(group);
      return;
    }
    case FieldType::kTextList:
    case FieldType::kIdList:
    case FieldType::kLogitBias: {
      std::string help = help_of(field) + " May be repeated.";
      if (field.type == FieldType::kLogitBias) help += " Written ID=NUMBER.";
      verb.add_option_function<std::vector<std::string>>(
              flag_name(field),
              [&fields, name](const std::vector<std::string>& values) {
                for (const std::string& value : values) fields.emplace_back(name, value);
              },
              help)
          ->expected(1)
          ->take_all()
          ->type_name(field.type == FieldType::kTextList ? "TEXT"
                      : field.type == FieldType::kIdList ? "ID"
                                                         : "ID=NUMBER")
          ->group(group);
      return;
    }
    default: {
      const char* type = field.type == FieldType::kNumber ? "NUMBER"
                         : field.type == FieldType::kInteger || field.type == FieldType::kSeed
                             ? "INT"
                             : "TEXT";
      verb.add_option_function<std::string>(
              flag_name(field),
              [&fields, name](const std::string& value) { fields.emplace_back(name, value); },
              help_of(field))
          ->type_name(type)
          ->group(group);
    }
  }
}

void add_run(CLI::App& app, RunOptions& options) {
  CLI::App* verb = app.add_subcommand("run", "Continues a prompt and streams the text");
  verb->add_option("MODEL", options.model, "a model's name (hearth models) or a role")->required();
  verb->add_option("PROMPT", options.prompt_words, "the words to go on from");
  verb->add_option("-f,--file", options.file, "the prompt is this file's text; - is stdin")
      ->type_name("FILE");
  verb->add_flag("--json", options.json, "one JSON line per event on stdout");
  verb->add_flag("--ids", options.ids, "token ids instead of text");
  verb->add_flag("--stats", options.stats, "the line of timings on stderr, piped or not");
  verb->add_flag("--no-start", options.no_start, "start no daemon where none answers");
  verb->add_flag("--allow-root", options.allow_root, "start one as root, too");
  for (const Field& field : ipc::request_fields()) {
    // A conversation is no affair of flags.
    const bool chat = field.name == "messages" || field.name == "tools" ||
                      field.name == "tool_choice" || field.name == "parallel_tool_calls" ||
                      field.name == "template_kwargs";
    const bool elsewhere = field.name == "model" || field.name == "prompt" || chat;
    if (has_verb(field, ipc::Verb::kGenerate) && !elsewhere)
      add_field(*verb, field, options.fields);
  }
  verb->footer(kRunFooter);
}

void add_chat(CLI::App& app, ChatOptions& options) {
  CLI::App* verb = app.add_subcommand("chat", "A conversation with a model, at the terminal");
  verb->add_option("MODEL", options.model, "a model's name or a role; default: default");
  verb->add_option_function<std::string>(
          "--resume",
          [&options](const std::string& name) {
            options.resume = true;
            options.name = name;
          },
          "goes on with a conversation; without NAME: with the last one")
      ->expected(0, 1)
      ->type_name("[NAME]");
  verb->add_flag("--list", options.list, "the conversations that are kept");
  verb->add_option("--name", options.name, "the new conversation's name; default: date and time")
      ->type_name("NAME");
  verb->add_option("--system", options.system, "what the model is told in front of all")
      ->type_name("TEXT");
  verb->add_flag("--hide-reasoning", options.hide_reasoning, "does not show it");
  verb->add_flag("--no-start", options.no_start, "start no daemon where none answers");
  verb->add_flag("--allow-root", options.allow_root, "start one as root, too");
  for (const char* name : {"max_tokens", "temperature", "top_k", "top_p", "min_p",
                           "repetition_penalty", "seed", "ignore_eos", "draft", "cache"}) {
    add_field(*verb, *ipc::find_field(ipc::Verb::kGenerate, name), options.fields);
  }
  verb->footer(kChatFooter);
}

void add_tokenize(CLI::App& app, TokenizeOptions& options) {
  CLI::App* verb = app.add_subcommand("tokenize", "Shows the tokens of a text");
  verb->add_option("MODEL", options.model_word, "a .gguf file, a model's name or a role");
  verb->add_option("TEXT", options.text_words, "the text; else a file's (-f) or piped stdin");
  verb->add_option("--model", options.model, "the model; then every word is text")
      ->type_name("MODEL");
  verb->add_option("-f,--file", options.file, "the text is this file's; - is stdin")
      ->type_name("FILE");
  verb->add_flag("--raw", options.raw, "no BOS token in front");
  verb->add_flag("--special,--parse-special", options.parse_special,
                 "control tokens in the text are tokens");
  verb->add_flag("--ids", options.ids, "the ids alone, in one line");
  verb->add_flag("--json", options.json, "as JSON");
  verb->add_flag("--no-start", options.no_start, "start no daemon where none answers");
  verb->add_flag("--allow-root", options.allow_root, "start one as root, too");
  verb->footer(kTokenizeFooter);
}

void add_attach(CLI::App& app, AttachOptions& options) {
  CLI::App* verb = app.add_subcommand("attach", "Back to one of your requests, live or just ended");
  verb->add_option("ID", options.id, "as hearth run --detach or hearth ps shows it")->required();
  verb->add_option("--from", options.from, "from this token of each sample on; default 0")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("INT");
  CLI::App* fork = app.add_subcommand("fork", "Goes on from what a request has written so far");
  fork->add_option("ID", options.id, "a request of yours, live or just ended")->required();
  fork->add_option_function<int>(
          "--from", [&options](const int& from) { options.from = from; },
          "behind so many of its tokens; default: all that it has")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("INT");
  fork->add_option("--sample", options.sample, "of that request; default 0")
      ->check(CLI::Range(0, 15))
      ->type_name("INT");
  fork->add_option("-n,--n", options.n, "continuations; default 1")
      ->check(CLI::Range(1, 16))
      ->type_name("INT");
  fork->add_option("--max-tokens", options.max_tokens,
                   "of each; default: as many as the request had left there")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("INT");
  fork->add_option("--seed", options.seed, "default: the daemon chooses one")->type_name("INT");
  for (CLI::App* each : {verb, fork}) {
    each->add_flag("--json", options.json, "one JSON line per event on stdout");
    each->add_flag("--ids", options.ids, "token ids instead of text");
    each->add_flag("--stats", options.stats, "the line of timings on stderr, piped or not");
  }
  verb->footer(
      "\nWhat was sent before is sent again, then it streams. Ctrl-C leaves it running (hearth "
      "cancel ends it).");
}

void add_embed(CLI::App& app, EmbedOptions& options) {
  CLI::App* verb = app.add_subcommand("embed", "Texts as vectors");
  verb->add_option("MODEL", options.model, "a model's name or a role")->required();
  verb->add_option("TEXT", options.text_words, "the text; else a file's (-f) or piped stdin");
  verb->add_option("-f,--file", options.file, "the text is this file's; - is stdin")
      ->type_name("FILE");
  verb->add_flag("--lines", options.lines, "each line is a text of its own");
  verb->add_option("--pooling", options.pooling,
                   "how the tokens' rows become one vector; default: as the model's file says")
      ->check(CLI::IsMember({"auto", "mean", "cls", "last"}))
      ->type_name("HOW");
  verb->add_flag("--no-normalize", options.raw, "vectors as they are, not scaled to length 1");
  verb->add_flag("--json", options.json, "one JSON object");
  verb->add_flag("--no-start", options.no_start, "start no daemon where none answers");
  verb->add_flag("--allow-root", options.allow_root, "start one as root, too");
}

/// With --model every word is text.
Result<void> name_tokenize_model(TokenizeOptions* options) {
  if (options->model.empty()) {
    options->model = std::move(options->model_word);
  } else if (!options->model_word.empty()) {
    options->text_words.insert(options->text_words.begin(), std::move(options->model_word));
  }
  if (!options->model.empty()) return {};
  return Error{ErrorCode::kInvalidArgument, "tokenize: want a model's name or file", "model"};
}

/// Verbs without a daemon of which another program, the worker or hearth-pull, knows what they
/// take.
struct WorkerVerb {
  std::string_view name;
  const char* meaning;
};
constexpr WorkerVerb kWorkerVerbs[] = {
    {"cache", "The prefixes kept on disk: ls, stats, rm, pin, unpin, verify, compact, warm, why"},
    {"bench", "How fast a model runs here, and of what ceiling"},
    {"inspect", "What a model file holds, and whether it runs here"},
    {"perplexity", "How well a model foresees a text, and how far it is from another"},
    {"convert", "Writes published weights (safetensors) as a model file"},
    {"quantize", "Writes a model file in another type"},
    {"pull", "Fetches a model file: https://..., hf:OWNER/REPO/FILE"},
    {"render", "The prompt that a model's chat template makes of messages, and its tokens"},
    {"plan", "What serving a model takes and brings, before it is loaded"},
};

bool is_worker_verb(std::string_view word) {
  return std::any_of(std::begin(kWorkerVerbs), std::end(kWorkerVerbs),
                     [word](const WorkerVerb& verb) { return verb.name == word; });
}

}  // namespace

Parsed parse(int argc, char** argv) {
  Parsed parsed;
  Options& options = parsed.options;
  CLI::App app("hearth: asks the local daemon's language models", "hearth");
  app.set_version_flag("--version", "hearth " + std::string(ipc::version()));
  app.require_subcommand(1);
  app.footer(kFooter);
  app.get_formatter()->column_width(34);

  add_run(app, options.run);
  add_chat(app, options.chat);
  const auto add_plain = [&](const char* name, const char* meaning) {
    CLI::App* verb = app.add_subcommand(name, meaning);
    verb->add_flag("--json", options.json, "as JSON");
    return verb;
  };
  add_plain("models", "Models that can be run, and the folders searched");
  add_plain("ps", "Live requests, and the models in memory");
  CLI::App* stats = add_plain("stats", "The daemon's counters and each worker's state");
  stats
      ->add_option("--record", options.record,
                   "keep what happens in this file, for hearth-monitor --replay; Ctrl-C ends")
      ->type_name("FILE");
  stats->add_option("--for", options.record_s, "seconds to record; 0: until Ctrl-C")
      ->check(CLI::Range(0.0, 86'400.0))
      ->type_name("SECONDS");
  app.add_subcommand("top", "The essentials, drawn anew every second")
      ->add_flag("--once", options.once, "one picture, and end");
  app.add_subcommand("cancel", "Ends one of your requests")
      ->add_option("ID", options.request_id, "as hearth ps shows it")
      ->required();
  add_attach(app, options.attach);
  add_embed(app, options.embed);
  CLI::App* load = add_plain("load", "Brings a model into memory");
  load->add_option("MODEL", options.model, "a model's name or a role")->required();
  load->add_option("--keep-alive", options.keep_alive,
                   "idle, it leaves after so long: 90s, 30m, 8h, never")
      ->type_name("TIME");
  load->add_option("--draft", options.draft,
                   "the small model that guesses for it, or none; default: as configured")
      ->type_name("NAME");
  add_plain("unload", "Takes a model out of memory once its requests have ended")
      ->add_option("MODEL", options.model, "a model's name or a role")
      ->required();
  CLI::App* swap = add_plain("swap", "Loads a model and points a role at it");
  swap->add_option("ROLE", options.role, "default, or a role of the configuration")->required();
  swap->add_option("MODEL", options.model, "the model's name")->required();
  add_plain("ping", "Whether a daemon answers")
      ->add_option("--wait-ms", options.wait_ms, "keep trying for so long")
      ->check(CLI::Range(0, 600'000));
  add_tokenize(app, options.tokenize);
  app.add_subcommand("stop", "Stops your own daemon once its requests have ended");
  for (const WorkerVerb& verb : kWorkerVerbs) {
    app.add_subcommand(std::string(verb.name), verb.meaning);
  }
  app.add_subcommand("keygen", "Makes a pair of keys for connections over TCP")
      ->add_option("FILE", options.key_file, "the secret key goes here (mode 0600)")
      ->required();
  app.add_subcommand("config", "Every setting, and where its value came from");
  add_plain("doctor", "What hearth would use on this machine, and why");
  app.add_subcommand("protocol", "Prints the protocol's documentation as Markdown");

  if (argc <= 1) {
    write_stderr(app.help());
    parsed.finished = true;
    parsed.status = kUsage;
    return parsed;
  }
  if (is_worker_verb(argv[1])) {  // its options and its help are the worker's
    options.verb = argv[1];
    options.worker_words.assign(argv + 1, argv + argc);
    return parsed;
  }
  try {
    app.parse(argc, argv);
    options.verb = app.get_subcommands().front()->get_name();
  } catch (const CLI::ParseError& problem) {
    parsed.finished = true;
    parsed.status = app.exit(problem) == 0 ? kOk : kUsage;
    return parsed;
  }
  if (options.verb == "fork" && !app.get_subcommand("fork")->count("--from")) {
    options.attach.from = -1;
  }
  if (options.verb != "tokenize") return parsed;
  if (const Result<void> named = name_tokenize_model(&options.tokenize); !named.ok()) {
    complain(named.error().message);
    parsed.finished = true;
    parsed.status = kUsage;
  }
  return parsed;
}

}  // namespace hearth::cli
