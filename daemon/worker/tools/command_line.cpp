#include "daemon/worker/tools/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/worker/tools/verbs.h"
#include "ipc/text/did_you_mean.h"
#include "ipc/text/utf8.h"
#include "ipc/text/wrap_lines.h"

namespace hearth::worker {

Option Option::required() {
  option_->required();
  return *this;
}

Option Option::type_name(const char* name) {
  option_->type_name(name);
  return *this;
}

Option Option::range(int64_t low, int64_t high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Option Option::range(double low, double high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Option Option::one_of(std::initializer_list<const char*> values) {
  option_->check(CLI::IsMember(std::vector<std::string>(values.begin(), values.end())));
  return *this;
}

template <class T>
Option Verb::option(const std::string& names, T& target, const std::string& help) {
  return Option(app_->add_option(names, target, help));
}

template Option Verb::option(const std::string&, std::string&, const std::string&);
template Option Verb::option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Verb::option(const std::string&, std::filesystem::path&, const std::string&);
template Option Verb::option(const std::string&, bool&, const std::string&);
template Option Verb::option(const std::string&, int32_t&, const std::string&);
template Option Verb::option(const std::string&, int64_t&, const std::string&);
template Option Verb::option(const std::string&, uint64_t&, const std::string&);
template Option Verb::option(const std::string&, float&, const std::string&);
template Option Verb::option(const std::string&, double&, const std::string&);

Option Verb::flag(const std::string& names, bool& target, const std::string& help) {
  return Option(app_->add_flag(names, target, help));
}

Verb Verb::verb(const std::string& name, const std::string& help) {
  return Verb(app_->add_subcommand(name, help), chosen_);
}

void Verb::require_verb() { app_->require_subcommand(1); }

void Verb::run(std::function<int()> body) {
  app_->callback([chosen = chosen_, body = std::move(body)] { *chosen = body; });
}

CommandLine::CommandLine(const std::string& about, const std::string& version)
    : app_(std::make_unique<CLI::App>(about)) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
}

CommandLine::~CommandLine() = default;

Verb CommandLine::program() { return Verb(app_.get(), &chosen_); }

namespace {

constexpr size_t kHelpColumns = 80;

/// A sentence about the first argument that is written as an option but unknown; "": none.
std::string unknown_option(const CLI::App& program, int argc, char** argv) {
  std::vector<std::string> known;
  std::string verb;
  const auto add = [&known](const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
  };
  const CLI::App* at = &program;
  add(program);
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("--")) {
      const std::string name = word.substr(0, word.find('='));
      if (std::ranges::find(known, name) != known.end()) continue;
      return fmt::format("{}no option {}{}", verb, ipc::to_valid_utf8(name),
                         ipc::did_you_mean(ipc::nearest_word(name, known)));
    }
    for (const CLI::App* below : at->get_subcommands([](const CLI::App*) { return true; })) {
      if (below->get_name() != word) continue;
      at = below;
      verb = word + ": ";
      add(*below);
      break;
    }
  }
  return "";
}

}  // namespace

int CommandLine::parse_and_run(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return write_stdout(ipc::wrap_lines(app_->help(), kHelpColumns)) ? 0 : kFailed;
  } catch (const CLI::ParseError& problem) {
    const std::string unknown = unknown_option(*app_, argc, argv);
    if (!unknown.empty()) {
      std::fprintf(stderr, "hearth: %s\n", unknown.c_str());
      return kUsage;
    }
    return app_->exit(problem) == 0 ? 0 : kUsage;
  }
  return chosen_ ? chosen_() : 0;
}

}  // namespace hearth::worker
