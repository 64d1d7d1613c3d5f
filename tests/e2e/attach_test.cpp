// Attaching to a request and forking one: over the socket, and by the command line.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "tests/e2e/daemon.h"
#include "tests/e2e/family_file.h"
#include "tests/e2e/tiny_model.h"

namespace hearth::e2e {
namespace {

/// Reads the answers for `id` until its end.
Answer follow(ipc::Client& client, const std::string& id) {
  Answer answer;
  const int64_t until = now_ms() + kPatienceMs;
  while (now_ms() < until) {
    auto next = client.next(100);
    REQUIRE(next.ok());
    if (!next->has_value() || (*next)->request_id != id) continue;
    if (const auto* delta = std::get_if<ipc::Delta>(&(*next)->what)) {
      const size_t sample = delta->header.sample;
      answer.texts.resize(std::max(answer.texts.size(), sample + 1));
      answer.ids.resize(std::max(answer.ids.size(), sample + 1));
      answer.texts[sample] += delta->text;
      answer.ids[sample].insert(answer.ids[sample].end(), delta->ids.begin(), delta->ids.end());
      continue;
    }
    const auto& event = std::get<ipc::Event>((*next)->what);
    if (const auto* done = std::get_if<ipc::DoneEvent>(&event)) {
      answer.done = *done;
      return answer;
    }
    if (const auto* error = std::get_if<ipc::ErrorEvent>(&event)) {
      answer.error = error->error;
      return answer;
    }
    answer.events.push_back(event);
  }
  FAIL("no end");
  return answer;
}

ipc::GenerateRequest with_ids(std::vector<int32_t> prompt, uint64_t seed, int32_t max_tokens) {
  ipc::GenerateRequest request = seeded(seed, max_tokens, "");
  request.prompt.clear();
  request.prompt_ids = std::move(prompt);
  return request;
}

/// Writes the model "tiny": that of all tests, or one with a state for each subcase.
bool write_one_of_the_models(const Sandbox& sandbox) {
  bool with_state = false;
  const auto write = [&](const char* name) {
    golden::FamilyModel model = golden::read_family(name);
    model.metadata[model.architecture + ".context_length"] = kTinyContext;
    write_family(model, sandbox.models() / "tiny.gguf");
    with_state = true;
  };
  SUBCASE("attention") {}
  SUBCASE("gated delta nets") { write("qwen35"); }
  SUBCASE("Mamba") { write("mamba"); }
  return with_state;
}

TEST_CASE("a detached request can be attached while it runs and after its end, from any token") {
  const Sandbox sandbox;
  write_one_of_the_models(sandbox);
  const Daemon daemon(sandbox);
  ipc::GenerateRequest request = seeded(5, 600);
  request.n = 2;
  Answer plain;
  {
    ipc::Client client = daemon.connect();
    plain = run(client, request);
    REQUIRE_MESSAGE(plain.done, why(plain));
  }
  request.detach = true;
  {
    ipc::Client client = daemon.connect();
    REQUIRE(client.start(request, "mine").ok());
    REQUIRE(eventually([&] {  // some of it was sent
      auto next = client.next(10);
      return next.ok() && next->has_value() && std::holds_alternative<ipc::Delta>((*next)->what);
    }));
  }
  ipc::Client client = daemon.connect();
  const auto first = client.attach({.id = "mine"});
  REQUIRE(first.ok());
  const Answer all = follow(client, *first);
  REQUIRE_MESSAGE(all.done, why(all));
  CHECK(all.ids == plain.ids);
  CHECK(all.texts == plain.texts);
  const auto late = client.attach({.id = "mine", .from = 300});
  REQUIRE(late.ok());
  const Answer end = follow(client, *late);
  REQUIRE(end.done);
  const auto& attached = std::get<ipc::AttachedEvent>(end.events.front());
  CHECK_FALSE(attached.live);
  for (size_t sample = 0; sample < 2; ++sample) {
    const auto from = static_cast<size_t>(attached.from[sample]);
    CHECK(from <= 300);
    CHECK(std::equal(end.ids[sample].begin(), end.ids[sample].end(),
                     plain.ids[sample].begin() + static_cast<ptrdiff_t>(from),
                     plain.ids[sample].end()));
    CHECK(plain.texts[sample].ends_with(end.texts[sample]));
  }
  const auto none = client.attach({.id = "unknown"});
  REQUIRE(none.ok());
  const Answer refused = follow(client, *none);
  REQUIRE(refused.error);
  CHECK(refused.error->code == ErrorCode::kNotFound);
}

/// A fork of the request "parent", read to its end.
Answer fork_of_parent(ipc::Client& client, int32_t from, int32_t n, int32_t max_tokens,
                      std::optional<uint64_t> seed) {
  const auto id = client.fork({.id = "parent",
                               .sample = 0,
                               .from = from,
                               .n = n,
                               .max_tokens = max_tokens,
                               .seed = seed,
                               .detach = false});
  REQUIRE(id.ok());
  Answer fork = follow(client, *id);
  REQUIRE_MESSAGE(fork.done, why(fork));
  return fork;
}

TEST_CASE("a fork gives the text of a request of its own and shares the existing blocks") {
  const Sandbox sandbox;
  const bool with_state = write_one_of_the_models(sandbox);
  const Daemon daemon(sandbox, {"worker.speculation=lookup"});
  ipc::Client client = daemon.connect();
  const std::vector<int32_t> prompt = {3, 5, 7, 9, 11, 13, 8};
  REQUIRE(client.start(with_ids(prompt, 5, 15000), "parent").ok());
  std::vector<int32_t> written;
  REQUIRE(eventually([&] {
    auto next = client.next(10);
    if (!next.ok() || !next->has_value()) return false;
    if (const auto* delta = std::get_if<ipc::Delta>(&(*next)->what)) {
      written.insert(written.end(), delta->ids.begin(), delta->ids.end());
    }
    return written.size() >= 60;
  }));
  for (const int32_t from : {1, 24, 41, 60}) {
    CAPTURE(from);
    ipc::Client other = daemon.connect();
    const Answer fork = fork_of_parent(other, from, 2, 50, 77);
    const auto size = static_cast<int32_t>(prompt.size()) + from;
    CHECK(fork.done->usage.prompt_tokens == size);
    // A state is kept at borders of blocks of 16 tokens only.
    const auto cached = fork.done->usage.cached_tokens;
    CHECK((with_state ? cached % 16 == 0 && cached < size : cached == size - 1));
    std::vector<int32_t> whole = prompt;
    whole.insert(whole.end(), written.begin(), written.begin() + from);
    ipc::GenerateRequest own = with_ids(whole, 77, 50);
    own.n = 2;
    own.cache = "off";
    const Answer alone = run(other, own);
    REQUIRE_MESSAGE(alone.done, why(alone));
    CHECK(fork.ids == alone.ids);
    CHECK(fork.texts == alone.texts);
  }
  // Of the current state, and of a request that has ended.
  ipc::Client other = daemon.connect();
  const Answer present = fork_of_parent(other, -1, 1, 8, {});
  CHECK(present.done->usage.prompt_tokens >= static_cast<int32_t>(prompt.size()) + 60);
  CHECK(present.ids[0].size() == 8);
  REQUIRE(client.cancel("parent").ok());
  const Answer parent = follow(client, "parent");
  REQUIRE(parent.done);
  const Answer ended = fork_of_parent(other, 24, 1, 50, 78);
  std::vector<int32_t> whole = prompt;
  whole.insert(whole.end(), written.begin(), written.begin() + 24);
  ipc::GenerateRequest own = with_ids(whole, 78, 50);
  own.cache = "off";
  CHECK(ended.ids == run(other, own).ids);
  CHECK(ended.done->usage.cached_tokens > 0);
}

TEST_CASE("a fork continues inside the grammar that its parent began") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest request = seeded(5, 400);
  request.ignore_eos = false;
  request.grammar = R"(root ::= "[" [a-z]{30} "," [0-9]{20} "]")";
  REQUIRE(client.start(request, "parent").ok());
  const Answer parent = follow(client, "parent");
  REQUIRE_MESSAGE(parent.done, why(parent));
  CHECK(parent.done->finish_reasons == std::vector<std::string>{"stop"});
  const auto half = static_cast<int32_t>(parent.ids[0].size() / 2);
  const Answer fork = fork_of_parent(client, half, 1, 100, 99);
  CHECK(fork.done->finish_reasons == std::vector<std::string>{"stop"});
  // The beginning of the parent's text, up to where the fork's differs.
  const std::string& whole = parent.texts[0];
  const std::string& rest = fork.texts[0];
  REQUIRE(whole.size() == 53);
  REQUIRE(rest.size() < whole.size());
  const std::string text = whole.substr(0, whole.size() - rest.size()) + rest;
  CHECK(text[0] == '[');
  for (size_t i = 1; i <= 30; ++i) CHECK((text[i] >= 'a' && text[i] <= 'z'));
  CHECK(text[31] == ',');
  for (size_t i = 32; i < 52; ++i) CHECK((text[i] >= '0' && text[i] <= '9'));
  CHECK(text[52] == ']');
  CHECK(text != whole);
}

TEST_CASE("hearth run --detach, attach and fork") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  const auto hearth = [&](std::vector<std::string> words, int want = 0) {
    std::vector<std::string> argv = {"/usr/bin/env",
                                     "HEARTH_RUNTIME_DIR=" + daemon.runtime().string(),
                                     program("hearth").string()};
    argv.insert(argv.end(), words.begin(), words.end());
    const auto output = sandbox.path() / "output";
    std::filesystem::remove(output);  // it would be appended to
    const auto status = wait_for_exit(start_program(argv, output), kPatienceMs);
    REQUIRE(status);
    const std::string text = text_of(output);
    CHECK_MESSAGE(WEXITSTATUS(*status) == want, text);
    return text;
  };
  const std::string plain =
      hearth({"run", "tiny", "--seed", "7", "--max-tokens", "40", "--ids", "the"});
  std::string id =
      hearth({"run", "tiny", "--seed", "7", "--max-tokens", "40", "--ids", "--detach", "the"});
  REQUIRE_FALSE(id.empty());
  REQUIRE(id.back() == '\n');
  id.pop_back();
  CHECK(hearth({"attach", id, "--ids"}) == plain);
  CHECK(hearth({"fork", id, "--ids", "--from", "0", "--seed", "7"}) == plain);
  hearth({"attach", "nonesuch"}, 1);
  hearth({"fork", "nonesuch"}, 1);
}

}  // namespace
}  // namespace hearth::e2e
