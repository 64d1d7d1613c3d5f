// Vocabularies in files of their own (models/convert/vocabulary_files.h).

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/convert/convert.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/golden/published_folder.h"
#include "tests/paths.h"
#include "tests/temp_dir.h"

namespace hearth::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using tests::TempDir;

constexpr const char* kWorldFile = "rwkv_vocab_v20230424.txt";
constexpr const char* kPlamoFile = "tokenizer.jsonl";
constexpr const char* kKimiFile = "tiktoken.model";
constexpr uint64_t kRows = 300, kRowsOfKimi = 800;

json read_recording(const std::string& name) {
  std::ifstream in(fs::path(tests::source_dir()) / "tests/golden/convert" / (name + ".json"));
  return json::parse(in);
}

/// A folder of the recorded family whose embedding has so many rows.
void make_folder_with_rows(const fs::path& folder, const std::string& family,
                           uint64_t num_rows = kRows) {
  json recording = read_recording(family);
  for (json& tensor : recording["tensors"]) {
    const auto name = tensor[0].get<std::string>();
    if (name.ends_with("embeddings.weight") || name.ends_with("embed_tokens.weight") ||
        name == "lm_head.weight") {
      tensor[1][0] = num_rows;
    }
  }
  make_folder(folder, recording);
}

auto converted(const fs::path& folder) {
  return models::convert_folder(folder, folder / "out.gguf", {}, nullptr);
}

/// Every byte, as Python writes it, then some longer tokens.
std::string world_lines() {
  std::string out;
  size_t id = 1;
  for (int byte = 0; byte < 256; ++byte, ++id) {
    const char c = static_cast<char>(byte);
    std::string literal = fmt::format("'{}'", c);
    if (byte >= 0x80) literal = fmt::format("b'\\x{:02x}'", byte);
    if (byte < 0x20 || byte == 0x7F) literal = fmt::format("'\\x{:02x}'", byte);
    if (c == '\t') literal = R"('\t')";
    if (c == '\n') literal = R"('\n')";
    if (c == '\\') literal = R"('\\')";
    if (c == '\'') literal = R"("'")";
    out += fmt::format("{} {} 1\n", id, literal);
  }
  for (const char* rest : {R"('\n\n' 2)", R"(' the' 4)", "'\u00e9t\u00e9' 5", R"('\xe9' 2)",
                           R"('\u2028' 3)", R"(b'\xe2\x80' 2)", R"("don't" 5)"}) {
    out += fmt::format("{} {}\n", id++, rest);
  }
  return out;
}

TEST_CASE("convert: the World vocabulary of a folder without tokenizer.json") {
  const TempDir dir;
  make_folder_with_rows(dir.path(), "rwkv7");
  write(dir.path() / kWorldFile, world_lines());
  const auto report = converted(dir.path());
  REQUIRE_MESSAGE(report.ok(), report.error().message);
  const models::GgufFile file = open_file(dir.path() / "out.gguf");
  CHECK(*file.get<std::string_view>("tokenizer.chat_template") == "rwkv-world");
  CHECK(*file.get<uint32_t>("tokenizer.ggml.eot_token_id") == 257);
  const auto tokenizer = models::load_tokenizer(file);
  REQUIRE_MESSAGE(tokenizer.ok(), tokenizer.error().message);
  CHECK((*tokenizer)->eos() == 0);
  const std::string text = "don't\\ \xC3\xA9t\xC3\xA9 the\n\n\xC3\xA9\xE2\x80\xA8\xE2\x80\x7F\t";
  const std::vector<int32_t> want = {263, 93, 33, 259, 258, 257, 260, 261, 262, 128, 10};
  CHECK((*tokenizer)->encode(text, {}) == want);
}

TEST_CASE("convert: PLaMo's vocabulary of a folder without tokenizer.json") {
  const TempDir dir;
  make_folder_with_rows(dir.path(), "plamo2");
  std::string lines =
      "[\"<|plamo:unk|>\",0.0,\"UNKNOWN\"]\n[\"<|plamo:bos|>\",0.0,\"CONTROL\"]\n"
      "[\"<|plamo:eos|>\",0.0,\"CONTROL\"]\n[\"<|plamo:op|>\",0.0,\"NORMAL\"]\n";
  for (int byte = 0; byte < 256; ++byte)
    lines += fmt::format("[\"<0x{:02X}>\",0.0,\"BYTE\"]\n", byte);
  lines += "[\"fox\",-2.5,\"NORMAL\",3]\n[\"f\",-5,\"NORMAL\"]\n[\"ox\",-1.0,\"NORMAL\"]\n\n";
  write(dir.path() / kPlamoFile, lines);
  write(dir.path() / "tokenizer_config.json",
        R"({"bos_token":"<|plamo:bos|>","eos_token":"<|plamo:eos|>","add_bos_token":true})");
  const auto report = converted(dir.path());
  REQUIRE_MESSAGE(report.ok(), report.error().message);
  const models::GgufFile file = open_file(dir.path() / "out.gguf");
  CHECK(*file.get<uint32_t>("tokenizer.ggml.eot_token_id") == 3);
  const auto tokenizer = models::load_tokenizer(file);
  REQUIRE_MESSAGE(tokenizer.ok(), tokenizer.error().message);
  CHECK((*tokenizer)->bos() == 1);
  CHECK((*tokenizer)->eos() == 2);
  CHECK((*tokenizer)->encode("foxox", {}) == std::vector<int32_t>{1, 260, 262});
}

std::string kimi_lines(const json& recording) {
  std::string out;
  for (const json& line : recording.at("lines")) out += line.get<std::string>() + "\n";
  return out;
}

TEST_CASE("convert: Kimi's vocabulary gives tiktoken's ids") {
  const json recording = read_recording("ids_kimi");
  const TempDir dir;
  make_folder_with_rows(dir.path(), "kimi_linear", kRowsOfKimi);
  write(dir.path() / kKimiFile, kimi_lines(recording));
  write(dir.path() / "tokenizer_config.json", recording.at("settings").dump());
  write(dir.path() / "chat_template.jinja", "{{ x }}");
  const auto report = converted(dir.path());
  REQUIRE_MESSAGE(report.ok(), report.error().message);
  const models::GgufFile file = open_file(dir.path() / "out.gguf");
  CHECK(*file.get<std::string_view>("tokenizer.ggml.pre") == "kimi-k2");
  CHECK(*file.get<std::string_view>("tokenizer.chat_template") == "{{ x }}");
  const auto loaded = models::load_tokenizer(file);
  REQUIRE_MESSAGE(loaded.ok(), loaded.error().message);
  const models::Tokenizer& tokenizer = **loaded;
  for (const json& text : recording.at("texts")) {
    const auto want = text.at("ids").get<std::vector<int32_t>>();
    INFO(text.at("text").dump());
    CHECK(tokenizer.encode(text.at("text").get<std::string>(), {}) == want);
  }
  const auto base = static_cast<int32_t>(recording.at("lines").size());
  CHECK(tokenizer.bos() == base);
  CHECK(tokenizer.eos() == base + 1);
  CHECK(tokenizer.entry(base + 255) == fmt::format("<|reserved_token_{}|>", base + 255));
  CHECK(tokenizer.entry(base + 256) == fmt::format("[unused {}]", base + 256));
  for (const int32_t ends : {1, 2, 3}) CHECK(tokenizer.is_end_of_generation(base + ends));
  CHECK(tokenizer.encode("<|im_end|>", {.parse_special = true}) == std::vector<int32_t>{base + 2});
  CHECK(tokenizer.encode("<|tool_call_begin|>", {}) == std::vector<int32_t>{base + 4});
}

TEST_CASE("convert: damaged vocabulary files are refused by file and line") {
  struct Damage {
    const char* what;
    const char* family;
    const char* file;
    std::string text;
    const char* names;
  };
  const std::string world = world_lines();
  const std::vector<Damage> all = {
      {"no size", "rwkv7", kWorldFile, "1 'a'\n", "line 1"},
      {"another size", "rwkv7", kWorldFile, "1 'a' 1\n2 'ab' 3\n", "line 2: want 3 bytes"},
      {"an id left out", "rwkv7", kWorldFile, "1 'a' 1\n3 'b' 1\n", "line 2: want token 2"},
      {"half an escape", "rwkv7", kWorldFile, R"(1 '\x4' 1)", "literal"},
      {"code points among bytes", "rwkv7", kWorldFile, R"(1 b'\u1234' 1)", "literal"},
      {"beyond Unicode", "rwkv7", kWorldFile, R"(1 '\U00110000' 4)", "literal"},
      {"no quotes", "rwkv7", kWorldFile, "1 a 1", "literal"},
      {"a quote within", "rwkv7", kWorldFile, "1 'a'b' 3", "literal"},
      {"an empty token", "rwkv7", kWorldFile, "1 '' 0", "literal"},
      {"more tokens than rows", "rwkv7", kWorldFile,
       [&] {
         std::string text = world;
         for (int id = 264; id < 310; ++id) text += fmt::format("{} 'more{}' 7\n", id, id);
         return text;
       }(),
       "300 rows"},
      {"no JSON", "plamo2", kPlamoFile, "[\"a\",0.0]\n[\"b\",\n", "line 2"},
      {"a score that is a text", "plamo2", kPlamoFile, "[\"a\",\"0\"]\n", "line 1"},
      {"an object", "plamo2", kPlamoFile, "{}\n", "line 1"},
      {"no rank", "kimi_linear", kKimiFile, "YQ==\n", "line 1: want rank 0"},
      {"a rank left out", "kimi_linear", kKimiFile, "YQ== 0\nYg== 2\n", "line 2: want rank 1"},
      {"a rank that is a text", "kimi_linear", kKimiFile, "YQ== 0x\n", "line 1: want rank 0"},
      {"no base64", "kimi_linear", kKimiFile, "Y-== 0\n", "line 1: want 1 to 1024 bytes"},
      {"half of base64", "kimi_linear", kKimiFile, "YQ= 0\n", "line 1: want 1 to 1024 bytes"},
      {"no bytes", "kimi_linear", kKimiFile, " 0\n", "line 1: want 1 to 1024 bytes"},
      {"a long token", "kimi_linear", kKimiFile, std::string(1400, 'Y') + " 0\n",
       "line 1: want 1 to 1024 bytes"},
      {"a token twice", "kimi_linear", kKimiFile, "YQ== 0\nYQ== 1\n", "token 1 appears twice"},
      {"more tokens than rows", "kimi_linear", kKimiFile, kimi_lines(read_recording("ids_kimi")),
       "300 rows"},
  };
  for (const Damage& damage : all) {
    INFO(damage.what);
    const TempDir dir;
    make_folder_with_rows(dir.path(), damage.family);
    write(dir.path() / damage.file, damage.text);
    const auto report = converted(dir.path());
    REQUIRE_FALSE(report.ok());
    CHECK(report.error().code == ErrorCode::kCorrupt);
    CHECK(report.error().message.find(damage.file) != std::string::npos);
    CHECK_MESSAGE(report.error().message.find(damage.names) != std::string::npos,
                  report.error().message);
    CHECK_FALSE(fs::exists(dir.path() / "out.gguf"));
  }
  const TempDir dir;
  make_folder_with_rows(dir.path(), "rwkv7");
  const auto report = converted(dir.path());
  REQUIRE_FALSE(report.ok());
  CHECK(report.error().code == ErrorCode::kNotFound);
}

}  // namespace
}  // namespace hearth::golden
