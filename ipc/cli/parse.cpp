#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "ipc/cli/options.h"
#include "ipc/cli/program.h"
#include "ipc/cli/terminal.h"
#include "ipc/cli/verbs.h"
#include "ipc/schema/field_table.h"
#include "ipc/schema/version.h"
#include "ipc/text/did_you_mean.h"
#include "ipc/text/utf8.h"
#include "ipc/text/wrap_lines.h"
#include "kernels/base/result.h"

namespace hearth::cli {
namespace {

using ipc::Field;
using ipc::FieldType;

constexpr const char* kFooter = R"(
Examples:
  hearth run MODEL "Why is the sky blue?"   answers; starts a daemon if needed
  git diff | hearth run MODEL "Explain it"  what is piped in follows the words
  hearth run tales "Once upon a time"       without a chat template: goes on
  cat a.txt | hearth run tales > out        piped: only the text on stdout
  hearth run tales --temperature 0 -f a.txt greedy, from a file
  hearth run tales --json "Once" | jq .     one JSON line per event
  hearth run ./file.gguf "Hello"            a file, by a daemon of your own
  hearth chat MODEL                         a conversation; --resume goes on
  hearth models                             what can be run
  hearth ps; hearth cancel ID               live requests; end one of yours
  hearth run tales --detach "Once"          goes on by itself; prints its id
  hearth attach ID; hearth fork ID          back to it; another end of it
  hearth embed MODEL "a text"               its vector
  hearth swap default MODEL                 another model; nothing is cut off
  hearth top                                what it is doing, every second
  hearth inspect FILE.gguf                  what a model file holds
  hearth tokenize tales "Once upon"         the tokens of a text
  hearth render MODEL -f messages.json      what its chat template makes of it
  hearth bench --quick FILE.gguf            how fast, and of what ceiling
  hearth config                             every setting, where it came from
  hearth doctor                             what hearth would use here, and why

Exit status: 0 done; 1 the request failed; 2 the command line makes no sense;
3 no daemon answers, or it went away; 130 interrupted by Ctrl-C.

Sockets are in $HEARTH_RUNTIME_DIR, else $XDG_RUNTIME_DIR/hearth, else
~/.cache/hearth/run; a running service (/run/hearth) is found by itself.
HEARTH_MODEL_DIRS lists folders of models.)";

constexpr const char* kRunFooter = R"(
The prompt is the words after MODEL, then a file (-f) or what is piped in, a blank line between
them; one newline at the end of a file or a pipe is dropped. Where the model has a chat template
the prompt is a user's message and the text is the answer; --raw, and a model without one,
continue the prompt. Without any prompt, at a terminal, it becomes hearth chat, or the model
begins by itself. Words that begin with a dash go after "--"; < /dev/null keeps a pipe out.

A temperature and the like that are not given are the model's own: of its file, else of the
configuration's [sampling], else 0.8, top-p 0.95 and top-k 40.

On a terminal the text streams as it comes, escape characters are shown and not obeyed, and a line
of timings follows: prompt tokens (cached ones), time to first token (TTFT), tokens per second, why
it ended. Piped, stdout gets the text alone. Ctrl-C ends the request and keeps what came.)";

constexpr const char* kChatFooter = R"(
Words after MODEL are the first question. Where standard input is no terminal, it and the words
are one question: the answer goes to stdout, everything else to stderr.

/help lists what can be done with a conversation: another answer, the last question anew, the
system's words, the timings. Ctrl-C stops an answer and keeps what came; Ctrl-D ends. Conversations
are kept in $HEARTH_STATE_DIR/chats, else $XDG_STATE_HOME/hearth/chats (~/.local/state), readable
by you alone.)";

constexpr const char* kTokenizeFooter = R"(
One newline at the end of a file or a pipe is dropped, as hearth run does.

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
    help += fmt::format(" {:.15g} to {:.15g}", field.min, field.max);
    // What is the model's own says so itself.
    help += field.default_value.empty() ? "." : fmt::format(", default {}.", field.default_value);
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

/// Flags of every verb that starts a daemon where none answers.
void add_start_flags(CLI::App& verb, bool& no_start, bool& allow_root) {
  verb.add_flag("--no-start", no_start, "start no daemon where none answers");
  verb.add_flag("--allow-root", allow_root, "start one as root, too");
}

void define_run(CLI::App& verb, Options& all) {
  RunOptions& options = all.run;
  verb.add_option("MODEL", options.model, "a model's name (hearth models), a role or a .gguf file")
      ->required();
  verb.add_option("PROMPT", options.prompt_words, "the question, or the words to go on from");
  verb.add_option("-f,--file", options.file, "the prompt is this file's text; - is stdin")
      ->type_name("FILE");
  verb.add_flag("--json", options.json, "one JSON line per event on stdout");
  verb.add_flag("--ids", options.ids, "token ids instead of text");
  verb.add_flag("--stats", options.stats, "the line of timings on stderr, piped or not");
  verb.add_flag("--raw", options.raw, "go on from the prompt, whatever template the model has");
  verb.add_flag_callback(
      "--no-bos", [&options] { options.fields.emplace_back("raw", "true"); },
      "put no BOS token in front of the prompt");
  add_start_flags(verb, options.no_start, options.allow_root);
  for (const Field& field : ipc::fields(ipc::Verb::kGenerate)) {
    // A conversation is no affair of flags.
    const bool chat = field.name == "messages" || field.name == "tools" ||
                      field.name == "tool_choice" || field.name == "parallel_tool_calls" ||
                      field.name == "template_kwargs";
    const bool elsewhere = field.name == "model" || field.name == "prompt" ||
                           field.name == "prompt_as" || field.name == "raw" || chat;
    if (!elsewhere) add_field(verb, field, options.fields);
  }
  verb.footer(kRunFooter);
}

void define_chat(CLI::App& verb, Options& all) {
  ChatOptions& options = all.chat;
  verb.add_option("MODEL", options.model, "a model's name, a role or a file; default: default");
  verb.add_option("QUESTION", options.words, "the first question");
  verb.add_option_function<std::string>(
          "--resume",
          [&options](const std::string& name) {
            options.resume = true;
            options.name = name;
          },
          "goes on with a conversation; without NAME: with the last one")
      ->expected(0, 1)
      ->type_name("[NAME]");
  verb.add_flag("--list", options.list, "the conversations that are kept");
  verb.add_option("--name", options.name, "the new conversation's name; default: date and time")
      ->type_name("NAME");
  verb.add_option("--system", options.system, "what the model is told in front of all")
      ->type_name("TEXT");
  verb.add_flag("--hide-reasoning", options.hide_reasoning, "does not show it");
  add_start_flags(verb, options.no_start, options.allow_root);
  for (const char* name : {"max_tokens", "temperature", "top_k", "top_p", "min_p",
                           "repetition_penalty", "seed", "ignore_eos", "draft", "cache"}) {
    Field field = *ipc::find_field(ipc::Verb::kGenerate, name);
    if (field.name == "max_tokens") {  // answers are as long as they are
      field.meaning = "Tokens of an answer, at most; 0: as many as the context has room for.";
      field.default_value = "0";
    }
    add_field(verb, field, options.fields);
  }
  verb.footer(kChatFooter);
}

void define_tokenize(CLI::App& verb, Options& all) {
  TokenizeOptions& options = all.tokenize;
  verb.add_option("MODEL", options.model_word, "a .gguf file, a model's name or a role");
  verb.add_option("TEXT", options.text_words, "the text; else a file's (-f) or piped stdin");
  verb.add_option("--model", options.model, "the model; then every word is text")
      ->type_name("MODEL");
  verb.add_option("-f,--file", options.file, "the text is this file's; - is stdin")
      ->type_name("FILE");
  verb.add_flag("--raw", options.raw, "no BOS token in front");
  verb.add_flag("--special,--parse-special", options.parse_special,
                "control tokens in the text are tokens");
  verb.add_flag("--ids", options.ids, "the ids alone, in one line");
  verb.add_flag("--json", options.json, "as JSON");
  add_start_flags(verb, options.no_start, options.allow_root);
  verb.footer(kTokenizeFooter);
}

/// What attach and fork print.
void add_stream_flags(CLI::App& verb, AttachOptions& options) {
  verb.add_flag("--json", options.json, "one JSON line per event on stdout");
  verb.add_flag("--ids", options.ids, "token ids instead of text");
  verb.add_flag("--stats", options.stats, "the line of timings on stderr, piped or not");
}

void define_attach(CLI::App& verb, Options& all) {
  AttachOptions& options = all.attach;
  verb.add_option("ID", options.id, "as hearth run --detach or hearth ps shows it")->required();
  verb.add_option("--from", options.from, "from this token of each sample on; default 0")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("INT");
  add_stream_flags(verb, options);
  verb.footer(
      "\nWhat was sent before is sent again, then it streams. Ctrl-C leaves it running (hearth "
      "cancel ends it).");
}

void define_fork(CLI::App& verb, Options& all) {
  AttachOptions& options = all.attach;
  verb.add_option("ID", options.id, "a request of yours, live or just ended")->required();
  verb.preparse_callback([&options](size_t) { options.from = -1; });
  verb.add_option("--from", options.from, "behind so many of its tokens; default: all that it has")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("INT");
  verb.add_option("--sample", options.sample, "of that request; default 0")
      ->check(CLI::Range(0, 15))
      ->type_name("INT");
  verb.add_option("-n,--n", options.n, "continuations; default 1")
      ->check(CLI::Range(1, 16))
      ->type_name("INT");
  verb.add_option("--max-tokens", options.max_tokens,
                  "of each; default: as many as the request had left there")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("INT");
  verb.add_option("--seed", options.seed, "default: the daemon chooses one")->type_name("INT");
  add_stream_flags(verb, options);
}

void define_embed(CLI::App& verb, Options& all) {
  EmbedOptions& options = all.embed;
  verb.add_option("MODEL", options.model, "a model's name or a role")->required();
  verb.add_option("TEXT", options.text_words, "the text; else a file's (-f) or piped stdin");
  verb.add_option("-f,--file", options.file, "the text is this file's; - is stdin")
      ->type_name("FILE");
  verb.add_flag("--lines", options.lines, "each line is a text of its own");
  verb.add_option("--pooling", options.pooling,
                  "how the tokens' rows become one vector; default: as the model's file says")
      ->check(CLI::IsMember({"auto", "mean", "cls", "last"}))
      ->type_name("HOW");
  verb.add_flag("--no-normalize", options.raw, "vectors as they are, not scaled to length 1");
  verb.add_flag("--json", options.json, "one JSON object");
  add_start_flags(verb, options.no_start, options.allow_root);
}

/// With --model every word is text.
Result<void> name_tokenize_model(TokenizeOptions* options) {
  if (options->model.empty()) {
    options->model = std::move(options->model_word);
  } else if (!options->model_word.empty()) {
    options->text_words.insert(options->text_words.begin(), std::move(options->model_word));
  }
  if (!options->model.empty()) return {};
  return Error::invalid("tokenize: want a model's name or file", "model");
}

void define_json(CLI::App& verb, Options& options) {
  verb.add_flag("--json", options.json, "as JSON");
}

void define_stats(CLI::App& verb, Options& options) {
  define_json(verb, options);
  verb.add_option("--record", options.record,
                  "keep what happens in this file, for hearth-monitor --replay; Ctrl-C ends")
      ->type_name("FILE");
  verb.add_option("--for", options.record_s, "seconds to record; 0: until Ctrl-C")
      ->check(CLI::Range(0.0, 86'400.0))
      ->type_name("SECONDS");
}

void define_top(CLI::App& verb, Options& options) {
  verb.add_flag("--once", options.once, "one picture, and end");
}

void define_cancel(CLI::App& verb, Options& options) {
  verb.add_option("ID", options.request_id, "as hearth ps shows it")->required();
}

void define_load(CLI::App& verb, Options& options) {
  define_json(verb, options);
  verb.add_option("MODEL", options.model, "a model's name, a role or a .gguf file")->required();
  verb.add_option("--keep-alive", options.keep_alive,
                  "idle, it leaves after so long: 90s, 30m, 8h, never")
      ->type_name("TIME");
  verb.add_option("--draft", options.draft,
                  "its draft model, a small one, or none; default: as configured")
      ->type_name("NAME");
  add_start_flags(verb, options.no_start, options.allow_root);
}

void define_unload(CLI::App& verb, Options& options) {
  define_json(verb, options);
  verb.add_option("MODEL", options.model, "a model's name or a role")->required();
}

void define_swap(CLI::App& verb, Options& options) {
  define_json(verb, options);
  verb.add_option("ROLE", options.role, "default, or a role of the configuration")->required();
  verb.add_option("MODEL", options.model, "the model's name or a .gguf file")->required();
  add_start_flags(verb, options.no_start, options.allow_root);
}

void define_ping(CLI::App& verb, Options& options) {
  define_json(verb, options);
  verb.add_option("--wait-ms", options.wait_ms, "keep trying for so long")
      ->check(CLI::Range(0, 600'000));
}

void define_start(CLI::App& verb, Options& options) {
  verb.add_flag("--allow-root", options.allow_root, "start one as root, too");
}

void define_keygen(CLI::App& verb, Options& options) {
  verb.add_option("FILE", options.key_file, "the secret key goes here (mode 0600)")->required();
}

void define_nothing(CLI::App&, Options&) {}

int run_worker(const Options& options) { return exec_worker(options.passed_on); }

/// One verb: all that the program knows of it. Help, completions, the manual page and main() take
/// it from here.
struct Verb {
  const char* name;
  const char* meaning;
  /// Its options. Null: another program knows them (the worker, hearth-pull) and reads the words.
  void (*define)(CLI::App&, Options&);
  int (*run)(const Options&);
};
// In the order of the help.
constexpr Verb kVerbs[] = {
    {"run", "Answers a prompt, or goes on from it", define_run,
     [](const Options& options) { return run(options.run); }},
    {"chat", "A conversation with a model, at the terminal", define_chat,
     [](const Options& options) { return chat(options.chat); }},
    {"models", "Models that can be run, and the folders searched", define_json,
     [](const Options& options) { return models(options.json); }},
    {"ps", "Live requests, and the models in memory", define_json,
     [](const Options& options) { return ps(options.json); }},
    {"stats", "The daemon's counters and each worker's state", define_stats,
     [](const Options& options) {
       return options.record.empty() ? stats(options.json)
                                     : record(options.record, options.record_s);
     }},
    {"top", "The essentials, drawn anew every second", define_top,
     [](const Options& options) { return top(options.once); }},
    {"cancel", "Ends one of your requests", define_cancel,
     [](const Options& options) { return cancel(options.request_id); }},
    {"attach", "Back to one of your requests, live or just ended", define_attach,
     [](const Options& options) { return attach(options.attach); }},
    {"fork", "Goes on from what a request has written so far", define_fork,
     [](const Options& options) { return fork_request(options.attach); }},
    {"embed", "Texts as vectors", define_embed,
     [](const Options& options) { return embed(options.embed); }},
    {"load", "Brings a model into memory", define_load,
     [](const Options& options) { return load(options); }},
    {"unload", "Takes a model out of memory once its requests have ended", define_unload,
     [](const Options& options) { return unload(options); }},
    {"swap", "Loads a model and points a role at it", define_swap,
     [](const Options& options) { return swap(options); }},
    {"ping", "Whether a daemon answers", define_ping,
     [](const Options& options) { return ping(options.json, options.wait_ms); }},
    {"tokenize", "Shows the tokens of a text", define_tokenize,
     [](const Options& options) { return tokenize(options.tokenize); }},
    {"start", "Starts a daemon of your own, where none answers", define_start,
     [](const Options& options) { return start(options.allow_root); }},
    {"stop", "Stops your own daemon once its requests have ended", define_nothing,
     [](const Options&) { return stop(); }},
    {"cache", "The prefixes kept on disk: ls, stats, rm, pin, unpin, verify, compact, warm, why",
     nullptr, [](const Options& options) { return cache(options.passed_on); }},
    {"bench", "How fast a model runs here, and of what ceiling", nullptr, run_worker},
    {"inspect", "What a model file holds, and whether it runs here", nullptr, run_worker},
    {"perplexity", "How well a model foresees a text, and how far it is from another", nullptr,
     run_worker},
    {"convert", "Writes published weights (safetensors) as a model file", nullptr, run_worker},
    {"quantize", "Writes a model file in another type", nullptr, run_worker},
    {"pull", "Fetches a model file: https://..., hf:OWNER/REPO/FILE", nullptr,
     [](const Options& options) { return exec_pull(options.passed_on); }},
    {"render", "The prompt that a model's chat template makes of messages, and its tokens", nullptr,
     run_worker},
    {"plan", "What serving a model takes and brings, before it is loaded", nullptr, run_worker},
    {"keygen", "Makes a pair of keys for connections over TCP", define_keygen,
     [](const Options& options) { return keygen(options.key_file); }},
    {"config", "Every setting, and where its value came from", define_nothing,
     [](const Options&) { return config(); }},
    {"doctor", "What hearth would use on this machine, and why", define_json,
     [](const Options& options) { return doctor(options.json); }},
    {"protocol", "Prints the protocol's documentation as Markdown", define_nothing,
     [](const Options&) { return protocol(); }},
};

/// Null: there is no such verb.
const Verb* find_verb(std::string_view name) {
  const auto* found = std::ranges::find(kVerbs, name, &Verb::name);
  return found == std::end(kVerbs) ? nullptr : found;
}

constexpr size_t kHelpColumns = 80;

/// What people write who know other programs.
struct OtherName {
  std::string_view word;
  std::string_view verb;
};
constexpr OtherName kOtherNames[] = {{"list", "models"},      {"ls", "models"}, {"serve", "start"},
                                     {"download", "pull"},    {"get", "pull"},  {"show", "inspect"},
                                     {"generate", "run"},     {"ask", "run"},   {"complete", "run"},
                                     {"embeddings", "embed"}, {"status", "ps"}, {"quit", "stop"}};

/// The verb that a word which is none was meant as; "": nobody knows.
std::string verb_meant(const std::string& word) {
  for (const OtherName& other : kOtherNames) {
    if (other.word == word) return "hearth " + std::string(other.verb);
  }
  std::vector<std::string> verbs = {"help"};
  for (const Verb& verb : kVerbs) verbs.emplace_back(verb.name);
  const std::string nearest = ipc::nearest_word(word, verbs);
  return nearest.empty() ? "" : "hearth " + nearest;
}

/// A sentence about the first of `words` that is an option of no kind; "": all are known.
std::string flag_meant(const CLI::App& verb, const std::vector<std::string>& words) {
  std::vector<std::string> known;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  for (const std::string& word : words) {
    if (word == "--") break;
    const std::string name = word.substr(0, word.find('='));
    if (!name.starts_with("--") || std::ranges::find(known, name) != known.end()) continue;
    return fmt::format("{}: no option {}{}", verb.get_name(), ipc::to_valid_utf8(name),
                       ipc::did_you_mean(ipc::nearest_word(name, known)));
  }
  return "";
}

}  // namespace

Parsed parse(int argc, char** argv) {
  Parsed parsed;
  Options& options = parsed.options;
  CLI::App app("hearth: asks the local daemon's language models", "hearth");
  app.set_version_flag("-v,--version", "hearth " + std::string(ipc::version()));
  app.require_subcommand(1);
  app.footer(kFooter);
  app.get_formatter()->column_width(34);

  for (const Verb& verb : kVerbs) {
    CLI::App* const defined = app.add_subcommand(verb.name, verb.meaning);
    if (verb.define != nullptr) verb.define(*defined, options);
  }

  const auto finish = [&parsed](int status) -> Parsed& {
    parsed.finished = true;
    parsed.status = status;
    return parsed;
  };
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty()) {
    write_stderr(ipc::wrap_lines(app.help(), kHelpColumns));
    return finish(kUsage);
  }
  // hearth help VERB is hearth VERB --help.
  if (words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  const std::string& first = words.front();
  const Verb* const verb = find_verb(first);
  if (verb == nullptr && !first.starts_with('-')) {
    complain(fmt::format("no verb {}{}", ipc::to_valid_utf8(first),
                         ipc::did_you_mean(verb_meant(first))));
    return finish(kUsage);
  }
  if (verb != nullptr) {
    options.verb = verb->name;
    parsed.run = verb->run;
    if (verb->define == nullptr) {
      options.passed_on = std::move(words);
      return parsed;
    }
  }
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    write_stdout(ipc::wrap_lines(app.help(), kHelpColumns));
    return finish(kOk);
  } catch (const CLI::ParseError& problem) {
    const std::string meant =
        flag_meant(verb == nullptr ? app : *app.get_subcommand(verb->name), words);
    if (meant.empty()) return finish(app.exit(problem) == 0 ? kOk : kUsage);
    complain(meant);
    return finish(kUsage);
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
