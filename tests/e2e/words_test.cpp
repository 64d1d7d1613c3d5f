// What people type, with a real daemon: files by their path, questions and pipes, default sampling,
// damaged weights, and what survives a daemon.

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"
#include "tests/e2e/command.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/http_client.h"
#include "tests/e2e/tiny_model.h"

namespace hearth::e2e {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWordsTemplate =
    "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}";

/// `from` with more keys, or with one value of one tensor replaced.
void rewrite(const fs::path& from, const fs::path& to,
             const std::function<void(models::GgufWriter&)>& more,
             const std::string& damaged = "") {
  const auto opened = models::GgufFile::open(from);
  REQUIRE(opened.ok());
  models::GgufWriter w;
  for (const models::GgufEntry& entry : opened->metadata()) w.copy(entry);
  more(w);
  for (const models::GgufTensor& tensor : opened->tensors()) {
    std::vector<std::byte> bytes(tensor.bytes.begin(), tensor.bytes.end());
    if (tensor.name == damaged) {
      const float bad = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(bytes.data() + 40, &bad, sizeof bad);
    }
    w.add_tensor(tensor.name, std::span(tensor.dims.data(), tensor.num_dims), *tensor.dtype,
                 std::move(bytes));
  }
  REQUIRE(w.write(to).ok());
}

const auto kNoMore = [](models::GgufWriter&) {};

TEST_CASE("a user's own daemon is started, takes a file by its path, and is stopped") {
  const Sandbox sandbox;
  fs::create_directory(sandbox.path() / "elsewhere");
  write_tiny_model(sandbox.path() / "elsewhere/Own.GGUF", 1);
  const CommandOutcome started = run_hearth(sandbox, "start");
  REQUIRE_MESSAGE(started.status == 0, started.err);
  CHECK(started.out.starts_with("started (pid "));
  CHECK(run_hearth(sandbox, "start").out.starts_with("a daemon answers already"));
  const CommandOutcome text =
      run_hearth(sandbox, "run ./elsewhere/Own.GGUF --seed 3 --max-tokens 6 --ignore-eos the");
  CHECK_MESSAGE(text.status == 0, text.err);
  CHECK_FALSE(text.out.empty());
  // It has a name from now on.
  CHECK(run_hearth(sandbox, "run own --seed 3 --max-tokens 6 --ignore-eos the").out == text.out);
  CHECK(run_hearth(sandbox, "load ./elsewhere/Own.GGUF").status == 0);
  CHECK(run_hearth(sandbox, "models").out.find("Own ") != std::string::npos);
  const CommandOutcome none = run_hearth(sandbox, "run ./elsewhere/none.gguf the");
  CHECK(none.status == 1);
  CHECK(none.err.find("no such file") != std::string::npos);
  CHECK(run_hearth(sandbox, "stop").status == 0);
  CHECK(run_hearth(sandbox, "ps").status == 3);
}

TEST_CASE("words are a message to a model with a template; piped input follows them") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1, kWordsTemplate);
  const Daemon daemon(sandbox);
  const std::string more = " --no-start --seed 5 --max-tokens 8 --ignore-eos tiny ";
  const auto out = [&](const std::string& words, const std::string& input = "",
                       bool piped = false) {
    const CommandOutcome outcome = run_hearth(sandbox, "run" + more + words, input, piped);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    return outcome.out;
  };
  CHECK(out("the abc") == out("--raw 'user the abc '"));
  CHECK(out("the abc") != out("--raw 'the abc'"));
  CHECK(out("the", "abc\n", true) == out("'the\n\nabc'"));
  CHECK(out("the", "abc\n", false) == out("'the\n\nabc'"));
  CHECK(out("", "abc\n", true) == out("abc"));
  std::ofstream(sandbox.path() / "file") << "abc\n";
  CHECK(out("-f file the") == out("'the\n\nabc'"));
  CHECK(out("-f file") == out("abc"));
  // One rule for the end of a file and of a pipe.
  const auto ids = [&](const std::string& words, const std::string& input, bool piped) {
    return run_hearth(sandbox, "tokenize --ids tiny " + words, input, piped).out;
  };
  const std::string want = ids("abc", "", false);
  for (const char* words : {"", "-f -", "-f file"}) {
    CAPTURE(words);
    CHECK(ids(words, "abc\n", true) == want);
    CHECK(ids(words, "abc\n", false) == want);
  }
  CHECK(ids("", "abc\n\n", true) != want);
}

TEST_CASE("a piped conversation is one question, and only the answer goes to stdout") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1, kWordsTemplate);
  write_tiny_model(sandbox.models() / "plain.gguf", 1);
  const Daemon daemon(sandbox);
  const std::string more = " --seed 5 --max-tokens 8 --ignore-eos";
  const CommandOutcome asked =
      run_hearth(sandbox, "chat --no-start --name one tiny the abc" + more);
  CHECK_MESSAGE(asked.status == 0, asked.err);
  CHECK(asked.err.find("/help shows the commands.") != std::string::npos);
  CHECK(asked.out == run_hearth(sandbox, "run --no-start tiny the abc" + more).out + "\n");
  CHECK(run_hearth(sandbox, "chat --no-start tiny the" + more, "abc", true).status == 0);
  CHECK(fs::exists(sandbox.state() / "chats/one.json"));
  const CommandOutcome resumed = run_hearth(sandbox, "chat --no-start --resume one");
  CHECK(resumed.status == 0);
  CHECK(resumed.out.starts_with("> the abc\n"));
  CHECK(run_hearth(sandbox, "chat --no-start tiny").status == 2);  // no question
  const CommandOutcome nope = run_hearth(sandbox, "chat --no-start nope", "the", true);
  CHECK(nope.status == 1);
  CHECK(nope.err.find("no model nope; there are: plain, tiny") != std::string::npos);
  const CommandOutcome plain = run_hearth(sandbox, "chat --no-start plain", "the", true);
  CHECK(plain.status == 1);
  CHECK(plain.err.find("has no chat template") != std::string::npos);
}

TEST_CASE("a full conversation's error names /new") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1, kWordsTemplate);
  const Daemon daemon(sandbox, {"worker.context_length=64"});
  const CommandOutcome full =
      run_hearth(sandbox, "chat --no-start tiny", std::string(300, 'a'), true);
  CHECK(full.status == 1);
  CHECK_MESSAGE(full.err.find("/new begins another one") != std::string::npos, full.err);
  const CommandOutcome cut = run_hearth(sandbox, "chat --no-start tiny --ignore-eos", "a", true);
  CHECK_MESSAGE(cut.err.find("the context is full; /new") != std::string::npos, cut.err);
}

TEST_CASE("sampling defaults are equal over every API: the file's own, else the configuration's") {
  const Sandbox sandbox;
  const fs::path tiny = sandbox.models() / "plain.gguf", cold = sandbox.models() / "cold.gguf";
  write_tiny_model(tiny, 1);
  rewrite(tiny, cold, [](models::GgufWriter& w) { w.set_f32("general.sampling.temp", 0.0f); });
  const Daemon daemon(sandbox, {"sampling.temperature=0.5", "sampling.plain.top_k=3"});
  ipc::Client client = daemon.connect();
  HttpClient http(daemon);
  const auto native = [&](const std::string& model,
                          const std::function<void(ipc::GenerateRequest&)>& change) {
    ipc::GenerateRequest request;
    request.model = model;
    request.prompt = "the";
    request.max_tokens = 24;
    request.seed = 11;
    request.ignore_eos = true;
    change(request);
    const Answer answer = run(client, request);
    REQUIRE_MESSAGE(answer.done.has_value(), why(answer));
    return answer.texts.at(0);
  };
  const auto over_http = [&](const std::string& model) {
    const HttpAnswer answer =
        http.ask("POST", "/v1/completions",
                 R"({"model":")" + model +
                     R"(","prompt":"the","max_tokens":24,"seed":11,"ignore_eos":true})");
    REQUIRE_MESSAGE(answer.status == 200, answer.body);
    return nlohmann::json::parse(answer.body)["choices"][0]["text"].get<std::string>();
  };
  const auto nothing = [](ipc::GenerateRequest&) {};
  CHECK(native("cold", nothing) == native("cold", [](auto& r) { r.temperature = 0.0f; }));
  CHECK(native("plain", nothing) == native("plain", [](auto& r) {
          r.temperature = 0.5f;
          r.top_k = 3;
          r.top_p = 0.95f;
        }));
  CHECK(native("plain", nothing) != native("plain", [](auto& r) { r.top_k = 40; }));
  for (const char* model : {"cold", "plain"}) CHECK(over_http(model) == native(model, nothing));
  const auto sampling_of = [&](const std::string& model) {
    return nlohmann::json::parse(http.ask("GET", "/v1/models/" + model).body)["hearth"]["sampling"];
  };
  CHECK(sampling_of("cold")["temperature"] == 0.0);
  CHECK(sampling_of("cold")["top_k"] == 40);
  CHECK(sampling_of("plain")["temperature"] == 0.5);
  CHECK(sampling_of("plain")["top_k"] == 3);
}

TEST_CASE("facts of a model file are known before it is loaded, and do not change") {
  const Sandbox sandbox;
  const fs::path tiny = sandbox.models() / "plain.gguf";
  write_tiny_model(tiny, 1, kWordsTemplate);
  rewrite(tiny, sandbox.models() / "cold.gguf",
          [](models::GgufWriter& w) { w.set_f32("general.sampling.temp", 0.0f); });
  // A file that this build refuses has no facts.
  std::ofstream(sandbox.models() / "page.gguf") << "<!DOCTYPE html><html></html>";
  const Daemon daemon(sandbox, {"sampling.temperature=0.5", "sampling.plain.top_k=3"});
  ipc::Client client = daemon.connect();
  std::map<std::string, ipc::ModelEntry> found;
  REQUIRE(eventually([&] {
    const auto reply = client.models();
    for (const ipc::ModelEntry& entry : reply->models) found[entry.name] = entry;
    return found["cold"].sampling && found["plain"].sampling;
  }));
  CHECK(found["cold"].sampling->temperature == 0.0f);
  CHECK(found["cold"].sampling->top_k == 40);
  CHECK(found["plain"].sampling->temperature == 0.5f);
  CHECK(found["plain"].sampling->top_k == 3);
  CHECK_FALSE(found["page"].sampling.has_value());
  HttpClient http(daemon);
  const auto listed = nlohmann::json::parse(http.ask("GET", "/v1/models/cold").body)["hearth"];
  CHECK(listed["sampling"]["temperature"] == 0.0);
  CHECK(listed["context_length"] == found["cold"].context_length);
  CHECK(run_hearth(sandbox, "models").out.find("context ") != std::string::npos);
  for (const char* model : {"cold", "plain"}) {
    CAPTURE(model);
    CHECK(found[model].state == "found");
    CHECK(found[model].architecture == "llama");
    CHECK(found[model].context_length > 0);
    CHECK(found[model].chat_template);
    REQUIRE(client.load({.model = model}).ok());
  }
  const auto reply = client.models();
  REQUIRE(reply.ok());
  for (const ipc::ModelEntry& loaded : reply->models) {
    if (loaded.name != "cold" && loaded.name != "plain") continue;
    CAPTURE(loaded.name);
    const ipc::ModelEntry& before = found[loaded.name];
    CHECK(loaded.state == "resident");
    CHECK(loaded.sampling == before.sampling);
    CHECK(loaded.context_length == before.context_length);
    CHECK(loaded.chat_template == before.chat_template);
    CHECK(loaded.file_type == before.file_type);
    CHECK(loaded.num_parameters == before.num_parameters);
  }
}

TEST_CASE("a model with a NaN among its weights is refused when it is loaded") {
  const Sandbox sandbox;
  const fs::path tiny = sandbox.path() / "tiny.gguf";
  write_tiny_model(tiny, 1);
  rewrite(tiny, sandbox.models() / "bad.gguf", kNoMore, "blk.1.ffn_up.weight");
  const Daemon daemon(sandbox);
  for (const char* words :
       {"load --no-start bad", "run --no-start bad the", "load --no-start bad"}) {
    CAPTURE(words);
    const CommandOutcome outcome = run_hearth(sandbox, words);
    CHECK(outcome.status == 1);
    CHECK_MESSAGE(
        outcome.err.find("bad.gguf: the weights are damaged: blk.1.ffn_up.weight [64,96]: "
                         "value 10 of 6144 is nan") != std::string::npos,
        outcome.err);
  }
}

TEST_CASE("a file that is not a model is refused with what it is, by every verb") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  std::ofstream(sandbox.models() / "page.gguf") << "<!DOCTYPE html><html></html>";
  const Daemon daemon(sandbox);
  for (const char* words : {"run --no-start page the", "inspect page", "load --no-start page"}) {
    CAPTURE(words);
    const CommandOutcome outcome = run_hearth(sandbox, words);
    CHECK(outcome.status == 1);
    CHECK_MESSAGE(outcome.err.find("web page (HTML)") != std::string::npos, outcome.err);
  }
}

TEST_CASE("measured step costs survive a restart; unmeasured times are not shown") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  const fs::path folder = sandbox.state() / "prices";
  const auto live = [&](const std::vector<std::string>& prompts) {
    Daemon daemon(sandbox, {"worker.prefix_restore=always"});
    ipc::Client client = daemon.connect();
    Answer last;
    for (const std::string& prompt : prompts) {
      last = run(client, seeded(5, 4, prompt));
      REQUIRE(last.done.has_value());
    }
    daemon.signal(SIGTERM);
    CHECK(WEXITSTATUS(daemon.wait_for_exit()) == 0);
    return *last.done;
  };
  const auto kept_us = [&](size_t position_class) {
    const nlohmann::json kept =
        nlohmann::json::parse(text_of(fs::directory_iterator(folder)->path()));
    CHECK(kept["made"].get<std::string>().starts_with("20"));
    return kept["prefill_token_us"][position_class].get<double>();
  };
  const std::string longest = std::string(1500, 'd');
  live({"a" + longest, "b" + longest, "c" + longest});
  for (size_t i = 0; i < 4; ++i) CHECK(kept_us(i) > 0);
  // A daemon that computed nothing of the kind knows it from the previous one.
  live({"the"});
  for (size_t i = 0; i < 4; ++i) CHECK(kept_us(i) > 0);
  // One that cannot know reports no saved time.
  fs::remove_all(folder);
  const ipc::DoneEvent restored = live({"c" + longest});
  CHECK(restored.usage.cached_disk_tokens > 1000);
  CHECK(restored.timings.saved_ms == 0);
}

TEST_CASE("the help of verbs that other programs implement fits 80 columns, too") {
  const Sandbox sandbox;
  for (const char* verb : {"inspect", "plan", "bench", "perplexity", "quantize", "convert",
                           "imatrix", "render", "cache", "cache ls", "pull"}) {
    CAPTURE(verb);
    const CommandOutcome help = run_hearth(sandbox, std::string(verb) + " --help");
    CHECK(help.status == 0);
    CHECK_FALSE(help.out.empty());
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(line.size() <= 80, line);
  }
  CHECK(run_hearth(sandbox, "plan --bandwith 1").err.find("did you mean --bandwidth?") !=
        std::string::npos);
}

TEST_CASE("hearthd --check refuses what hearthd refuses") {
  const Sandbox sandbox;
  const auto check = [&](const std::string& setting) {
    const pid_t pid =
        start_program({program("hearthd").string(), "--config", "/dev/null", "--check",
                       "--runtime-dir", sandbox.runtime().string(), "--set", setting},
                      sandbox.path() / "output");
    const std::optional<int> how = wait_for_exit(pid, kPatienceMs);
    return how.has_value() && WEXITSTATUS(*how) == 0;
  };
  CHECK(check("http.listen=127.0.0.1:8080"));
  for (const char* wrong : {"http.listen=0.0.0.0:8080", "http.listen=localhost:8080",
                            "http.listen=:8080", "http.allowed_origins=[\"*\"]"}) {
    CAPTURE(wrong);
    CHECK_FALSE(check(wrong));
  }
}

}  // namespace
}  // namespace hearth::e2e
