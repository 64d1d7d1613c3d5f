// hearth chat on a terminal, key by key.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/e2e/daemon.h"
#include "tests/e2e/terminal.h"
#include "tests/e2e/tiny_model.h"

namespace hearth::e2e {
namespace {

using Json = nlohmann::json;

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}";

struct Fixture {
  Sandbox sandbox;
  Fixture() { write_tiny_model(sandbox.models() / "tiny.gguf", 1, kTemplate); }

  std::map<std::string, std::string> environment(const Daemon& daemon) const {
    return {{"HEARTH_RUNTIME_DIR", daemon.runtime().string()},
            {"XDG_STATE_HOME", (sandbox.path() / "chat-state").string()},
            {"TERM", "xterm"},
            {"LC_ALL", "C.UTF-8"},
            {"EDITOR", "true"}};
  }
  std::filesystem::path folder() const { return sandbox.path() / "chat-state/hearth/chats"; }
  Json saved(const std::string& name) const {
    return Json::parse(text_of(folder() / (name + ".json")), nullptr, false);
  }
};

std::vector<std::string> chat(const std::vector<std::string>& more) {
  std::vector<std::string> argv = {program("hearth").string(), "chat", "--no-start"};
  argv.insert(argv.end(), more.begin(), more.end());
  return argv;
}

mode_t mode_of(const std::filesystem::path& path) {
  struct stat found {};
  REQUIRE(::stat(path.c_str(), &found) == 0);
  return found.st_mode & 0777;
}

TEST_CASE("chat: a conversation is held, edited and saved") {
  const Fixture f;
  const Daemon daemon(f.sandbox);
  Terminal t(chat({"tiny", "--name", "first", "--max-tokens", "12", "--seed", "3", "--ignore-eos",
                   "--system", "be brief"}),
             f.environment(daemon));
  REQUIRE_MESSAGE(t.wait_for("/help shows the commands."), t.seen());
  REQUIRE(t.wait_for("> "));
  t.type("the abc\r");
  REQUIRE_MESSAGE(t.wait_for("\n> "), t.seen());
  Json one = f.saved("first");
  REQUIRE(one["messages"].size() == 2);
  CHECK(one["model"] == "tiny");
  CHECK(one["system"] == "be brief");
  CHECK(one["messages"][0]["content"] == "the abc");
  CHECK(one["messages"][1]["role"] == "assistant");
  CHECK(mode_of(f.folder() / "first.json") == 0600);
  CHECK(mode_of(f.folder()) == 0700);

  t.type("/stats\r");
  CHECK(t.wait_for("seed 3"));
  CHECK(t.wait_for("> "));
  // The same question with the same seed has the same answer; edited, it is another question.
  t.type("/retry\r");
  REQUIRE(t.wait_for("\n> "));
  CHECK(f.saved("first") == one);
  t.type("/edit a he\r");
  REQUIRE(t.wait_for("\n> "));
  CHECK(f.saved("first")["messages"][0]["content"] == "a he");
  CHECK(f.saved("first")["messages"].size() == 2);
  // Several lines, by a backslash and between quotes.
  t.type("one\\\r");
  REQUIRE(t.wait_for("... "));
  t.type("two\r");
  REQUIRE(t.wait_for("\n> "));
  CHECK(f.saved("first")["messages"][2]["content"] == "one\ntwo");
  t.type("\"\"\"\r");
  REQUIRE(t.wait_for("... "));
  t.type("three\r");
  REQUIRE(t.wait_for("... "));
  t.type("\"\"\"\r");
  REQUIRE(t.wait_for("\n> "));
  CHECK(f.saved("first")["messages"][4]["content"] == "three");
  t.type("/undo\r");
  REQUIRE(t.wait_for("> "));
  // Ctrl-C drops an unfinished line, the arrow brings an earlier one back, edited with a key.
  t.type("dropped\x03");
  REQUIRE(t.wait_for("\n"));
  REQUIRE(t.wait_for("> "));
  t.type("/nonesuch\r");
  CHECK(t.wait_for("no such command"));
  REQUIRE(t.wait_for("> "));
  t.type("\x1b[A\x1b[A\x1b[A");  // over /nonesuch and /undo, to /edit a he
  REQUIRE_MESSAGE(t.wait_for("/edit a he"), t.seen());
  t.type("y\r");
  REQUIRE(t.wait_for("\n> "));
  const Json last = f.saved("first");
  CHECK(last["messages"][last["messages"].size() - 2]["content"] == "a hey");
  t.type("\x04");  // Ctrl-D
  const int status = t.wait_for_exit();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(mode_of(f.folder() / ".history") == 0600);

  Terminal list(chat({"--list"}), f.environment(daemon));
  CHECK(WEXITSTATUS(list.wait_for_exit()) == 0);
  CHECK(list.seen().find("first ") != std::string::npos);
}

TEST_CASE("run without words on a terminal is a conversation if the model has a template") {
  const Fixture f;
  write_tiny_model(f.sandbox.models() / "plain.gguf", 1);
  const Daemon daemon(f.sandbox);
  const auto run_words = [](const std::string& model) {
    return std::vector<std::string>{program("hearth").string(),
                                    "run",
                                    "--no-start",
                                    model,
                                    "--max-tokens",
                                    "5",
                                    "--ignore-eos"};
  };
  {
    Terminal t(run_words("tiny"), f.environment(daemon));
    REQUIRE_MESSAGE(t.wait_for("/help shows the commands."), t.seen());
    REQUIRE(t.wait_for("> "));
    t.type("the\r");
    REQUIRE_MESSAGE(t.wait_for("\n> "), t.seen());
    t.type("/quit\r");
    CHECK(WEXITSTATUS(t.wait_for_exit()) == 0);
  }
  {
    Terminal t(run_words("plain"), f.environment(daemon));  // begins by itself
    CHECK(WEXITSTATUS(t.wait_for_exit()) == 0);
    CHECK_MESSAGE(t.seen().find("prompt 1 (cached 0)") != std::string::npos, t.seen());
  }
  Terminal t(chat({"tiny", "the", "abc", "--name", "asked", "--max-tokens", "5", "--ignore-eos"}),
             f.environment(daemon));
  REQUIRE_MESSAGE(t.wait_for("\n> "), t.seen());  // it has answered, and stays
  CHECK(f.saved("asked")["messages"][0]["content"] == "the abc");
  CHECK(f.saved("asked")["messages"].size() == 2);
  t.type("/quit\r");
  CHECK(WEXITSTATUS(t.wait_for_exit()) == 0);
}

TEST_CASE("Ctrl-C stops the answer and not the program, and a conversation survives kill -9") {
  const Fixture f;
  const Daemon daemon(f.sandbox);
  {
    Terminal t(chat({"tiny", "--name", "long", "--ignore-eos"}), f.environment(daemon));
    REQUIRE_MESSAGE(t.wait_for("> "), t.seen());
    t.type("the\r");
    // Its own words, then some of the answer.
    const auto answered = [&t] { return t.seen().size() > 400; };
    REQUIRE(eventually([&] { return t.wait_for("e") && answered(); }));
    t.type("\x03");
    REQUIRE_MESSAGE(t.wait_for("\n> "), t.seen());
    const Json saved = f.saved("long");
    REQUIRE(saved["messages"].size() == 2);
    CHECK(saved["messages"][1]["cut"] == true);
    CHECK_FALSE(saved["messages"][1]["content"].get<std::string>().empty());
    t.type("abc\r");
    REQUIRE(eventually([&] { return f.saved("long")["messages"].size() == 3; }));
    ::kill(t.pid(), SIGKILL);
    t.wait_for_exit();
  }
  CHECK(daemon.wait_until_idle());  // the question of a client that has left is cancelled
  Terminal t(chat({"--resume", "--max-tokens", "5", "--ignore-eos"}), f.environment(daemon));
  REQUIRE_MESSAGE(t.wait_for("/retry asks it again"), t.seen());
  REQUIRE(t.wait_for("> "));
  t.type("/retry\r");
  REQUIRE(t.wait_for("\n> "));
  const Json saved = f.saved("long");
  REQUIRE(saved["messages"].size() == 4);
  CHECK(saved["messages"][2]["content"] == "abc");
  CHECK_FALSE(saved["messages"][3].contains("cut"));
  t.type("/quit\r");
  CHECK(WEXITSTATUS(t.wait_for_exit()) == 0);

  Terminal none(chat({"--resume", "nonesuch"}), f.environment(daemon));
  CHECK(WEXITSTATUS(none.wait_for_exit()) == 1);
  CHECK(none.seen().find("no conversation 'nonesuch'") != std::string::npos);
}

}  // namespace
}  // namespace hearth::e2e
