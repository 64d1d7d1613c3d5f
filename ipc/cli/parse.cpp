#include "ipc/cli/parse.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "ipc/cli/connect/program.h"
#include "ipc/cli/examples.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"
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

constexpr const char* kRunFooter = R"(
The prompt is the words after MODEL, then a file (-f) or piped input, separated
by a blank line; one newline at the end of a file or a pipe is dropped. If the
model has a chat template, the prompt is a user's message and the text is the
answer. With --raw, or without a template, the model continues the prompt.
Without a prompt, on a terminal, run becomes hearth chat, or the model starts a
text of its own. Words that begin with a dash go after "--"; < /dev/null keeps
a pipe out.

Sampling settings that are not given are the model's own: those of its file,
else of the configuration's [sampling], else temperature 0.8, top-p 0.95 and
top-k 40.

On a terminal the text streams, control characters are shown and have no
effect, and a line of timings follows: prompt tokens (and how many were
cached), time to first token (TTFT), tokens per second, finish reason. Piped,
stdout gets only the text. Ctrl-C ends the request and keeps the text so far.)";

constexpr const char* kChatFooter = R"(
Words after MODEL are the first question. If standard input is not a terminal,
the words and the input are one question: the answer goes to stdout, everything
else to stderr.

/help lists the commands of a conversation: another answer, the last question
again, the system message, the timings. Ctrl-C stops an answer and keeps its
text so far; Ctrl-D ends. Conversations are stored in $HEARTH_STATE_DIR/chats,
else $XDG_STATE_HOME/hearth/chats (~/.local/state), readable only by you.)";

constexpr const char* kTokenizeFooter = R"(
One newline at the end of a file or a pipe is dropped, as hearth run does.

A file, or a model in the model folders that you may read, is tokenized here,
without a daemon: each token is shown with the bytes of text that it covers.
For other names and roles the daemon is asked, which returns ids and vocabulary
entries.)";

std::string flag_name(const Field& field) {
  std::string name = "--" + std::string(field.name);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

/// The field's meaning, range and default.
std::string help_of(const Field& field) {
  std::string help(field.meaning);
  std::erase(help, '`');
  if (field.type == FieldType::kInteger || field.type == FieldType::kNumber) {
    help += fmt::format(" {:.15g} to {:.15g}", field.min, field.max);
    // If the default is the model's, default_value is empty and `meaning` describes the default.
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
      // A field that is on by default gets a flag that turns it off.
      const bool on = field.default_value == "true";
      const auto no_flag = [&field] { return "--no-" + flag_name(field).substr(2); };
      const std::string flag = on ? no_flag() : flag_name(field);
      verb.add_flag_callback(
              flag, [&fields, name, on] { fields.emplace_back(name, on ? "false" : "true"); },
              on ? "Turns this off: " + help_of(field) : help_of(field))
          ->group(group);
      if (!field.default_value.empty()) return;
      // Absence has a meaning of its own, so both values have a flag.
      verb.add_flag_callback(
              no_flag(), [&fields, name] { fields.emplace_back(name, "false"); },
              fmt::format("Sets {} to false.", name))
          ->group(group);
      return;
    }
    case FieldType::kTextList:
    case FieldType::kIdList:
    case FieldType::kLogitBias: {
      std::string help = help_of(field) + " Can be repeated.";
      if (field.type == FieldType::kLogitBias) help += " Format: ID=NUMBER.";
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

/// CLI11's check without its own text in the help, where it would widen the column of names: the
/// meaning gives the range.
template <class Number>
CLI::Validator in_range(Number least, Number largest) {
  return CLI::Range(least, largest).description("");
}

/// Flags of every verb that starts a daemon if none answers.
void add_start_flags(CLI::App& verb, bool& no_start, bool& allow_root) {
  verb.add_flag("--no-start", no_start, "do not start a daemon if none answers");
  verb.add_flag("--allow-root", allow_root, "start a daemon even as root");
}

void define_run(CLI::App& verb, Options& all) {
  RunOptions& options = all.run;
  verb.add_option("MODEL", options.model,
                  "a model's name (hearth models), a role, a .gguf file, or a folder of "
                  "published weights, which is converted first")
      ->required();
  verb.add_option("PROMPT", options.prompt_words, "the question, or the text to continue");
  verb.add_option("-f,--file", options.file, "read the prompt from this file; - is stdin")
      ->type_name("FILE");
  verb.add_flag("--json", options.json, "one JSON line per event on stdout");
  verb.add_flag("--ids", options.ids, "token ids instead of text");
  verb.add_flag("--stats", options.stats, "print the line of timings on stderr, even when piped");
  verb.add_flag("--raw", options.raw, "continue the prompt, without the chat template");
  verb.add_flag_callback(
      "--no-bos", [&options] { options.fields.emplace_back("raw", "true"); },
      "add no BOS token before the prompt");
  add_start_flags(verb, options.no_start, options.allow_root);
  for (const Field& field : ipc::fields(ipc::Verb::kGenerate)) {
    // Conversations have no flags.
    const bool chat = field.name == "messages" || field.name == "tools" ||
                      field.name == "tool_choice" || field.name == "parallel_tool_calls" ||
                      field.name == "tool_form" || field.name == "template_kwargs";
    const bool elsewhere = field.name == "model" || field.name == "prompt" ||
                           field.name == "prompt_as" || field.name == "raw" || chat;
    if (!elsewhere) add_field(verb, field, options.fields);
  }
  verb.footer(kRunFooter);
}

void define_chat(CLI::App& verb, Options& all) {
  ChatOptions& options = all.chat;
  verb.add_option("MODEL", options.model,
                  "a model's name, a role, a file or a folder of published weights; default: the "
                  "role default");
  verb.add_option("QUESTION", options.words, "the first question");
  verb.add_option_function<std::string>(
          "--resume",
          [&options](const std::string& name) {
            options.resume = true;
            options.name = name;
          },
          "continue a conversation; without NAME the last one")
      ->expected(0, 1)
      ->type_name("[NAME]");
  verb.add_flag("--list", options.list, "list the stored conversations");
  verb.add_option("--name", options.name, "name of the new conversation; default: date and time")
      ->type_name("NAME");
  verb.add_option("--system", options.system, "system message, before the conversation")
      ->type_name("TEXT");
  verb.add_flag("--hide-reasoning", options.hide_reasoning, "do not show the model's reasoning");
  add_start_flags(verb, options.no_start, options.allow_root);
  for (const char* name : {"max_tokens", "temperature", "top_k", "top_p", "min_p",
                           "repetition_penalty", "seed", "ignore_eos", "draft", "cache"}) {
    Field field = *ipc::find_field(ipc::Verb::kGenerate, name);
    if (field.name == "max_tokens") {  // by default an answer ends where the model ends it
      field.meaning = "At most this many tokens per answer; 0: as many as fit in the context.";
      field.default_value = "0";
    }
    add_field(verb, field, options.fields);
  }
  verb.footer(kChatFooter);
}

void define_tokenize(CLI::App& verb, Options& all) {
  TokenizeOptions& options = all.tokenize;
  verb.add_option("MODEL", options.model_word, "a .gguf file, a model's name or a role");
  verb.add_option("TEXT", options.text_words, "the text; without it a file (-f) or piped stdin");
  verb.add_option("--model", options.model, "the model; every word is then text")
      ->type_name("MODEL");
  verb.add_option("-f,--file", options.file, "read the text from this file; - is stdin")
      ->type_name("FILE");
  verb.add_flag("--raw", options.raw, "add no BOS token");
  verb.add_flag("--special,--parse-special", options.parse_special,
                "parse control tokens in the text");
  verb.add_flag("--ids", options.ids, "only the ids, in one line");
  verb.add_flag("--json", options.json, "as JSON");
  add_start_flags(verb, options.no_start, options.allow_root);
  verb.footer(kTokenizeFooter);
}

/// Output flags of attach and fork.
void add_stream_flags(CLI::App& verb, AttachOptions& options) {
  verb.add_flag("--json", options.json, "one JSON line per event on stdout");
  verb.add_flag("--ids", options.ids, "token ids instead of text");
  verb.add_flag("--stats", options.stats, "print the line of timings on stderr, even when piped");
}

void define_attach(CLI::App& verb, Options& all) {
  AttachOptions& options = all.attach;
  verb.add_option("ID", options.id, "as printed by hearth run --detach or hearth ps")->required();
  verb.add_option("--from", options.from,
                  "start at this token of each sample, 0 to 1048576; default 0")
      ->check(in_range(0, 1 << 20))
      ->type_name("INT");
  add_stream_flags(verb, options);
  verb.footer(
      "\nPrints the text so far, then streams. Ctrl-C leaves the request running (hearth\ncancel "
      "ends it).");
}

void define_fork(CLI::App& verb, Options& all) {
  AttachOptions& options = all.attach;
  verb.add_option("ID", options.id, "one of your requests, live or recently ended")->required();
  verb.preparse_callback([&options](size_t) { options.from = -1; });
  verb.add_option("--from", options.from,
                  "after this many of its tokens, 0 to 1048576; default: all so far")
      ->check(in_range(0, 1 << 20))
      ->type_name("INT");
  verb.add_option("--sample", options.sample, "which sample of the request, 0 to 15; default 0")
      ->check(in_range(0, 15))
      ->type_name("INT");
  verb.add_option("-n,--n", options.n, "number of continuations, 1 to 16; default 1")
      ->check(in_range(1, 16))
      ->type_name("INT");
  verb.add_option("--max-tokens", options.max_tokens,
                  "per continuation, 1 to 1048576; default: as many as the request had left")
      ->check(in_range(1, 1 << 20))
      ->type_name("INT");
  verb.add_option("--seed", options.seed, "default: chosen by the daemon")->type_name("INT");
  add_stream_flags(verb, options);
}

void define_embed(CLI::App& verb, Options& all) {
  EmbedOptions& options = all.embed;
  verb.add_option("MODEL", options.model, "a model's name or a role")->required();
  verb.add_option("TEXT", options.text_words, "the text; without it a file (-f) or piped stdin");
  verb.add_option("-f,--file", options.file, "read the text from this file; - is stdin")
      ->type_name("FILE");
  verb.add_flag("--lines", options.lines, "embed each line separately");
  verb.add_option("--query", options.query,
                  "for a model that ranks: how well each text answers this, 0 to 1")
      ->type_name("TEXT");
  verb.add_option("--pooling", options.pooling,
                  "how token vectors become one; default: the model file's")
      ->check(CLI::IsMember({"auto", "mean", "cls", "last"}))
      ->type_name("HOW");
  verb.add_flag("--no-normalize", options.raw,
                "do not scale vectors to length 1, nor scores to 0 to 1");
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

void define_models(CLI::App& verb, Options& options) {
  define_json(verb, options);
  CLI::App* const rm = verb.add_subcommand(
      "rm", "Remove a model's files, all parts; unloads it first, unless requests use it");
  rm->add_option("MODEL", options.remove.model, "a model's name")->required();
  rm->add_flag("-y,--yes", options.remove.yes, "remove without asking");
  rm->add_option("--dir", options.remove.dir,
                 "the model directory; default: those of pull, in their order")
      ->type_name("DIRECTORY");
}

void define_stats(CLI::App& verb, Options& options) {
  define_json(verb, options);
  verb.add_option("--record", options.record,
                  "record events in this file, to be replayed by hearth-monitor")
      ->type_name("FILE");
  verb.add_option("--for", options.record_s, "seconds to record, 0 to 86400; 0: until Ctrl-C")
      ->check(in_range(0.0, 86'400.0))
      ->type_name("SECONDS");
}

void define_record(CLI::App& verb, Options& all) {
  RecordOptions& options = all.record_requests;
  verb.add_option("FILE", options.file, "the new file, readable only by you")->required();
  verb.add_flag("--text", options.text, "record requests whole; default: counts and settings");
  verb.add_option("--for", options.time, "record for 90s, 30m, 2h; default: until Ctrl-C");
  verb.add_option("--max-mb", options.max_mb, "bound on the file in MiB, default 1024")
      ->check(in_range(uint64_t{1}, uint64_t{1} << 20));
}

void define_replay(CLI::App& verb, Options& all) {
  ReplayOptions& options = all.replay;
  verb.add_option("FILE", options.file, "a recording of hearth record")->required();
  verb.add_option("--speed", options.speed, "arrivals so many times as fast, 0.01 to 1000")
      ->check(in_range(0.01, 1000.0));
  verb.add_option("--against", options.against, "a model, or FILE.toml for a new daemon");
  verb.add_option("--concurrency", options.concurrency, "live requests, 1 to 1024; default 64")
      ->check(in_range(1, 1024));
  verb.add_flag("--warm", options.warm, "use what is cached; default: a cache of its own");
  define_json(verb, all);
}

void define_top(CLI::App& verb, Options& options) {
  verb.add_flag("--once", options.once, "print once and exit");
}

void define_cancel(CLI::App& verb, Options& options) {
  verb.add_option("ID", options.request_id, "as printed by hearth ps")->required();
  verb.add_flag("--reasoning", options.only_reasoning,
                "end only its reasoning; the answer goes on");
}

void define_load(CLI::App& verb, Options& options) {
  define_json(verb, options);
  verb.add_option("MODEL", options.model,
                  "a model's name, a role, a .gguf file or a folder of published weights")
      ->required();
  verb.add_option("--keep-alive", options.keep_alive,
                  "unload after this idle time: 90s, 30m, 8h, never")
      ->type_name("TIME");
  verb.add_option("--draft", options.draft, "a small draft model, or none; default: as configured")
      ->type_name("NAME");
  add_start_flags(verb, options.no_start, options.allow_root);
}

void define_unload(CLI::App& verb, Options& options) {
  define_json(verb, options);
  verb.add_option("MODEL", options.model, "a model's name or a role")->required();
  verb.add_option("--adapter", options.adapter, "only this adapter, if unused")->type_name("NAME");
  verb.add_flag("--keep", options.keep, "its worker stays, asleep")->excludes("--adapter");
}

void define_swap(CLI::App& verb, Options& options) {
  define_json(verb, options);
  verb.add_option("ROLE", options.role, "default, or a role from the configuration")->required();
  verb.add_option("MODEL", options.model, "its name, a .gguf file or a folder of published weights")
      ->required();
  add_start_flags(verb, options.no_start, options.allow_root);
}

void define_ping(CLI::App& verb, Options& options) {
  define_json(verb, options);
  verb.add_option("--wait-ms", options.wait_ms, "keep trying for this many ms, 0 to 600000")
      ->check(in_range(0, 600'000));
}

void define_start(CLI::App& verb, Options& options) {
  verb.add_flag("--allow-root", options.allow_root, "start a daemon even as root");
}

void define_keygen(CLI::App& verb, Options& options) {
  verb.add_option("FILE", options.key_file, "where to write the secret key (mode 0600)")
      ->required();
}

void define_nothing(CLI::App&, Options&) {}

int run_worker(const Options& options) { return exec_worker(options.passed_on); }

/// One verb. Help, completions, the manual page and main() use this table.
struct Verb {
  const char* name;
  const char* meaning;
  /// Defines its options. Null: another program (the worker, hearth-pull) parses them.
  void (*define)(CLI::App&, Options&);
  int (*run)(const Options&);
};
// In the order of the help.
constexpr Verb kVerbs[] = {
    {"run", "Answer a prompt, or continue it", define_run,
     [](const Options& options) { return run(options.run); }},
    {"chat", "Converse with a model on the terminal", define_chat,
     [](const Options& options) { return chat(options.chat); }},
    {"models", "List the models and the folders searched; models rm removes one", define_models,
     [](const Options& options) {
       return options.remove.model.empty() ? models(options.json) : remove_model(options.remove);
     }},
    {"ps", "List live requests and the models in memory", define_json,
     [](const Options& options) { return ps(options.json); }},
    {"stats", "Show the daemon's counters and each worker's state", define_stats,
     [](const Options& options) {
       return options.record.empty() ? stats(options.json)
                                     : record(options.record, options.record_s);
     }},
    {"record", "Record your requests and their timings in a file", define_record,
     [](const Options& options) { return record_requests(options.record_requests); }},
    {"replay", "Send recorded requests again, and compare", define_replay,
     [](const Options& options) { return replay(options.replay, options.json); }},
    {"top", "Show activity, every second", define_top,
     [](const Options& options) { return top(options.once); }},
    {"cancel", "End one of your requests", define_cancel,
     [](const Options& options) { return cancel(options.request_id, options.only_reasoning); }},
    {"attach", "Show one of your requests, live or recently ended", define_attach,
     [](const Options& options) { return attach(options.attach); }},
    {"fork", "Continue a request's text so far in another way", define_fork,
     [](const Options& options) { return fork_request(options.attach); }},
    {"embed", "Compute embedding vectors of texts", define_embed,
     [](const Options& options) { return embed(options.embed); }},
    {"load", "Load a model into memory", define_load,
     [](const Options& options) { return load(options); }},
    {"unload", "Remove a model from memory once its requests have ended", define_unload,
     [](const Options& options) { return unload(options); }},
    {"swap", "Load a model and point a role at it", define_swap,
     [](const Options& options) { return swap(options); }},
    {"ping", "Check that a daemon answers", define_ping,
     [](const Options& options) { return ping(options.json, options.wait_ms); }},
    {"tokenize", "Show the tokens of a text", define_tokenize,
     [](const Options& options) { return tokenize(options.tokenize); }},
    {"start", "Start a daemon of your own if none answers", define_start,
     [](const Options& options) { return start(options.allow_root); }},
    {"stop", "Stop your own daemon once its requests have ended", define_nothing,
     [](const Options&) { return stop(); }},
    {"cache", "Manage prefixes on disk: ls, stats, rm, pin, unpin, verify, compact, warm, why",
     nullptr, [](const Options& options) { return cache(options.passed_on); }},
    {"bench", "Measure a model's speed here, and its share of the ceiling", nullptr, run_worker},
    {"imatrix", "Measure what quantizing should weigh: a model's inputs over a text", nullptr,
     run_worker},
    {"inspect", "Show what a model file contains, and whether it runs here", nullptr, run_worker},
    {"perplexity", "Measure how well a model predicts a text, and its distance from another",
     nullptr, run_worker},
    {"convert", "Convert published weights (safetensors) to a model file", nullptr, run_worker},
    {"quantize", "Convert a model file to another weight type", nullptr, run_worker},
    {"pull", "Download a model file: https://..., hf:OWNER/REPO/FILE", nullptr,
     [](const Options& options) { return exec_pull(options.passed_on); }},
    {"render", "Show the prompt that a model's chat template makes of messages, and its tokens",
     nullptr, run_worker},
    {"plan", "Estimate memory and speed of a model before it is loaded", nullptr, run_worker},
    {"keygen", "Create a pair of keys for connections over TCP", define_keygen,
     [](const Options& options) { return keygen(options.key_file); }},
    {"config", "Show every setting and the source of its value", define_nothing,
     [](const Options&) { return config(); }},
    {"doctor", "Show what hearth uses on this machine, and why", define_json,
     [](const Options& options) { return doctor(options.json); }},
    {"protocol", "Print the protocol's documentation as Markdown", define_nothing,
     [](const Options&) { return protocol(); }},
};

/// Null: unknown verb.
const Verb* find_verb(std::string_view name) {
  const auto* found = std::ranges::find(kVerbs, name, &Verb::name);
  return found == std::end(kVerbs) ? nullptr : found;
}

constexpr size_t kHelpColumns = 80;

/// Names of verbs in other programs.
struct OtherName {
  std::string_view word;
  std::string_view verb;
};
constexpr OtherName kOtherNames[] = {{"list", "models"},      {"ls", "models"}, {"serve", "start"},
                                     {"download", "pull"},    {"get", "pull"},  {"show", "inspect"},
                                     {"generate", "run"},     {"ask", "run"},   {"complete", "run"},
                                     {"embeddings", "embed"}, {"status", "ps"}, {"quit", "stop"}};

/// The verb that an unknown word probably means; "" if there is none.
std::string verb_meant(const std::string& word) {
  for (const OtherName& other : kOtherNames) {
    if (other.word == word) return "hearth " + std::string(other.verb);
  }
  std::vector<std::string> verbs = {"help"};
  for (const Verb& verb : kVerbs) verbs.emplace_back(verb.name);
  const std::string nearest = ipc::nearest_word(word, verbs);
  return nearest.empty() ? "" : "hearth " + nearest;
}

/// A sentence about the first unknown option among `words`; "" if all are known.
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
  CLI::App app("hearth: run language models on this machine", "hearth");
  app.set_version_flag("-v,--version", "hearth " + std::string(ipc::version()));
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);

  for (const Verb& verb : kVerbs) {
    CLI::App* const defined = app.add_subcommand(verb.name, verb.meaning);
    if (verb.define != nullptr) verb.define(*defined, options);
  }
  app.footer(kFooter);  // after the verbs, which would inherit it

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
