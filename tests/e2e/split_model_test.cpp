// A model in several files, from the shell to the tokens: as the one file that it was.

#include "tests/split_model.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/e2e/command.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/http_client.h"
#include "tests/e2e/terminal.h"
#include "tests/paths.h"
#include "tests/unit/ipc/http_server.h"

namespace hearth::e2e {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kTales = hearth::tests::source_path("models/demo/tales.gguf");

ipc::GenerateRequest asked(const std::string& model, float temperature) {
  ipc::GenerateRequest request = seeded(9, 60, "Once upon a time there was");
  request.model = model;
  request.temperature = temperature;
  return request;
}

const ipc::ModelEntry* entry_of(const ipc::ModelsReply& reply, const std::string& name) {
  const auto found = std::ranges::find(reply.models, name, &ipc::ModelEntry::name);
  return found == reply.models.end() ? nullptr : &*found;
}

TEST_CASE("a daemon lists a split model as one and serves the tokens of the whole one") {
  const Sandbox sandbox;
  fs::copy_file(kTales, sandbox.models() / "tales.gguf");
  const auto files = tests::write_split_model(kTales, sandbox.models(), "parted", 3);
  REQUIRE(files.size() == 3);
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  const Result<ipc::ModelsReply> listed = client.models();
  REQUIRE(listed.ok());
  CHECK(listed->models.size() == 2);
  const ipc::ModelEntry* const parted = entry_of(*listed, "parted");
  REQUIRE(parted != nullptr);
  uint64_t bytes = 0;
  for (const fs::path& file : files) bytes += fs::file_size(file);
  CHECK(parted->file_bytes == bytes);
  CHECK(parted->problem.empty());
  for (const float temperature : {0.0f, 1.0f}) {
    const Answer whole = run(client, asked("tales", temperature));
    REQUIRE_MESSAGE(whole.done.has_value(), why(whole));
    REQUIRE(whole.ids[0].size() == 60);
    for (const char* name : {"parted", "PARTED.gguf", "parted-00002-of-00003.gguf"}) {
      const Answer split = run(client, asked(name, temperature));
      REQUIRE_MESSAGE(split.done.has_value(), why(split));
      CHECK(split.done->model == "parted");
      CHECK(split.ids == whole.ids);
      CHECK(split.texts == whole.texts);
    }
  }
  CHECK(HttpClient(daemon).ask("GET", "/v1/models/parted").status == 200);
}

TEST_CASE("a model with missing parts is listed with them, and a request for it names them") {
  const Sandbox sandbox;
  fs::copy_file(kTales, sandbox.models() / "tales.gguf");
  const auto files = tests::write_split_model(kTales, sandbox.models(), "parted", 3);
  REQUIRE(files.size() == 3);
  const fs::path aside = sandbox.path() / "aside";
  fs::rename(files[1], aside);
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  const Result<ipc::ModelsReply> listed = client.models();
  REQUIRE(listed.ok());
  const ipc::ModelEntry* const parted = entry_of(*listed, "parted");
  REQUIRE(parted != nullptr);
  CHECK(parted->problem == "1 of its 3 parts missing: parted-00002-of-00003.gguf");
  const Answer refused = run(client, asked("parted", 0));
  REQUIRE(refused.error.has_value());
  CHECK(refused.error->code == ErrorCode::kNotFound);
  CHECK(refused.error->message.find("parted-00002-of-00003.gguf") != std::string::npos);
  CHECK(text_of(sandbox.path() / "log").find("model_incomplete model=parted") != std::string::npos);
  CHECK(run_hearth(sandbox, "models").out.find("1 of its 3 parts missing") != std::string::npos);

  // Another model's part in its place: the worker refuses it by name.
  fs::copy_file(files[0], files[1]);
  const Answer foreign = run(client, asked("parted", 0));
  REQUIRE(foreign.error.has_value());
  CHECK(foreign.error->message.find("parted-00002-of-00003.gguf: split.no: 0, want 1") !=
        std::string::npos);
  fs::rename(aside, files[1]);
  CHECK(eventually([&] { return run(client, asked("parted", 0)).done.has_value(); }, 200));
}

TEST_CASE("every verb reads a split model, by any part's path or by its name") {
  const Sandbox sandbox;
  fs::create_directory(sandbox.path() / "else");
  REQUIRE(tests::write_split_model(kTales, sandbox.path() / "else", "parted", 3).size() == 3);
  const auto out = [&](const std::string& words) {
    const CommandOutcome outcome = run_hearth(sandbox, words);
    CHECK_MESSAGE(outcome.status == 0, words << ": " << outcome.err);
    return outcome.out;
  };
  const std::string whole = kTales;
  for (const char* name : {"else/parted", "else/parted.gguf", "else/parted-00001-of-00003.gguf",
                           "./else/parted-00003-of-00003.gguf"}) {
    CAPTURE(name);
    const std::string split = name;
    json facts = json::parse(out("inspect --json " + split));
    CHECK(facts["files"] == 3);
    CHECK(facts["name"] == "parted");
    const json same = json::parse(out("inspect --json " + whole));
    for (const char* field : {"metadata", "tensors", "types", "model", "tokenizer"}) {
      CHECK(facts[field] == same[field]);
    }
    CHECK(out("tokenize --ids " + split + " 'Once upon'") ==
          out("tokenize --ids " + whole + " 'Once upon'"));
  }
  CHECK(out("inspect else/parted").find(" in 3 files (GGUF 3)") != std::string::npos);
  out("plan else/parted --bandwidth 10GB/s --memory 1GiB");
  out("quantize else/parted split.gguf --type Q4_0 --requantize");
  out("quantize " + whole + " whole.gguf --type Q4_0 --requantize");
  CHECK(text_of(sandbox.path() / "split.gguf") == text_of(sandbox.path() / "whole.gguf"));
  CHECK(run_hearth(sandbox,
                   "quantize else/parted else/parted-00002-of-00003.gguf --type Q8_0 "
                   "--force")
            .err.find("OUT is IN") != std::string::npos);
  std::ofstream(sandbox.path() / "text") << "Once upon a time there was a poor woodcutter.";
  const json score = json::parse(
      out("perplexity else/parted -f text --against " + whole + " --context 64 --json"));
  CHECK(score["kl"] == 0.0);

  // A daemon of one's own takes the path.
  REQUIRE(run_hearth(sandbox, "start").status == 0);
  const std::string more = " --temperature 0 --max-tokens 12 'Once upon'";
  const std::string text = out("run ./else/parted" + more);
  CHECK_FALSE(text.empty());
  CHECK(out("run ./else/parted-00002-of-00003.gguf" + more) == text);
  CHECK(out("run parted" + more) == text);
  CHECK(out("run " + whole + more) == text);
  CHECK(run_hearth(sandbox, "models --json").out.find("\"parted\"") != std::string::npos);
  CHECK(run_hearth(sandbox, "stop").status == 0);
  fs::remove(sandbox.path() / "else/parted-00002-of-00003.gguf");
  const CommandOutcome half = run_hearth(sandbox, "inspect else/parted");
  CHECK(half.status == 1);
  CHECK(half.err.find("missing: parted-00002-of-00003.gguf") != std::string::npos);
}

TEST_CASE("pull fetches all parts and adopts those that are there") {
  const Sandbox sandbox;
  const fs::path served = sandbox.path() / "served", models = sandbox.models();
  fs::create_directory(served);
  const auto files = tests::write_split_model(kTales, served, "parted", 3);
  REQUIRE(files.size() == 3);
  tests::HttpServer server([&](const tests::HttpRequest& request) {
    const fs::path file = served / fs::path(request.path).filename();
    if (!fs::exists(file)) return tests::HttpAnswer{tests::http_head("404 None", 0), ""};
    const std::string text = text_of(file);
    return tests::HttpAnswer{tests::http_head("200 OK", text.size()),
                             request.method == "HEAD" ? "" : text};
  });
  const std::string source = server.url("/some/parted-00001-of-00003.gguf");
  const fs::path aside = sandbox.path() / "aside";
  fs::rename(files[2], aside);
  const CommandOutcome half = run_hearth(sandbox, "pull " + source);
  CHECK(half.status == 1);
  CHECK(half.err.find("status 404") != std::string::npos);
  CHECK(fs::exists(models / files[1].filename()));
  fs::rename(aside, files[2]);
  const CommandOutcome rest = run_hearth(sandbox, "pull " + source);
  CHECK_MESSAGE(rest.status == 0, rest.err);
  CHECK(rest.err.find("part 1 of 3: ") != std::string::npos);
  CHECK(rest.err.find("(there already)") != std::string::npos);
  for (const fs::path& file : files) {
    CHECK(text_of(models / file.filename()) == text_of(file));
    CHECK(rest.out.find((models / file.filename()).string() + "\n") != std::string::npos);
  }
  CHECK(run_hearth(sandbox, "pull " + source + " --name other --sha256 ab")
            .err.find("1 hashes, want one for each of 3 files") != std::string::npos);
  CHECK(run_hearth(sandbox, "pull " + source + " --name other").status == 0);
  CHECK(fs::exists(models / "other-00003-of-00003.gguf"));
  CHECK(run_hearth(sandbox, "pull " + server.url("/parted-00002-of-00003.gguf") + " --name alone")
            .status == 0);
  CHECK(fs::exists(models / "alone-00002-of-00003.gguf"));
  CHECK_FALSE(fs::exists(models / "alone-00001-of-00003.gguf"));
}

TEST_CASE("models rm removes all parts of a model that no request uses, and asks before") {
  const Sandbox sandbox;
  const fs::path models = sandbox.models();
  const auto files = tests::write_split_model(kTales, models, "parted", 3);
  REQUIRE(files.size() == 3);
  REQUIRE(tests::write_split_model(kTales, models, "other", 3).size() == 3);
  const Daemon daemon(sandbox, {}, Company::kAlone);
  ipc::Client client = daemon.connect();
  REQUIRE(run(client, asked("parted", 0)).done.has_value());
  const CommandOutcome not_asked = run_hearth(sandbox, "models rm parted");
  CHECK(not_asked.status == 2);
  CHECK(not_asked.err.find("--yes") != std::string::npos);
  CHECK(run_hearth(sandbox, "models rm none --yes").status == 1);
  CHECK(run_hearth(sandbox, "models rm ./other --yes").status == 1);

  // In use: nothing is removed.
  ipc::GenerateRequest endless = asked("parted", 1);
  endless.max_tokens = 400;
  ipc::Client user = daemon.connect();
  const Result<std::string> id = user.start(endless);
  REQUIRE(id.ok());
  const CommandOutcome busy = run_hearth(sandbox, "models rm parted --yes");
  const bool still_runs = !client.ps()->requests.empty();
  if (still_runs) {
    CHECK(busy.status == 1);
    CHECK(busy.err.find("is in use by 1 request;") != std::string::npos);
    CHECK(fs::exists(files[0]));
  }
  collect(user, 1);

  // On a terminal it asks, and any other answer than yes leaves the model.
  const std::map<std::string, std::string> environment = {
      {"HEARTH_RUNTIME_DIR", sandbox.runtime().string()},
      {"HEARTH_STATE_DIR", sandbox.state().string()},
      {"HEARTH_MODEL_DIRS", models.string()}};
  for (const bool yes : {false, true}) {
    Terminal terminal({program("hearth").string(), "models", "rm", "other"}, environment);
    REQUIRE(terminal.wait_for("Remove other: 3 files, "));
    terminal.type(yes ? "y\n" : "\n");
    const int status = terminal.wait_for_exit();
    CHECK(WEXITSTATUS(status) == (yes ? 0 : 1));
    CHECK(fs::exists(models / "other-00001-of-00003.gguf") == !yes);
  }
  for (const auto& [name, value] : environment) ::unsetenv(name.c_str());

  if (still_runs) {
    const CommandOutcome removed = run_hearth(sandbox, "models rm parted --yes");
    CHECK_MESSAGE(removed.status == 0, removed.err);
    CHECK(removed.out.find("removed parted: 3 files, ") != std::string::npos);
  }
  for (const fs::path& file : files) CHECK_FALSE(fs::exists(file));
  const Answer gone = run(client, asked("parted", 0));
  REQUIRE(gone.error.has_value());
  CHECK(gone.error->code == ErrorCode::kNotFound);
}

TEST_CASE("models of other programs are listed and served, and a second one of a name is logged") {
  const Sandbox sandbox;
  const fs::path others = sandbox.path() / "others";
  fs::create_directories(others / "owner/repo");
  fs::copy_file(kTales, sandbox.models() / "own.gguf");
  fs::copy_file(kTales, others / "own.gguf");
  REQUIRE(tests::write_split_model(kTales, others / "owner/repo", "foreign", 2).size() == 2);
  const fs::path config = sandbox.path() / "hearth.toml";
  std::ofstream(config) << "[server]\nother_model_dirs = [\"" << others.string() << "\"]\n";
  fs::permissions(config, fs::perms::owner_read | fs::perms::owner_write);
  const Daemon daemon(sandbox, {}, Company::kNoise, config);
  ipc::Client client = daemon.connect();
  const Result<ipc::ModelsReply> listed = client.models();
  REQUIRE(listed.ok());
  CHECK(listed->models.size() == 2);
  CHECK(listed->folders.back() == others.string());
  CHECK(run(client, asked("foreign", 0)).ids == run(client, asked("own", 0)).ids);
  const std::string log = text_of(sandbox.path() / "log");
  CHECK(log.find("model_hidden model=own file=" + (others / "own.gguf").string()) !=
        std::string::npos);
  CHECK(run_hearth(sandbox, "models rm foreign --yes").status == 1);
  CHECK(fs::exists(others / "owner/repo/foreign-00001-of-00002.gguf"));

  std::ofstream(config) << "[server]\n";
  daemon.signal(SIGHUP);
  CHECK(eventually([&] { return client.models()->models.size() == 1; }));
}

}  // namespace
}  // namespace hearth::e2e
