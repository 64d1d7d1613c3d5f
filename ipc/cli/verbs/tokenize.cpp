// hearth tokenize: the tokens of a text.

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/connect/program.h"
#include "ipc/cli/terminal/input.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"
#include "ipc/files/model_file.h"

namespace hearth::cli {
namespace {

/// Makes `text` the standard input of this process and of the program that replaces it.
Result<void> put_on_stdin(std::string_view text) {
  const int fd = ::memfd_create("hearth-text", 0);
  bool written = fd >= 0;
  for (size_t done = 0; written && done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n > 0) done += n;
    written = n > 0 || (n < 0 && errno == EINTR);
  }
  written = written && ::lseek(fd, 0, SEEK_SET) == 0 && ::dup2(fd, STDIN_FILENO) >= 0;
  const int number = errno;
  if (fd > STDIN_FILENO) ::close(fd);
  if (written) return {};
  return Error::io(fmt::format("text: {}", std::strerror(number)));
}

/// Executes the worker program, which loads only the vocabulary and knows each token's bytes.
int tokenize_here(const std::string& file, const TokenizeOptions& options,
                  const std::string& text) {
  if (const Result<void> put = put_on_stdin(text); !put.ok()) return fail(put.error());
  std::vector<std::string> words = {"tokenize"};
  if (options.raw) words.emplace_back("--raw");
  if (options.parse_special) words.emplace_back("--special");
  if (options.ids) words.emplace_back("--ids");
  if (options.json) words.emplace_back("--json");
  words.emplace_back("--");
  words.push_back(file);
  return exec_worker(words);
}

int ask_daemon(const TokenizeOptions& options, std::string text) {
  std::optional<ipc::Client> client = connect_or_start(options.no_start, options.allow_root);
  if (!client) return kNoDaemon;
  const ipc::TokenizeRequest request{options.model, std::move(text), options.raw,
                                     options.parse_special};
  return show(client->tokenize(request), options.json, [&](const ipc::TokenizeReply& reply) {
    if (options.ids) {
      write_stdout(fmt::format("{}\n", fmt::join(reply.ids, " ")));
      return;
    }
    std::string out;
    for (size_t i = 0; i < reply.ids.size(); ++i) {
      out += fmt::format("{:>8}", reply.ids[i]);
      if (i < reply.entries.size()) out += "  " + ipc::one_line(reply.entries[i], 0);
      out += "\n";
    }
    write_stdout(out);
  });
}

}  // namespace

int tokenize(const TokenizeOptions& options) {
  std::optional<std::string> text = text_of_verb(options.text_words, options.file);
  if (!text) return kUsage;
  const Result<std::filesystem::path> file = ipc::find_model_file(options.model);
  if (file.ok()) return tokenize_here(file->string(), options, *text);
  const bool written_as_path =
      options.model.find('/') != std::string::npos || options.model.ends_with(".gguf");
  if (written_as_path) return fail(file.error());
  return ask_daemon(options, std::move(*text));
}

}  // namespace hearth::cli
