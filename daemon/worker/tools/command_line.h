#pragma once
// The command line of a worker program: verbs with options and flags, bound to plain structs. Only
// command_line.cpp includes the parsing library, because its header takes seconds to compile.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace hearth::worker {

/// One option or flag of a verb; refers to the CommandLine that contains it.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required();
  /// The placeholder for the value in the help text, for example "BYTES".
  Option type_name(const char* name);
  /// Values below `low` or above `high` are refused.
  Option range(int32_t low, int32_t high) { return range(int64_t{low}, int64_t{high}); }
  Option range(int64_t low, int64_t high);
  Option range(double low, double high);
  /// Any other value is refused.
  Option one_of(std::initializer_list<const char*> values);

 private:
  CLI::Option* option_;
};

/// A verb, or the program itself. Refers to the CommandLine that contains it.
class Verb {
 public:
  Verb(CLI::App* app, std::function<int()>* chosen) : app_(app), chosen_(chosen) {}

  /// `names` is one positional name ("FILE") or spellings of an option ("-f,--file"). T is a
  /// string, a vector of strings, a path, bool or a number; `target` must outlive parsing.
  template <class T>
  Option option(const std::string& names, T& target, const std::string& help = {});
  Option flag(const std::string& names, bool& target, const std::string& help);

  Verb verb(const std::string& name, const std::string& help);
  /// One of this verb's subverbs must be given.
  void require_verb();
  /// The function to run once the whole line is parsed; returns the exit status.
  void run(std::function<int()> body);

 private:
  CLI::App* app_;
  std::function<int()>* chosen_;  ///< the CommandLine's
};

class CommandLine {
 public:
  /// `about` is the first line of the help text, `version` what --version prints.
  CommandLine(const std::string& about, const std::string& version);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Verb program();
  /// Parses the arguments and runs the chosen verb. Returns its exit status, 0 after --help and
  /// --version, or kUsage after a printed error.
  int parse_and_run(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
  std::function<int()> chosen_;  ///< the body of the chosen verb
};

}  // namespace hearth::worker
