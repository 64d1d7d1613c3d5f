// hearth tokenize FILE: tokenizes standard input with a model file's vocabulary.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "daemon/worker/text/token_spans.h"
#include "daemon/worker/tools/command_line.h"
#include "daemon/worker/tools/verbs.h"
#include "ipc/files/model_file.h"
#include "ipc/schema/protocol.h"
#include "ipc/text/shown_text.h"
#include "ipc/text/utf8.h"
#include "ipc/wire/json.h"
#include "kernels/base/chars.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {
namespace {

using ipc::Json;
using Spans = std::vector<std::optional<ByteSpan>>;

struct TokenizeVerb {
  std::string file;
  bool raw = false;
  bool parse_special = false;
  bool ids = false;
  bool json = false;
};

Result<std::string> read_stdin() {
  std::string text;
  char chunk[65536];
  while (const size_t n = std::fread(chunk, 1, sizeof chunk, stdin)) {
    text.append(chunk, n);
    if (text.size() > ipc::kMaxRequestBytes) {
      return Error::too_large(fmt::format("more than {} bytes", ipc::kMaxRequestBytes), "text");
    }
  }
  if (std::ferror(stdin) != 0) return Error::io(std::strerror(errno), "text");
  return text;
}

std::string as_json(const std::string& name, const models::Tokenizer& tokenizer,
                    const std::vector<int32_t>& ids, const Spans& spans) {
  Json out = Json::object();
  Json entries = Json::array(), pieces = Json::array(), offsets = Json::array();
  for (size_t i = 0; i < ids.size(); ++i) {
    entries.push_back(std::string(tokenizer.entry(ids[i])));
    pieces.push_back(std::string(tokenizer.piece(ids[i])));
    offsets.push_back(spans[i] ? Json::array({spans[i]->begin, spans[i]->end}) : Json());
  }
  out["model"] = name;
  out["kind"] = std::string(tokenizer.kind());
  out["ids"] = ids;
  out["entries"] = std::move(entries);
  out["pieces"] = std::move(pieces);
  out["offsets"] = std::move(offsets);
  return ipc::dump_json(out) + "\n";
}

/// Quotes a piece. If it is an incomplete character, shows its bytes as "\\xE6\\x97".
std::string quoted_piece(std::string_view piece) {
  if (ipc::is_valid_utf8(piece)) return ipc::one_line(piece, 0);
  std::string out;
  for (const char c : piece) out += fmt::format("\\x{:02X}", byte_of(c));
  return out;
}

std::string as_table(const models::Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                     const Spans& spans) {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool control = tokenizer.is_control(ids[i]);
    const std::string_view shown = control ? tokenizer.entry(ids[i]) : tokenizer.piece(ids[i]);
    const std::string where =
        spans[i] ? fmt::format("{}..{}", spans[i]->begin, spans[i]->end) : std::string("-");
    out += fmt::format("{:>8}  {:>15}  {}{}{}\n", ids[i], where, control ? "" : "\"",
                       quoted_piece(shown), control ? "" : "\"");
  }
  return out;
}

Result<void> run_tokenize(const TokenizeVerb& options) {
  HEARTH_ASSIGN_OR_RETURN(const auto path, ipc::find_model_file(options.file));
  HEARTH_ASSIGN_OR_RETURN(const models::GgufFile file, models::GgufFile::open(path));
  HEARTH_ASSIGN_OR_RETURN(const auto tokenizer, models::load_tokenizer(file));
  HEARTH_ASSIGN_OR_RETURN(const std::string text, read_stdin());
  const std::vector<int32_t> ids =
      tokenizer->encode(text, {.add_bos = !options.raw, .parse_special = options.parse_special});
  if (options.ids && !options.json) {
    write_stdout(fmt::format("{}\n", fmt::join(ids, " ")));
    return {};
  }
  const Spans spans = token_spans(*tokenizer, ids, text);
  write_stdout(options.json ? as_json(file.name(), *tokenizer, ids, spans)
                            : as_table(*tokenizer, ids, spans));
  return {};
}

}  // namespace

void add_tokenize(Verb program) {
  const auto options = std::make_shared<TokenizeVerb>();
  Verb verb = program.verb("tokenize", "Show the tokens of standard input");
  verb.option("FILE", options->file, "a .gguf file, or a model's name").required();
  verb.flag("--raw", options->raw, "add no BOS token");
  verb.flag("--special", options->parse_special, "parse control tokens in the text");
  verb.flag("--ids", options->ids, "only the ids, in one line");
  verb.flag("--json", options->json, "one JSON object");
  verb.run([options] {
    const Result<void> done = run_tokenize(*options);
    return done.ok() ? 0 : report_failure(done.error());
  });
}

}  // namespace hearth::worker
