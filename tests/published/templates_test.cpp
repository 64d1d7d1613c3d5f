// Chat templates of published models, which fetch.sh --all gets: each renders every conversation of
// tests/golden/templates as jinja2 does, byte for byte, and calls in the notation that it shows are
// read back.

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>

#include "models/answer/answer_format.h"
#include "models/answer/answer_parser.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"
#include "models/template/json.h"
#include "models/template/renderer.h"
#include "tests/golden/templates/control_vocab.h"
#include "tests/skip.h"

namespace hearth::models {
namespace {

using jinja::Value;

/// The folder of templates, or an empty path.
std::filesystem::path templates_folder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  std::filesystem::path base;
  if (cache != nullptr && *cache != '\0') {
    base = cache;
  } else if (home != nullptr) {
    base = std::filesystem::path(home) / ".cache";
  }
  base /= "hearth-tests/templates";
  return std::filesystem::exists(base / "cases.json") ? base : std::filesystem::path{};
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE_MESSAGE(in.is_open(), path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

/// 2026-03-07 14:05:09, a Saturday, as in oracle.py.
ChatSurroundings surroundings() {
  ChatSurroundings out{"<s>", "</s>", {}};
  out.now.tm_year = 126;
  out.now.tm_mon = 2;
  out.now.tm_mday = 7;
  out.now.tm_hour = 14;
  out.now.tm_min = 5;
  out.now.tm_sec = 9;
  out.now.tm_wday = 6;
  out.now.tm_yday = 65;
  return out;
}

ChatTemplates templates_with(const std::string& source) {
  GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_string("tokenizer.chat_template", source);
  const std::vector<std::byte> bytes = writer.bytes();
  return ChatTemplates::load(GgufFile::parse(bytes, "test").value());
}

TEST_CASE("published chat templates render as jinja2 renders them") {
  const auto folder = templates_folder();
  if (folder.empty()) HEARTH_SKIP("needs tests/published/fetch.sh --all");
  jinja::Renderer run({}, std::tm{});
  const std::string text = read_file(folder / "cases.json");
  const Value cases = jinja::parse_json(run.arena(), text).value();
  const jinja::Dict& conversations = cases.dict().find("conversations")->dict();
  int equal = 0, refused = 0, ours_alone = 0;
  for (const Value& chat : cases.dict().find("chats")->list().items) {
    const std::string file(chat.dict().find("template")->text());
    const auto compiled = ChatTemplate::compile(read_file(folder / file));
    if (!compiled.ok()) {
      FAIL_CHECK(file << ": " << compiled.error().message);
      continue;
    }
    for (const auto& [name, conversation] : conversations.entries()) {
      const std::string what = file + ": " + std::string(name.text());
      const Value& wanted = *chat.dict().find("expected")->dict().find(name.text());
      const auto met =
          compiled->render(jinja::to_json(run, conversation, {}).value().text, surroundings());
      if (wanted.is_none()) {
        // What fails in Python may have a meaning here.
        (met.ok() ? ours_alone : refused) += 1;
      } else if (!met.ok()) {
        FAIL_CHECK(what << ": " << met.error().message);
      } else {
        CHECK_MESSAGE(met->text == wanted.text(), what);
        equal += met->text == wanted.text() ? 1 : 0;
      }
    }
  }
  MESSAGE(equal << " equal, " << refused << " refused by both, " << ours_alone
                << " refused by jinja2 alone");
  CHECK(equal > 300);
}

/// The control tokens that a template names: <|...|>, <｜...｜>, [UPPER_CASE] and <..._of_turn>.
std::vector<std::string> control_tokens(const std::string& source) {
  static const std::regex kToken(
      R"(<\|[^<>|{} ]+\|>|<\xEF\xBD\x9C[^<>{} ]+\xEF\xBD\x9C>|\[/?[A-Z_]{3,}\]|<(start|end)_of_turn>)");
  std::set<std::string> out;
  for (std::sregex_iterator at(source.begin(), source.end(), kToken), end; at != end; ++at) {
    out.insert(at->str());
  }
  return {out.begin(), out.end()};
}

TEST_CASE("words in a conversation never become control tokens of published templates") {
  const auto folder = templates_folder();
  if (folder.empty()) HEARTH_SKIP("needs tests/published/fetch.sh --all");
  jinja::Renderer run({}, std::tm{});
  const std::string text = read_file(folder / "cases.json");
  const Value cases = jinja::parse_json(run.arena(), text).value();
  std::set<std::string> families = {"openai-gpt-oss-120b",
                                    "google-gemma-2-2b-it",
                                    "google-gemma-4-31B-it",
                                    "GLM-4.6",
                                    "deepseek-ai-DeepSeek-V3.1",
                                    "Mistral-Small-3.2-24B-Instruct-2506",
                                    "meta-llama-Llama-3.1-8B-Instruct",
                                    "microsoft-Phi-3.5-mini-instruct",
                                    "Kimi-K2-Instruct",
                                    "Qwen-Qwen3-0.6B",
                                    "ibm-granite-granite-4.0",
                                    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
                                    "LFM2-8B-A1B"};
  for (const Value& chat : cases.dict().find("chats")->list().items) {
    const std::string file(chat.dict().find("template")->text());
    INFO(file);
    const std::string source = read_file(folder / file);
    const std::vector<std::string> control = control_tokens(source);
    if (control.empty()) continue;
    const ChatTemplate compiled = ChatTemplate::compile(source).value();
    size_t kept = 0;
    for (const auto& [name, conversation] : cases.dict().find("conversations")->dict().entries()) {
      INFO(std::string(name.text()));
      kept += check_words_stay_text(compiled, conversation, control, surroundings());
    }
    if (kept > 0) families.erase(file.substr(0, file.rfind('.')));
  }
  CHECK(families.empty());
}

/// A call with every kind of argument, as the template writes it, is read back. False: it writes
/// none without tools.
bool check_calls(const std::string& file, const ChatTemplates& templates,
                 const AnswerFormat& format) {
  static constexpr std::string_view kArguments =
      R"({"city":"K\u00f6ln \"7\"\nline","days":7,"exact":true,"list":[1,"a b"],"more":{"k":{"z":1.5}}})";
  const std::string arguments(kArguments);
  std::string as_text = "\"";
  for (const char c : arguments) append_json_byte(&as_text, c);
  as_text += '"';
  const auto call = [&](const std::string& name) {
    return R"({"id":"pr0beCa11","type":"function","function":{"name":")" + name +
           R"(","arguments":)" + (format.arguments_as_text ? as_text : arguments) + "}}";
  };
  const std::string asked = R"({"role":"user","content":"hearth-asks-7f3a"})";
  const std::string called = std::string(R"({"role":"assistant","content":)") +
                             (format.null_content ? "null" : R"("")") + R"(,"tool_calls":[)" +
                             call("hearth_probe_9c1e") + "]}";
  const auto whole = templates.render(
      "", R"({"messages":[)" + asked + "," + called + R"(],"add_generation_prompt":false})",
      surroundings());
  if (!whole.ok()) return false;
  const auto prompt = templates.render("", R"({"messages":[)" + asked + "]}", surroundings());
  std::string answer = whole->text.substr(whole->text.rfind("hearth-asks-7f3a") + 16);
  if (prompt.ok() && whole->text.starts_with(prompt->text)) {
    answer = whole->text.substr(prompt->text.size());
  }
  AnswerShape shape;
  shape.tools = format.tools;
  shape.channels = format.channels;
  shape.functions = {{"hearth_probe_9c1e", {"city"}}};
  AnswerParser parser(shape);
  AnswerPieces pieces;
  parser.push(answer, &pieces);
  parser.finish(&pieces);
  std::string read;
  int calls = 0;
  for (const AnswerPiece& piece : pieces) {
    calls += piece.type == AnswerPiece::Type::kCall ? 1 : 0;
    if (piece.type == AnswerPiece::Type::kArguments) read += piece.text;
  }
  CHECK_MESSAGE(calls == 1, file << ": " << answer);
  jinja::Renderer run({}, std::tm{});
  const auto met = jinja::parse_json(run.arena(), read);
  REQUIRE_MESSAGE(met.ok(), file << ": " << read);
  const Value wanted = jinja::parse_json(run.arena(), arguments).value();
  jinja::JsonStyle sorted;
  sorted.sort_keys = true;
  CHECK_MESSAGE(jinja::to_json(run, *met, sorted).value().text ==
                    jinja::to_json(run, wanted, sorted).value().text,
                file << ": " << answer << "\nread as " << read);
  return true;
}

TEST_CASE("reasoning is switched off by the templates' own switches") {
  const auto folder = templates_folder();
  if (folder.empty()) HEARTH_SKIP("needs tests/published/fetch.sh --all");
  const std::pair<const char*, std::optional<std::string>> wanted[] = {
      {"Qwen-Qwen3-0.6B", R"("enable_thinking":false)"},
      {"Qwen3.5-4B", R"("enable_thinking":false)"},
      {"GLM-4.6", R"("enable_thinking":false)"},
      {"HuggingFaceTB-SmolLM3-3B", R"("enable_thinking":false)"},
      {"ByteDance-Seed-OSS", R"("thinking_budget":0)"},
      {"deepseek-ai-DeepSeek-V3.1", ""},  // off unless it is switched on
      {"google-gemma-4-31B-it", ""},
      {"Qwen-QwQ-32B", ""},
      {"Qwen-Qwen2.5-7B-Instruct", ""},
      {"Kimi-K2-Thinking", std::nullopt},
      {"openai-gpt-oss-120b", std::nullopt},
  };
  for (const auto& [name, off] : wanted) {
    const ChatTemplates templates =
        templates_with(read_file(folder / (std::string(name) + ".jinja")));
    const AnswerFormat format = find_answer_format(templates, false, surroundings());
    CHECK_MESSAGE(format.reasoning_off == off, std::string(name)
                                                   << ": " << format.reasoning_off.value_or("-"));
  }
}

TEST_CASE("calls of published models are read in the notation of their templates") {
  const auto folder = templates_folder();
  if (folder.empty()) HEARTH_SKIP("needs tests/published/fetch.sh --all");
  struct Wanted {
    const char* calls;
    const char* reasoning = "";  // the mark that ends it
  };
  const std::map<std::string, Wanted> wanted = {
      {"openai-gpt-oss-120b", {"harmony"}},
      {"google-gemma-4-31B-it", {"gemma", "<channel|>"}},
      {"google-gemma-4-31B-it-interleaved", {"gemma", "<channel|>"}},
      {"GLM-4.6", {"glm", "</think>"}},
      {"GLM-4.7-Flash", {"glm", "</think>"}},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", {"deepseek", "</think>"}},
      {"deepseek-ai-DeepSeek-V3.1", {"deepseek-named", "</think>"}},
      {"deepseek-ai-DeepSeek-V3.2", {"deepseek-tags", "</think>"}},
      {"Mistral-Small-3.2-24B-Instruct-2506", {"mistral-ids"}},
      {"mistralai-Mistral-Nemo-Instruct-2407", {"mistral"}},
      {"mistralai-Ministral-3-14B-Reasoning-2512", {"mistral-named", "[/THINK]"}},
      {"Kimi-K2-Instruct", {"kimi"}},
      {"Qwen3-Coder", {"qwen-coder"}},
      {"Qwen-Qwen3-0.6B", {"hermes", "</think>"}},
      {"ByteDance-Seed-OSS", {"seed", "</seed:think>"}},
      {"MiniMax-M2", {"minimax", "</think>"}},
  };
  size_t found = 0;
  std::string unread;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".jinja") continue;
    const std::string name = file.path().stem().string();
    const ChatTemplates templates = templates_with(read_file(file.path()));
    const AnswerFormat format = find_answer_format(templates, true, surroundings());
    const std::string id = format.tools == nullptr ? "" : std::string(format.tools->id);
    const bool read = !id.empty() && check_calls(name, templates, format);
    if (!read) unread += " " + name;
    if (const auto known = wanted.find(name); known != wanted.end()) {
      CHECK_MESSAGE(id == known->second.calls, name << ": " << format.problem);
      CHECK_MESSAGE(format.reasoning.end == known->second.reasoning, name);
      CHECK(format.channels == (id == "harmony"));
      found += read ? 1 : 0;
    }
  }
  CHECK(found == wanted.size());
  MESSAGE("no calls in:" << unread);
}

}  // namespace
}  // namespace hearth::models
