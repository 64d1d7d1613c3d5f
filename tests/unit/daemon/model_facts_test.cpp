// Facts of model files, read by a program that may fail.

#include "daemon/broker/residency/model_facts.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/temp_dir.h"

namespace hearth::broker {
namespace {

namespace fs = std::filesystem;

/// A program that records each run, prints `output`, and ends with `status`.
fs::path fake_program(const fs::path& folder, const std::string& output, int status) {
  const fs::path path = folder / "program";
  std::ofstream(path) << "#!/bin/sh\necho \"$2\" >>" << (folder / "runs").string() << "\nprintf '"
                      << output << "'\nexit " << status << "\n";
  fs::permissions(path, fs::perms::owner_all);
  return path;
}

int num_runs(const fs::path& folder) {
  std::ifstream in(folder / "runs");
  int lines = 0;
  for (std::string line; std::getline(in, line);) ++lines;
  return lines;
}

std::map<std::string, ModelFile> two_models(int64_t changed_ns) {
  return {{"a", {.name = "a", .path = "/models/a.gguf", .bytes = 7, .changed_ns = changed_ns}},
          {"b", {.name = "b", .path = "/models/b.gguf", .bytes = 8, .changed_ns = 1}}};
}

TEST_CASE("each model file is described once, and again after it has changed") {
  const tests::TempDir temp;
  boost::asio::io_context io;
  ModelFacts facts(io, fake_program(temp.path(),
                                    "a line of the log\\n{\"architecture\":\"llama\","
                                    "\"context_length\":64,\"sampling\":{\"top_k\":3}}\\n",
                                    0));
  const auto read = [&](const std::map<std::string, ModelFile>& models) {
    facts.refresh(models);
    io.restart();
    io.run();
  };
  read(two_models(1));
  CHECK(num_runs(temp.path()) == 2);
  const ipc::FileFacts* met = facts.find(two_models(1).at("b"));
  REQUIRE(met != nullptr);
  CHECK(met->architecture == "llama");
  CHECK(met->context_length == 64);
  CHECK(met->sampling == ipc::SamplingSettings{.top_k = 3});
  read(two_models(1));
  CHECK(num_runs(temp.path()) == 2);
  read(two_models(2));
  CHECK(num_runs(temp.path()) == 3);
  CHECK(facts.find(two_models(2).at("a")) != nullptr);
  read({});
  CHECK(facts.find(two_models(1).at("b")) == nullptr);
}

TEST_CASE("a file whose description fails has no facts and is not tried again") {
  for (const auto& [output, status] :
       {std::pair{"{\"architecture\":\"llama\"}", 1}, {"", 0}, {"no JSON\\n", 0}}) {
    CAPTURE(output);
    const tests::TempDir temp;
    boost::asio::io_context io;
    ModelFacts facts(io, fake_program(temp.path(), output, status));
    for (int i = 0; i < 2; ++i) {
      facts.refresh(two_models(1));
      io.restart();
      io.run();
    }
    CHECK(num_runs(temp.path()) == 2);
    CHECK(facts.find(two_models(1).at("a")) == nullptr);
  }
}

TEST_CASE("a chat model has tools if its template or the configuration has a form of them") {
  using Names = std::vector<std::string>;
  ipc::FileFacts facts;
  facts.chat_template = true;
  facts.abilities = {"text", "reasoning"};
  CHECK(abilities_of(facts, "template") == facts.abilities);
  CHECK(abilities_of(facts, "hermes") == Names{"text", "tools", "reasoning"});
  facts.chat_template = false;
  CHECK(abilities_of(facts, "hermes") == facts.abilities);
  facts.chat_template = true;
  facts.abilities = {"text", "tools"};
  CHECK(abilities_of(facts, "hermes") == facts.abilities);
  facts.abilities = {"vectors"};
  CHECK(abilities_of(facts, "hermes") == facts.abilities);
}

TEST_CASE("without a program no facts are found") {
  boost::asio::io_context io;
  ModelFacts facts(io, "/nonexistent/program");
  facts.refresh(two_models(1));
  io.run();
  CHECK(facts.find(two_models(1).at("a")) == nullptr);
}

}  // namespace
}  // namespace hearth::broker
