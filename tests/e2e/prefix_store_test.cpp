// Prefixes that survive the process that computed them: the same tokens cold, in memory, from disk
// after an orderly restart and after kill -9; and a bad disk costs only time.

#include <doctest/doctest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "daemon.h"
#include "http_client.h"
#include "tests/skip.h"
#include "tiny_model.h"

namespace hearth::e2e {
namespace fs = std::filesystem;
namespace {

const std::vector<std::string> kAlways = {"worker.prefix_restore=always"};

/// Distinct prompts of 1 to 128 tokens (the tiny model has at most one per letter).
std::vector<ipc::GenerateRequest> prompts(int count) {
  std::mt19937 random(11);
  std::vector<ipc::GenerateRequest> out;
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (size_t length = 1 + random() % 127; text.size() < length;) {
      text += static_cast<char>('a' + random() % 26);
      if (random() % 6 == 0) text += ' ';
    }
    out.push_back(seeded(static_cast<uint64_t>(i) + 1, 6, text));
  }
  return out;
}

std::vector<int32_t> ids_of(ipc::Client& client, const ipc::GenerateRequest& request,
                            ipc::Usage* usage = nullptr) {
  const Answer answer = run(client, request);
  REQUIRE_MESSAGE(answer.done.has_value(), why(answer));
  if (usage != nullptr) *usage = answer.done->usage;
  return answer.ids.at(0);
}

ipc::StoreSnapshot store_of(const Daemon& daemon) {
  const ipc::StatsReply reply = daemon.stats();
  return reply.workers.empty() ? ipc::StoreSnapshot{} : reply.workers.front().snapshot.store;
}

bool wait_until_saved(const Daemon& daemon, uint64_t chunks) {
  return eventually([&] { return store_of(daemon).chunks_saved >= chunks; }, 50);
}

/// All prompts again; returns how many tokens came from disk. `whole`: only what must be computed
/// is computed.
int32_t ask_all(const Daemon& daemon, const std::vector<ipc::GenerateRequest>& requests,
                const std::vector<std::vector<int32_t>>& want, bool whole = true) {
  ipc::Client client = daemon.connect();
  int32_t from_disk = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    CAPTURE(i);
    ipc::Usage usage;
    CHECK(ids_of(client, requests[i], &usage) == want[i]);
    from_disk += usage.cached_disk_tokens;
    // All full blocks before the last token, if there are any.
    const int32_t most = (usage.prompt_tokens - 1) / 16 * 16;
    CHECK((whole ? usage.cached_tokens == most : usage.cached_tokens <= most));
  }
  return from_disk;
}

}  // namespace

TEST_CASE(
    "the same tokens cold, from memory, from disk after a restart, partly computed, and after kill "
    "-9") {
  const Sandbox sandbox;
  const std::vector<ipc::GenerateRequest> requests = prompts(tests::full_counts() ? 1000 : 64);
  std::vector<std::vector<int32_t>> cold;
  uint64_t chains = 0;
  {
    Daemon daemon(sandbox, kAlways);
    ipc::Client client = daemon.connect();
    for (ipc::GenerateRequest request : requests) {
      ipc::Usage usage;
      request.cache = "off";
      cold.push_back(ids_of(client, request, &usage));
      CHECK(usage.cached_tokens == 0);
      request.cache = "disk";
      CHECK(ids_of(client, request) == cold.back());
      if (usage.prompt_tokens + usage.output_tokens > 16) ++chains;
    }
    CHECK(ask_all(daemon, requests, cold) == 0);  // in memory
    REQUIRE(wait_until_saved(daemon, chains / 2));
    daemon.signal(SIGTERM);
    daemon.wait_for_exit();
  }
  int32_t tokens = 0;
  {
    Daemon daemon(sandbox, kAlways);
    tokens = ask_all(daemon, requests, cold);
    CHECK(tokens > 1000);
    CHECK(eventually([&] { return store_of(daemon).state == "writing"; }, 50));
    // The worker dies, and the next one starts with the prefixes on disk.
    ::kill(daemon.wait_for_worker(), SIGKILL);
    CHECK(ask_all(daemon, requests, cold) == tokens);
    daemon.signal(SIGKILL);
    daemon.wait_for_exit();
  }
  {
    // The beginning is computed while the end is loaded: how much is loaded in time depends on the
    // machine.
    Daemon daemon(sandbox, {"worker.prefix_restore=both"});
    CHECK(ask_all(daemon, requests, cold, false) <= tokens);
  }
  Daemon daemon(sandbox, kAlways);
  CHECK(ask_all(daemon, requests, cold) == tokens);
}

TEST_CASE("a request, and the configuration, may keep a prompt off the disk") {
  const Sandbox sandbox;
  const fs::path folder = sandbox.state() / "prefix";
  ipc::GenerateRequest request = seeded(1, 4, std::string(100, 'a'));
  {
    Daemon daemon(sandbox, {"worker.prefix_restore=always", "worker.prefix_store=false"});
    ipc::Client client = daemon.connect();
    ids_of(client, request);
    CHECK(store_of(daemon).state == "off");
    CHECK_FALSE(fs::exists(folder));
    daemon.signal(SIGTERM);
    daemon.wait_for_exit();
  }
  {
    Daemon daemon(sandbox, kAlways);
    ipc::Client client = daemon.connect();
    request.cache = "memory";
    ids_of(client, request);
    request.cache = "off";
    ids_of(client, request);
    daemon.signal(SIGTERM);
    daemon.wait_for_exit();
  }
  Daemon daemon(sandbox, kAlways);
  ipc::Client client = daemon.connect();
  ipc::Usage usage;
  request.cache = "disk";
  ids_of(client, request, &usage);
  CHECK(usage.cached_tokens == 0);
  CHECK(fs::exists(folder));
  CHECK((fs::status(folder).permissions() & fs::perms::mask) == fs::perms::owner_all);
}

TEST_CASE("a damaged database, and a state folder that is a file, cost time and nothing else") {
  const Sandbox sandbox;
  const ipc::GenerateRequest request = seeded(5, 6, std::string(90, 'b'));
  std::vector<int32_t> want;
  {
    Daemon daemon(sandbox, kAlways);
    ipc::Client client = daemon.connect();
    want = ids_of(client, request);
    REQUIRE(wait_until_saved(daemon, 1));
    daemon.signal(SIGTERM);
    daemon.wait_for_exit();
  }
  for (const auto& entry : fs::directory_iterator(sandbox.state() / "prefix")) {
    if (entry.path().extension() != ".db") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(0);
    file << std::string(70'000, '#');
  }
  {
    Daemon daemon(sandbox, kAlways);
    ipc::Client client = daemon.connect();
    ipc::Usage usage;
    CHECK(ids_of(client, request, &usage) == want);
    CHECK(usage.cached_tokens == 0);
    REQUIRE(wait_until_saved(daemon, 1));  // a new database replaced it
    daemon.signal(SIGTERM);
    daemon.wait_for_exit();
  }
  fs::remove_all(sandbox.state());
  std::ofstream(sandbox.state()) << "a file";
  {
    Daemon daemon(sandbox, kAlways);
    ipc::Client client = daemon.connect();
    CHECK(ids_of(client, request) == want);
    REQUIRE(eventually([&] { return store_of(daemon).state == "degraded"; }, 50));
    CHECK_FALSE(store_of(daemon).last_error.empty());
    daemon.signal(SIGTERM);
    daemon.wait_for_exit();
  }
}

TEST_CASE(
    "two versions of a model file, of equal size and time: neither gets the other's prefixes") {
  const Sandbox sandbox;
  const fs::path served = sandbox.models() / "tiny.gguf";
  const std::vector<fs::path> versions = {sandbox.path() / "1.gguf", sandbox.path() / "2.gguf"};
  write_tiny_model(versions[0], 1);
  write_tiny_model(versions[1], 2);
  REQUIRE(fs::file_size(versions[0]) == fs::file_size(versions[1]));
  const auto time = fs::last_write_time(versions[0]);
  const auto serve = [&](size_t version, bool in_place) {
    if (!in_place) fs::remove(served);
    std::ofstream(served, std::ios::binary) << text_of(versions[version]);
    fs::last_write_time(served, time);
  };
  ipc::GenerateRequest request = seeded(5, 8, std::string(200, 'd'));
  std::vector<std::vector<int32_t>> cold;
  for (size_t version = 0; version < 2; ++version) {
    serve(version, false);
    const Daemon daemon(sandbox, {"worker.prefix_store=false"});
    ipc::Client client = daemon.connect();
    cold.push_back(ids_of(client, request));
  }
  REQUIRE(cold[0] != cold[1]);
  serve(0, false);
  const Daemon daemon(sandbox, kAlways);
  ipc::Client client = daemon.connect();
  CHECK(ids_of(client, request) == cold[0]);
  REQUIRE(wait_until_saved(daemon, 1));
  bool saved_before = false;  // of the second version
  for (const bool in_place : {false, true}) {
    CAPTURE(in_place);
    for (const size_t version : {1, 0}) {
      CAPTURE(version);
      REQUIRE(client.unload({.model = "tiny"}).ok());
      serve(version, in_place);
      ipc::Usage usage;
      CHECK(ids_of(client, request, &usage) == cold[version]);
      CHECK((usage.cached_disk_tokens > 0) == (version == 0 || saved_before));
      if (version == 1 && !saved_before) saved_before = wait_until_saved(daemon, 1);
    }
  }
  CHECK(saved_before);
}

TEST_CASE("hearth cache lists and removes entries while the daemon runs") {
  const Sandbox sandbox;
  const ipc::GenerateRequest request = seeded(5, 6, std::string(90, 'c'));
  Daemon daemon(sandbox, kAlways);
  ipc::Client client = daemon.connect();
  ids_of(client, request);
  REQUIRE(wait_until_saved(daemon, 1));
  const auto cache = [&](std::vector<std::string> words, int want = 0) {
    const fs::path output = sandbox.path() / "cache-out";
    fs::remove(output);
    words.insert(words.begin(), {program("hearth").string(), "cache"});
    words.insert(words.end(), {"--state-dir", sandbox.state().string()});
    const std::optional<int> status = wait_for_exit(start_program(words, output), kPatienceMs);
    REQUIRE(status.has_value());
    const std::string text = text_of(output);
    CHECK_MESSAGE(WEXITSTATUS(*status) == want, text);
    return text;
  };
  const std::string listed = cache({"ls"});
  CHECK(listed.starts_with("tiny: 1 chunks\n"));
  CHECK(listed.find("  to token ") != std::string::npos);
  CHECK(cache({"stats"}).starts_with("tiny: 1 chunks, "));
  CHECK(cache({"verify"}).starts_with("tiny: 1 chunks agree with their checksums, 0 did not"));
  CHECK(cache({"ls", "--json"}).find("\"end_token\":") != std::string::npos);
  const std::string name = listed.substr(listed.find('\n') + 3, 12);
  CHECK(cache({"ls", "--show-text", "--model-dir", sandbox.models().string()}).find("\"ccc") !=
        std::string::npos);
  CHECK(cache({"pin", name, "--ttl-s", "100"}) == "pinned 1 chunks for 100 s\n");
  CHECK(cache({"ls"}).find("  pinned") != std::string::npos);
  CHECK(cache({"pin", name, "--pinned-bytes", "1"}) == "pinned 1 chunks for 3600 s\n");  // already
  CHECK(cache({"unpin", name}) == "unpinned 1 chunks\n");
  CHECK(cache({"pin", name, "--pinned-bytes", "1"}, 1).find("not pinned") != std::string::npos);
  CHECK(cache({"ls"}).find("  pinned") == std::string::npos);
  CHECK(cache({"rm", "ffffffffffff"}, 1).find("nothing of that name") != std::string::npos);
  cache({"rm"}, 1);
  CHECK(cache({"rm", name, "--wipe"}) == "removed 1 chunks, and wiped\n");
  CHECK(cache({"ls"}) == "tiny: 0 chunks\n");
  cache({"compact"});
  CHECK(ids_of(client, request).size() == 6);
}

TEST_CASE("a client asks the daemon for cache entries, miss reasons, pins and removal") {
  const Sandbox sandbox;
  ipc::GenerateRequest request = seeded(5, 6, std::string(90, 'd'));
  Daemon daemon(sandbox, kAlways);
  ipc::Client client = daemon.connect();
  const auto ask = [&](const std::string& op, std::vector<std::string> names = {}) {
    ipc::CacheRequest cache;
    cache.op = op;
    cache.names = std::move(names);
    cache.show_text = op == "ls";
    const Result<ipc::CacheReply> reply = client.cache(cache);
    REQUIRE_MESSAGE(reply.ok(), reply.error().message);
    CHECK_MESSAGE(reply->ok, reply->text);
    return reply->text;
  };
  const auto why = [&](const std::string& id) {
    REQUIRE(client.start(request, id).ok());
    REQUIRE(collect(client, 1).at(id).done.has_value());
    return ask("why", {id});
  };
  const auto cache_error = [&](const std::string& id) {
    ipc::CacheRequest cache;
    cache.op = "why";
    cache.names = {id};
    return client.cache(cache).error().code;
  };
  request.cache_keep_s = 1000;
  CHECK(why("first").find("missed from token 0 on: nothing that begins like it was kept") !=
        std::string::npos);
  CHECK(why("second").find("missed nothing") != std::string::npos);
  REQUIRE(wait_until_saved(daemon, 1));
  std::string listed;
  REQUIRE(eventually([&] {
    listed = ask("ls");
    return listed.find("  pinned") != std::string::npos;
  }));
  CHECK(listed.starts_with("tiny: 1 chunks\n"));
  CHECK(listed.find("\"ddd") != std::string::npos);
  request.prompt = std::string(60, 'd') + std::string(30, 'e');
  const std::string third = why("third");
  CHECK(third.find("the stored prefix continues with other tokens") != std::string::npos);
  // And the text around the position, which is the caller's own.
  CHECK_MESSAGE(third.find("after \"dddddddd\" it reads \"d") != std::string::npos, third);
  CHECK_MESSAGE(third.find("de") != std::string::npos, third);
  CHECK(cache_error("tenth") == ErrorCode::kNotFound);
  const std::string name = listed.substr(listed.find('\n') + 3, 12);
  CHECK(ask("unpin", {name}) == "unpinned 1 chunks\n");
  CHECK(ask("rm", {name}).starts_with("removed "));
  CHECK(ask("ls").find(name) == std::string::npos);
  CHECK(ask("stats").starts_with("tiny: "));

  // The command line.
  const fs::path text = sandbox.path() / "text";
  std::ofstream(text) << std::string(90, 'w');
  const fs::path output = sandbox.path() / "output";
  ::setenv("HEARTH_RUNTIME_DIR", daemon.runtime().c_str(), 1);
  ::setenv("XDG_STATE_HOME", (sandbox.path() / "nothing").c_str(), 1);
  const auto hearth = [&](std::vector<std::string> words) {
    fs::remove(output);
    words.insert(words.begin(), {program("hearth").string(), "cache"});
    const std::optional<int> status = wait_for_exit(start_program(words, output), kPatienceMs);
    CHECK_MESSAGE((status.has_value() && *status == 0), text_of(output));
    return text_of(output);
  };
  const std::vector<std::string> warm = {"warm",  "tiny", text.string(),
                                         "--ttl", "1000", "--no-start"};
  CHECK(hearth(warm).find("0 of them were cached") != std::string::npos);
  CHECK(hearth(warm).find(" 0 of them were cached") == std::string::npos);
  CHECK(hearth({"why", "third"}).find("the stored prefix continues with other tokens") !=
        std::string::npos);
  CHECK(hearth({"stats"}).starts_with("tiny is writing: "));
  ::unsetenv("HEARTH_RUNTIME_DIR");
  ::unsetenv("XDG_STATE_HOME");
}

TEST_CASE("a cache marker keeps its message and everything before it, and nothing after it") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1,
                   "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}");
  const Daemon daemon(sandbox, kAlways);
  ipc::Client client = daemon.connect();
  // Tokens of more than a chunk each, however many letters make one.
  const auto message = [](const char* role, char letter, const char* mark) {
    std::string content;
    while (content.size() < 3000) content += {letter, static_cast<char>(letter + 1), ' '};
    return std::string(R"({"role":")") + role + R"(","content":")" + content + "\"" + mark + "}";
  };
  const auto pinned = [&] {  // the first chunk, and the last
    ipc::CacheRequest cache;
    cache.op = "ls";
    cache.as_json = true;
    const Result<ipc::CacheReply> reply = client.cache(cache);
    REQUIRE_MESSAGE(reply.ok(), reply.error().message);
    const auto entries = nlohmann::json::parse(reply->text);
    int64_t first = 0, last = 0, end = 0;
    for (const auto& entry : entries) {
      if (entry["first_token"] == 0) first = entry["pinned_until_s"];
      if (entry["end_token"] < end) continue;
      end = entry["end_token"];
      last = entry["pinned_until_s"];
    }
    return std::pair(first, last);
  };
  ipc::GenerateRequest request = seeded(1, 2, "");
  request.messages.text = "[" + message("system", 'a', R"(,"cache_keep_s":86400)") + "," +
                          message("user", 'c', "") + "]";
  ids_of(client, request);
  REQUIRE(eventually([&] { return pinned().first > 0; }, 50));
  CHECK(pinned().second == 0);
  const int64_t until = pinned().first;

  // The same in another API's form; a shorter marker on more does not shorten the first one's time.
  HttpClient http(daemon);
  const char* mark = R"(,"cache_control":{"type":"ephemeral","ttl":"1h"})";
  const HttpAnswer answer =
      http.ask("POST", "/v1/messages",
               R"({"model":"tiny","max_tokens":2,"system":)" +
                   nlohmann::json::parse(message("system", 'a', ""))["content"].dump() +
                   R"(,"messages":[)" + message("user", 'c', mark) + "]}");
  REQUIRE_MESSAGE(answer.status == 200, answer.body);
  CHECK(nlohmann::json::parse(answer.body)["usage"]["cache_read_input_tokens"] > 1000);
  REQUIRE(eventually([&] { return pinned().second > 0; }, 50));
  CHECK(pinned().second < until);
  CHECK(pinned().first == until);
}

TEST_CASE("the configuration limits which owners may share an owner's prefixes") {
  const Sandbox sandbox;
  const ipc::GenerateRequest request = seeded(5, 6, std::string(90, 'f'));
  ipc::Usage usage;
  {
    const std::string mine = "cache_owners.\"uid:" + std::to_string(::geteuid()) + "\"";
    Daemon daemon(sandbox, {"worker.prefix_restore=always", "cache.tier=off", mine + "=memory"});
    ipc::Client client = daemon.connect();
    ids_of(client, request);
    ids_of(client, request, &usage);
    CHECK(usage.cached_tokens > 0);
    ipc::GenerateRequest less = request;
    less.cache = "off";
    ids_of(client, less, &usage);
    CHECK(usage.cached_tokens == 0);
    daemon.signal(SIGTERM);
    daemon.wait_for_exit();
  }
  // The disk was requested, and not allowed.
  Daemon daemon(sandbox, kAlways);
  ipc::Client client = daemon.connect();
  ids_of(client, request, &usage);
  CHECK(usage.cached_tokens == 0);
}

namespace {

/// Runs the sandbox's copy of hearth as another user, to its end; its output goes to `output`.
bool succeeds_as_other(const Sandbox& sandbox, const std::vector<std::string>& words,
                       const fs::path& output) {
  std::vector<std::string> argv = {"/usr/bin/setpriv",
                                   "--reuid",
                                   "65534",
                                   "--regid",
                                   "0",
                                   "--clear-groups",
                                   (sandbox.path() / "hearth").string()};
  argv.insert(argv.end(), words.begin(), words.end());
  const std::optional<int> status = wait_for_exit(start_program(argv, output), kPatienceMs);
  return status.has_value() && *status == 0;
}

/// The output of `hearth run` for another user that requests two tokens after `prompt`.
std::string prefix_answer_to_other(const Sandbox& sandbox, const Daemon& daemon,
                                   const std::string& prompt, const std::string& share = "") {
  const fs::path output = sandbox.path() / "other-out";
  ::setenv("HEARTH_RUNTIME_DIR", daemon.runtime().c_str(), 1);
  const bool good = succeeds_as_other(sandbox,
                                      {"run", "tiny", "--json", "--no-start", "--temperature", "0",
                                       "--max-tokens", "2", "--cache-share", share, prompt},
                                      output);
  ::unsetenv("HEARTH_RUNTIME_DIR");
  const std::string text = text_of(output);
  REQUIRE_MESSAGE(good, text);
  return text;
}

double number_in(const std::string& text, const std::string& name) {
  const std::string key = "\"" + name + "\":";
  const size_t at = text.rfind(key);
  REQUIRE_MESSAGE(at != std::string::npos, text);
  return std::stod(text.substr(at + key.size()));
}

/// Needs root. The other user can reach only the folder of temporary files: hearth is copied into
/// the sandbox, as the build may be in root's own folder.
bool another_user_can_be_played(const Sandbox& sandbox) {
  if (::geteuid() != 0 || !fs::exists("/usr/bin/setpriv")) return false;
  fs::permissions(sandbox.path(),
                  fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec);
  fs::copy_file(program("hearth"), sandbox.path() / "hearth");
  return succeeds_as_other(sandbox, {"--version"}, sandbox.path() / "other-probe");
}

}  // namespace

TEST_CASE("two users: what one has computed is a miss for the other, in memory and on disk") {
  const Sandbox sandbox;
  if (!another_user_can_be_played(sandbox))
    HEARTH_SKIP("needs root, setpriv, and a TMPDIR that others may reach");
  const std::string prompt(100, 'g');
  const auto cached_for_other = [&](const Daemon& daemon) {
    return number_in(prefix_answer_to_other(sandbox, daemon, prompt), "cached_tokens");
  };
  const ipc::GenerateRequest request = seeded(1, 2, prompt);
  {
    Daemon daemon(sandbox, kAlways, Company::kAlone);
    ipc::Client client = daemon.connect();
    ids_of(client, request);
    CHECK(cached_for_other(daemon) == 0);
    CHECK(cached_for_other(daemon) > 0);  // his own by now
    REQUIRE(wait_until_saved(daemon, 2));
    // The cache verbs of a client of another user's daemon go through that daemon and show the
    // client's own prefixes.
    const fs::path output = sandbox.path() / "other-list";
    ::setenv("HEARTH_RUNTIME_DIR", daemon.runtime().c_str(), 1);
    const bool listed = succeeds_as_other(sandbox, {"cache", "ls"}, output);
    const bool verified = succeeds_as_other(sandbox, {"cache", "verify"}, sandbox.path() / "no");
    ::unsetenv("HEARTH_RUNTIME_DIR");
    CHECK_MESSAGE(listed, text_of(output));
    CHECK(text_of(output).starts_with("tiny: 1 chunks"));
    CHECK(text_of(output).find("uid:65534") != std::string::npos);
    CHECK(text_of(output).find("uid:0") == std::string::npos);
    CHECK_FALSE(verified);  // for administrators
    daemon.signal(SIGTERM);
    daemon.wait_for_exit();
  }
  // From disk: each finds its own.
  Daemon daemon(sandbox, kAlways, Company::kAlone);
  CHECK(cached_for_other(daemon) > 0);
  ipc::Client client = daemon.connect();
  ipc::Usage usage;
  ids_of(client, request, &usage);
  CHECK(usage.cached_disk_tokens > 0);
}

// AUC: how often a prompt that another user had requested was answered sooner than a random one.
// With 40 prompts each its standard deviation is 0.065 if nothing leaks, with 500 each 0.018; the
// bounds are more than twice that for full counts, and four times for reduced ones.
TEST_CASE("two users: prompts of the other user take as long as random ones") {
  const Sandbox sandbox;
  if (!another_user_can_be_played(sandbox))
    HEARTH_SKIP("needs root, setpriv, and a TMPDIR that others may reach");
  const size_t count = tests::full_counts() ? 500 : 40;
  std::mt19937 random(5);
  const auto texts = [&] {
    std::vector<std::string> out(count, std::string(100, ' '));
    for (std::string& text : out) {
      for (char& letter : text) letter = static_cast<char>('a' + random() % 26);
    }
    return out;
  };
  const std::vector<std::string> theirs = texts();
  const std::vector<std::string> unseen = texts();
  Daemon daemon(sandbox, kAlways, Company::kAlone);
  ipc::Client client = daemon.connect();
  for (const std::string& text : theirs) ids_of(client, seeded(1, 1, text));
  const auto ttft_ms = [&](const std::string& text) {
    const std::string answer = prefix_answer_to_other(sandbox, daemon, text);
    CHECK(number_in(answer, "cached_tokens") == 0);
    return number_in(answer, "ttft_ms");
  };
  std::vector<double> known, fresh;
  for (size_t i = 0; i < count; ++i) {
    // The order alternates: the second of two may find warmer caches.
    if (i % 2 == 0) known.push_back(ttft_ms(theirs[i]));
    fresh.push_back(ttft_ms(unseen[i]));
    if (i % 2 != 0) known.push_back(ttft_ms(theirs[i]));
  }
  double sooner = 0;
  for (const double a : known) {
    for (const double b : fresh) sooner += a < b ? 1.0 : a == b ? 0.5 : 0.0;
  }
  const double auc = sooner / static_cast<double>(count * count);
  MESSAGE("AUC " << auc << " of " << count << " prompts each");
  const double bound = tests::full_counts() ? 0.05 : 0.26;
  CHECK(auc > 0.5 - bound);
  CHECK(auc < 0.5 + bound);
}

TEST_CASE("a prefix that two users share by name is found by both") {
  const Sandbox sandbox;
  if (!another_user_can_be_played(sandbox))
    HEARTH_SKIP("needs root, setpriv, and a TMPDIR that others may reach");
  Daemon daemon(sandbox, kAlways, Company::kAlone);
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest request = seeded(1, 2, std::string(100, 'h'));
  request.cache_share = "manual";
  ids_of(client, request);
  CHECK(number_in(prefix_answer_to_other(sandbox, daemon, request.prompt), "cached_tokens") == 0);
  CHECK(number_in(prefix_answer_to_other(sandbox, daemon, request.prompt, "manual"),
                  "cached_tokens") > 0);
}

}  // namespace hearth::e2e
