// hearth embed: texts in, vectors out.

#include <fmt/format.h>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/input.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"
#include "ipc/text/base64.h"

namespace hearth::cli {
namespace {

/// One vector a line: numbers that read back as the floats they are.
std::string lines_of(const ipc::EmbedReply& reply) {
  std::string out;
  for (const std::string& vector : reply.vectors) {
    const auto values = ipc::floats_of_base64(vector);
    if (values) out += fmt::format("{}", fmt::join(*values, " "));
    out += "\n";
  }
  return out;
}

std::string json_of(const ipc::EmbedReply& reply) {
  std::string vectors;
  for (const std::string& vector : reply.vectors) {
    const auto values = ipc::floats_of_base64(vector);
    vectors += fmt::format("{}[{}]", vectors.empty() ? "" : ",",
                           values ? fmt::format("{}", fmt::join(*values, ",")) : "");
  }
  return fmt::format(R"({{"model":{},"dimensions":{},"prompt_tokens":[{}],"vectors":[{}]}})",
                     ipc::json_quote(reply.model), reply.dimensions,
                     fmt::join(reply.prompt_tokens, ","), vectors) +
         "\n";
}

}  // namespace

int embed(const EmbedOptions& options) {
  std::optional<std::string> text = text_of_verb(options.text_words, options.file);
  if (!text) return kUsage;
  ipc::EmbedRequest request;
  request.model = options.model;
  request.pooling = options.pooling;
  request.query = options.query;
  request.normalize = !options.raw;
  if (options.lines) {
    for (size_t at = 0; at < text->size();) {
      const size_t end = std::min(text->find('\n', at), text->size());
      request.texts.push_back(text->substr(at, end - at));
      at = end + 1;
    }
  } else {
    request.texts.push_back(std::move(*text));
  }
  std::optional<ipc::Client> client = connect_or_start(options.no_start, options.allow_root);
  if (!client) return kNoDaemon;
  const Result<ipc::EmbedReply> reply = client->embed(request);
  if (!reply.ok()) return fail(reply.error());
  return write_stdout(options.json ? json_of(*reply) : lines_of(*reply)) ? kOk : kFailed;
}

}  // namespace hearth::cli
