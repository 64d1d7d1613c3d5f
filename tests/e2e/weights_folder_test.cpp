// A folder of published weights as a model on the command line.

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/e2e/command.h"
#include "tests/e2e/daemon.h"
#include "tests/golden/published_folder.h"
#include "tests/paths.h"

namespace hearth::e2e {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json read_json(const std::string& name) {
  std::ifstream in(hearth::tests::source_path("tests/golden/convert/" + name + ".json"));
  REQUIRE_MESSAGE(in.good(), name);
  return json::parse(in);
}

/// Of random weights, with a tokenizer.
void make_folder(const fs::path& folder) {
  fs::create_directories(folder);
  json recording = read_json("qwen2");
  for (json& tensor : recording["tensors"]) {
    const bool of_vocabulary =
        tensor[0] == "model.embed_tokens.weight" || tensor[0] == "lm_head.weight";
    if (of_vocabulary) tensor[1][0] = read_json("ids_gpt2").at("size").get<uint64_t>();
  }
  golden::make_folder(folder, recording);
  std::ofstream(folder / "tokenizer.json") << read_json("tokenizer_gpt2").dump();
}

TEST_CASE("a folder of published weights runs: it is converted once, and again after a change") {
  const Sandbox sandbox;
  make_folder(sandbox.path() / "weights");
  const Daemon daemon(sandbox);
  const std::string words = "run ./weights 'Once upon' --max-tokens 8 --temperature 0 --ids";
  const CommandOutcome first = run_hearth(sandbox, words);
  REQUIRE_MESSAGE(first.status == 0, first.err);
  CHECK_FALSE(first.out.empty());
  CHECK(first.err.find("try: hearth inspect") != std::string::npos);
  const CommandOutcome again = run_hearth(sandbox, words);
  REQUIRE_MESSAGE(again.status == 0, again.err);
  CHECK(again.out == first.out);
  CHECK(again.err.find("try: hearth inspect") == std::string::npos);
  // The same file, under its own name.
  const fs::path made = sandbox.state() / "converted";
  REQUIRE(std::distance(fs::directory_iterator(made), fs::directory_iterator()) == 1);
  const std::string file = fs::directory_iterator(made)->path().string();
  CHECK(run_hearth(sandbox, "run " + file + words.substr(13)).out == first.out);

  CHECK(run_hearth(sandbox, "unload ./weights").status == 0);

  fs::last_write_time(sandbox.path() / "weights/model.safetensors",
                      fs::file_time_type::clock::now() + std::chrono::seconds(2));
  const CommandOutcome changed = run_hearth(sandbox, words);
  REQUIRE_MESSAGE(changed.status == 0, changed.err);
  CHECK(changed.err.find("try: hearth inspect") != std::string::npos);
}

TEST_CASE("a folder that cannot be converted is refused with the converter's reason") {
  const Sandbox sandbox;
  make_folder(sandbox.path() / "weights");
  fs::remove(sandbox.path() / "weights/tokenizer.json");
  fs::create_directories(sandbox.path() / "empty");
  const Daemon daemon(sandbox);
  const CommandOutcome no_tokenizer = run_hearth(sandbox, "run ./weights hello");
  CHECK(no_tokenizer.status != 0);
  CHECK(no_tokenizer.err.find("tokenizer.json") != std::string::npos);
  CHECK(no_tokenizer.err.find("not converted") != std::string::npos);
  const CommandOutcome empty = run_hearth(sandbox, "run ./empty hello");
  CHECK(empty.status != 0);
  CHECK(empty.err.find("no such file") != std::string::npos);
}

}  // namespace
}  // namespace hearth::e2e
