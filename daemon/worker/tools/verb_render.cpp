// hearth render MODEL -f FILE: shows the exact prompt that the model's chat template renders for a
// conversation, and its tokens.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "daemon/worker/text/chat_prompt.h"
#include "daemon/worker/tools/command_line.h"
#include "daemon/worker/tools/verbs.h"
#include "ipc/files/model_file.h"
#include "ipc/schema/protocol.h"
#include "ipc/text/shown_text.h"
#include "ipc/text/utf8.h"
#include "ipc/wire/json.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {
namespace {

using ipc::Json;

struct RenderVerb {
  std::string model;
  std::string file = "-";
  std::string template_name;
  bool prompt = false;
  bool ids = false;
  bool json = false;
};

Result<std::string> read_conversation(const std::string& name) {
  std::FILE* const in = name == "-" ? stdin : std::fopen(name.c_str(), "rb");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> closer(in == stdin ? nullptr : in,
                                                               std::fclose);
  std::string text;
  char chunk[65536];
  while (in != nullptr && text.size() <= ipc::kMaxRequestBytes) {
    const size_t n = std::fread(chunk, 1, sizeof chunk, in);
    if (n == 0) break;
    text.append(chunk, n);
  }
  if (text.size() > ipc::kMaxRequestBytes) {
    return Error::too_large(fmt::format("{}: more than {} bytes", name, ipc::kMaxRequestBytes),
                            "messages");
  }
  if (in == nullptr || std::ferror(in) != 0) {
    return Error::io(fmt::format("{}: {}", name, std::strerror(errno)), "messages");
  }
  return text;
}

std::string as_json(const std::string& name, const models::Tokenizer& tokenizer,
                    const ChatPrompt& prompt) {
  Json out = Json::object(), entries = Json::array();
  for (const int32_t id : prompt.ids) entries.push_back(std::string(tokenizer.entry(id)));
  out["model"] = name;
  out["prompt"] = prompt.text;
  out["ids"] = prompt.ids;
  out["entries"] = std::move(entries);
  return ipc::dump_json(out) + "\n";
}

std::string as_text(const models::Tokenizer& tokenizer, const ChatPrompt& prompt) {
  std::string out = prompt.text;
  out += fmt::format("\n\n{} tokens:\n", prompt.ids.size());
  for (const int32_t id : prompt.ids) {
    out +=
        fmt::format("{:>8}  {}\n", id, ipc::one_line(ipc::to_valid_utf8(tokenizer.entry(id)), 0));
  }
  return out;
}

Result<std::string> run_render(const RenderVerb& options) {
  HEARTH_ASSIGN_OR_RETURN(const auto path, ipc::find_model_file(options.model));
  HEARTH_ASSIGN_OR_RETURN(const models::GgufFile file, models::GgufFile::open(path));
  HEARTH_ASSIGN_OR_RETURN(const auto tokenizer, models::load_tokenizer(file));
  HEARTH_ASSIGN_OR_RETURN(const std::string conversation, read_conversation(options.file));
  HEARTH_ASSIGN_OR_RETURN(
      const ChatPrompt prompt,
      chat_prompt(*tokenizer, models::ChatTemplates::load(file), options.template_name,
                  conversation, models::chat_surroundings(*tokenizer)));
  if (options.json) return as_json(file.name(), *tokenizer, prompt);
  if (options.ids) return fmt::format("{}\n", fmt::join(prompt.ids, " "));
  if (options.prompt) return prompt.text;
  return as_text(*tokenizer, prompt);
}

}  // namespace

void add_render(Verb program) {
  const auto options = std::make_shared<RenderVerb>();
  Verb verb = program.verb("render", "Show the prompt that a chat template makes");
  verb.option("MODEL", options->model, "a .gguf file, or a model's name").required();
  verb.option("-f,--file", options->file,
              "JSON: {\"messages\": [...], \"tools\": [...], "
              "\"add_generation_prompt\": true, ...}; default stdin")
      .type_name("FILE");
  verb.option("--template", options->template_name,
              "one of the model's named templates, e.g. tool_use")
      .type_name("NAME");
  verb.flag("--prompt", options->prompt, "only the prompt, exactly");
  verb.flag("--ids", options->ids, "only the token ids, in one line");
  verb.flag("--json", options->json, "one JSON object");
  verb.run([options] {
    const Result<std::string> shown = run_render(*options);
    if (!shown.ok()) return report_failure(shown.error());
    return write_stdout(*shown) ? 0 : kFailed;
  });
}

}  // namespace hearth::worker
