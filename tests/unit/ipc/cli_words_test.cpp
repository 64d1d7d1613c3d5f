// What people type: misspelt words, texts from several sources, tables and help that fit.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ipc/cli/answer/model_argument.h"
#include "ipc/cli/answer/stream_printer.h"
#include "ipc/cli/parse.h"
#include "ipc/cli/terminal/input.h"
#include "ipc/cli/terminal/table.h"
#include "ipc/cli/verbs/verbs.h"
#include "ipc/text/did_you_mean.h"
#include "ipc/text/wrap_lines.h"
#include "tests/temp_dir.h"

namespace hearth::cli {
namespace {

size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  size_t most = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto chars = std::ranges::count_if(
        line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
    most = std::max(most, static_cast<size_t>(chars));
  }
  return most;
}

/// Replaces stdin by a file, or the end of a pipe, while it lives.
class Stdin {
 public:
  explicit Stdin(int fd) : before_(::dup(STDIN_FILENO)) {
    ::dup2(fd, STDIN_FILENO);
    ::close(fd);
    std::clearerr(stdin);
  }
  ~Stdin() {
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
    std::clearerr(stdin);
  }
  static int pipe_of(const std::string& text) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    REQUIRE(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    ::close(ends[1]);
    return ends[0];
  }

 private:
  const int before_;
};

TEST_CASE("a word that is nearly a known one gets it suggested") {
  const std::vector<std::string> verbs = {"run", "models", "bench", "chat", "cache"};
  CHECK(ipc::nearest_word("runn", verbs) == "run");
  CHECK(ipc::nearest_word("modles", verbs) == "models");
  CHECK(ipc::nearest_word("mod", verbs) == "models");
  CHECK(ipc::nearest_word("caht", verbs) == "chat");
  CHECK(ipc::nearest_word("zebra", verbs) == "");
  CHECK(ipc::nearest_word("", verbs) == "");
  const std::vector<std::string> flags = {"--temperature", "--max-tokens", "--min-tokens", "--n"};
  CHECK(ipc::nearest_word("--max-token", flags) == "--max-tokens");
  CHECK(ipc::nearest_word("--temp", flags) == "--temperature");
  CHECK(ipc::nearest_word("--max_tokens", flags) == "--max-tokens");
  CHECK(ipc::nearest_word("--bogus", flags) == "");
  CHECK(ipc::did_you_mean("") == "");
  CHECK(ipc::did_you_mean("run") == "; did you mean run?");
}

TEST_CASE("cells are cut in the middle, tables to the width, and lines have no trailing blanks") {
  CHECK(cut_middle("abcdefghij", 7) == "abc…hij");
  CHECK(cut_middle("abcdefghij", 10) == "abcdefghij");
  CHECK(cut_middle("äöüßäöüß", 3) == "ä…ß");
  const std::vector<Column> columns = {{"NAME", false, 8}, {"SIZE", true}, {"NOTE", false, 4}};
  const std::vector<std::vector<std::string>> rows = {
      {"a-model-with-a-very-long-name-indeed.Q4_K_M", "1.0 GiB", "llama Q4_K_M, context 8192"},
      {"b", "20 B", ""}};
  const std::string wide = table(columns, rows, 0);
  CHECK(wide.find("a-model-with-a-very-long-name-indeed.Q4_K_M  1.0 GiB  llama") != wide.npos);
  const std::string narrow = table(columns, rows, 40);
  CHECK(longest_line(narrow) == 40);
  CHECK(narrow.find("1.0 GiB") != narrow.npos);
  CHECK(narrow.find(" \n") == narrow.npos);
  // No cell is below its least width.
  CHECK(longest_line(table(columns, rows, 5)) == 8 + 2 + 7 + 2 + 4);
}

TEST_CASE("ps, top and models fit a terminal of 80 columns, with any names") {
  const std::string name = "Meta-Llama-3.1-70B-Instruct-with-a-long-name-Q4_K_M";
  ipc::PsReply ps;
  ipc::ModelEntry model;
  model.name = name;
  model.state = "resident";
  model.device = "cpu avx512-vnni";
  model.weight_bytes = model.kv_bytes = uint64_t{400} << 30;
  model.kv_bytes_used = model.kv_backed_bytes = model.kv_bound_bytes = model.kv_bytes;
  model.worker_pid = 4'194'304;
  model.roles = {"default", "a-role-of-some-length"};
  model.architecture = "llama";
  model.file_type = "Q4_K_M";
  ps.models.push_back(model);
  ipc::PsEntry entry;
  entry.id = "a-request-id-that-a-client-chose-to-be-rather-long";
  entry.owner = "uid:1000";
  entry.model = name;
  entry.state = "recovering";
  entry.priority = "interactive";
  entry.prompt_tokens = entry.output_tokens = 131'072;
  entry.age_ms = 7'500'000;
  ps.requests.push_back(entry);
  CHECK(longest_line(ps_text(ps, 80)) <= 80);
  ps.requests[0].remote = "a-host-of-some-length.example.com:8443";
  CHECK(longest_line(ps_text(ps, 80)) <= 80);
  CHECK(ps_text(ps, 0).find(name) != std::string::npos);
  ipc::StatsReply stats;
  ipc::WorkerStats& worker = stats.workers.emplace_back();
  worker.model = name;
  worker.device = "cpu avx512-vnni";
  worker.state = "ready";
  worker.snapshot.speculation = {.drafted_tokens = 1,
                                 .accepted_tokens = 1,
                                 .drafted_at = std::vector<uint64_t>(16, 1),
                                 .accepted_at = std::vector<uint64_t>(16, 1),
                                 .by = {{"lookup", 1, 1}}};
  ipc::RemoteStats& remote = stats.remotes.emplace_back();
  remote.role = remote.remote = name;
  remote.requests_done = 1000;
  CHECK(longest_line(top_text(stats, ps, 100, 80)) <= 80);
  for (int i = 0; i < 100; ++i) ps.requests.push_back(entry);
  CHECK(std::ranges::count(top_text(stats, ps, 24, 80), '\n') == 23);
  ps.requests.resize(1);
  ipc::ModelsReply models;
  models.models.push_back(model);
  const std::string text = models_text(models, 80);
  CHECK(longest_line(text.substr(0, text.find("searched:"))) <= 80);
}

TEST_CASE("ps shows the KV in use, backed and bound; models what is backed of the reserved") {
  ipc::ModelsReply reply;
  ipc::ModelEntry& model = reply.models.emplace_back();
  model.name = "m";
  model.kv_bytes = 755u << 20;
  model.kv_bytes_used = 12u << 20;
  model.kv_backed_bytes = 16u << 20;
  model.kv_bound_bytes = 300u << 20;
  CHECK(models_text(reply).find("16.0 MiB of 755.0 MiB") != std::string::npos);
  ipc::PsReply ps;
  ps.models = reply.models;
  const std::string text = ps_text(ps);
  CHECK(text.find("12.0 MiB  16.0 MiB  300.0 MiB") != std::string::npos);
}

TEST_CASE("help fits 80 columns, and descriptions continue aligned") {
  CHECK(ipc::wrap_lines("  --flag  one two three four five\n", 24) ==
        "  --flag  one two three\n          four five\n");
  CHECK(ipc::wrap_lines("one two three four\n\nfive", 10) == "one two\nthree four\n\nfive");
  CHECK(ipc::wrap_lines("  a-word-that-is-too-long-for-it\n", 10) ==
        "  a-word-that-is-too-long-for-it\n");
}

TEST_CASE("words, a file and a pipe follow each other in a prompt; one final newline is dropped") {
  const tests::TempDir temp;
  const std::string file = temp.path() / "text";
  std::ofstream(file) << "two\nlines\n\n";
  const auto nothing = [] { return ::open("/dev/null", O_RDONLY); };
  {
    const Stdin in(nothing());
    CHECK(*read_prompt({"a", "b"}, "") == "a b");
    CHECK(*read_prompt({"a", "b"}, file) == "a b\n\ntwo\nlines\n");
    CHECK(*read_prompt({}, file) == "two\nlines\n");
    CHECK(*read_text({}, file) == "two\nlines\n");
    CHECK(*read_prompt({}, "") == "");
  }
  {
    const Stdin in(Stdin::pipe_of("piped\n"));
    CHECK(*read_prompt({"explain"}, "") == "explain\n\npiped");
  }
  {
    const Stdin in(Stdin::pipe_of("piped\n\n"));
    CHECK(*read_text({}, "") == "piped\n");
  }
  {
    const Stdin in(Stdin::pipe_of("piped\n"));
    CHECK(*read_text({}, "-") == "piped");
  }
  {
    const Stdin in(Stdin::pipe_of("ab\xFF"));
    CHECK(read_prompt({"x"}, "").error().message == "byte 6 is not UTF-8");
  }
}

TEST_CASE("a path written as one becomes absolute") {
  const tests::TempDir temp;
  std::ofstream(temp.path() / "m.GGUF") << "x";
  const std::string file = temp.path() / "m.GGUF";
  CHECK(*model_argument(file) == file);
  CHECK(*model_argument("tales") == "tales");
  CHECK(*model_argument("tales.gguf") == "tales.gguf");  // no such file here: the daemon knows it
  CHECK(model_argument((temp.path() / "no.gguf").string()).error().code == ErrorCode::kNotFound);
}

TEST_CASE("an empty answer gives the reason") {
  ipc::DoneEvent done;
  done.finish_reasons = {"stop"};
  CHECK(why_empty(done, false) == "the answer is empty: the model ended it at once");
  CHECK(why_empty(done, true).find("without --raw") != std::string::npos);
  done.finish_reasons = {"deadline"};
  CHECK(why_empty(done, false) == "the answer is empty: deadline");
  done.finish_reasons = {"length"};
  done.usage.reasoning_tokens = 256;
  CHECK(why_empty(done, false) ==
        "the answer is empty: 256 tokens of reasoning, then length (--max-tokens allows more)");
}

}  // namespace
}  // namespace hearth::cli
