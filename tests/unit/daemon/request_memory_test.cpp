// What one request takes at most while it is parsed, its text included. A program of its own,
// because it replaces the allocation functions.

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>

#include "daemon/http/requests/api_embeddings.h"
#include "daemon/http/requests/api_request.h"
#include "daemon/http/requests/token_request.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/worker_codec.h"

namespace {

size_t taken = 0;
size_t taken_max = 0;

void* take(size_t bytes) {
  void* const block = std::malloc(bytes);
  if (block == nullptr) throw std::bad_alloc();
  taken += ::malloc_usable_size(block);
  taken_max = std::max(taken_max, taken);
  return block;
}
void give(void* block) {
  if (block != nullptr) taken -= ::malloc_usable_size(block);
  std::free(block);
}

}  // namespace

void* operator new(size_t bytes) { return take(bytes); }
void* operator new[](size_t bytes) { return take(bytes); }
void operator delete(void* block) noexcept { give(block); }
void operator delete[](void* block) noexcept { give(block); }
void operator delete(void* block, size_t) noexcept { give(block); }
void operator delete[](void* block, size_t) noexcept { give(block); }

namespace hearth::http {
namespace {

constexpr size_t kMiB = 1 << 20;

/// `count` times `item`, separated by commas, between the two ends.
std::string list(const std::string& begin, const std::string& item, size_t count,
                 const std::string& end) {
  std::string out;
  out.reserve(begin.size() + count * (item.size() + 1) + end.size());
  out += begin;
  for (size_t i = 0; i < count; ++i) (out += item) += i + 1 < count ? "," : "";
  return out += end;
}

/// The memory of `parse(text)` at most, with the text.
template <class Parse>
size_t most_taken(const std::string& text, Parse parse) {
  const size_t before = taken;
  std::string moved = text;
  taken_max = taken;
  parse(std::move(moved));
  REQUIRE(taken < before + kMiB);
  return taken_max - before;
}

const auto kOverSocket = [](std::string text) { return ipc::take_request(std::move(text)); };
const auto kCompletions = [](std::string text) {
  return parse_call(Api::kCompletions, std::move(text));
};
const auto kChat = [](std::string text) { return parse_call(Api::kChat, std::move(text)); };
const auto kResponses = [](std::string text) {
  return parse_call(Api::kResponses, std::move(text));
};
const auto kKept = [](std::string text) {
  return parse_call(Api::kResponses, std::move(text),
                    {.volatile_lines = {}, .keeps_answers = true});
};
const auto kMessages = [](std::string text) { return parse_call(Api::kMessages, std::move(text)); };
const auto kTokenize = [](std::string text) { return parse_tokenize(std::move(text)); };
const auto kCount = [](std::string text) { return parse_count_tokens(std::move(text)); };
const auto kEmbeddings = [](std::string text) { return parse_embeddings(std::move(text)); };

template <class Parse>
void check_refused(const std::string& text, Parse parse) {
  ErrorCode code = ErrorCode::kInternal;
  const size_t most = most_taken(text, [&](std::string moved) {
    const auto parsed = parse(std::move(moved));
    REQUIRE_FALSE(parsed.ok());
    code = parsed.error().code;
  });
  CHECK((code == ErrorCode::kTooLarge || code == ErrorCode::kInvalidArgument));
  CHECK_MESSAGE(most <= text.size() + 33 * kMiB, most << ": " << text.substr(0, 60));
}

TEST_CASE("a request of very many small values is refused before they are built") {
  const char* const items[] = {
      "1234567890", "1",         "-1.5",
      "\"\"",       "[]",        "{}",
      "[[]]",       "{\"a\":1}", "\"a text of forty bytes, on the heap of it.\""};
  for (const std::string item : items) {
    const size_t count = 21 * kMiB / (item.size() + 1);
    const std::string unknown = list(R"({"unknown":[)", item, count, "]}");
    check_refused(unknown, kOverSocket);
    check_refused(unknown, kChat);
    if (item != "1") continue;
    check_refused(unknown, kCompletions);
    check_refused(unknown, kResponses);
    check_refused(list(R"({"input":[)", item, count, "]}"), kKept);
    check_refused(unknown, kMessages);
    check_refused(unknown, kTokenize);
    check_refused(unknown, kCount);
    check_refused(unknown, kEmbeddings);
  }
}

TEST_CASE("the lists of token ids that another user's flood sends take at most 64 MiB") {
  constexpr size_t kIds = 1'900'000;
  const std::string id = "1234567890";
  check_refused(list(R"({"verb":"generate","prompt_ids":[)", id, kIds, "]}"), kOverSocket);
  check_refused(list(R"({"model":"tales","prompt":[)", id, kIds, "]}"), kCompletions);
}

TEST_CASE("the largest requests that are taken are never held twice as values") {
  const auto taken_by = [](const std::string& text, auto parse) {
    return most_taken(text, [&](std::string moved) {
      const auto parsed = parse(std::move(moved));
      REQUIRE_MESSAGE(parsed.ok(), parsed.error().message);
    });
  };
  constexpr size_t kIds = 1'048'576;
  const std::string prompt = list(R"({"prompt":[)", "1234567", kIds, "]}");
  const std::string ids = list(R"({"verb":"generate","prompt_ids":[)", "1234567", kIds, "]}");
  const std::string input = list(R"({"input":[)", "1234567", kIds, "]}");
  CHECK(taken_by(ids, kOverSocket) < ids.size() + 26 * kMiB);
  CHECK(taken_by(prompt, kCompletions) < prompt.size() + 26 * kMiB);
  CHECK(taken_by(input, kEmbeddings) < input.size() + 26 * kMiB);

  // A string is found whole in the text, copied once, and moved from then on.
  constexpr size_t kBytes = 15 * kMiB;
  constexpr size_t kTwice = 2 * kBytes + kMiB;
  const std::string words(kBytes, 'x');
  CHECK(taken_by(R"({"verb":"tokenize","text":")" + words + "\"}", kOverSocket) < kTwice);
  CHECK(taken_by(R"({"text":")" + words + "\"}", kTokenize) < kTwice);
  CHECK(taken_by(R"({"prompt":")" + words + "\"}", kCompletions) < kTwice);
  const std::string messages = R"([{"role":"user","content":")" + words + "\"}]";
  CHECK(taken_by(R"({"messages":)" + messages + "}", kChat) < kTwice);
  CHECK(taken_by(R"({"input":)" + messages + "}", kResponses) < kTwice);
  CHECK(taken_by(R"({"input":)" + messages + "}", kKept) < kTwice + kBytes);
  CHECK(taken_by(R"({"max_tokens":9,"messages":)" + messages + "}", kMessages) < kTwice);
}

TEST_CASE("the longest texts take at most 64 MiB, wherever they are, taken or not") {
  const std::string words(31 * kMiB, 'x');
  const auto most = [](const std::string& text, auto parse) {
    return most_taken(text, [&](std::string moved) { (void)parse(std::move(moved)).ok(); });
  };
  for (const std::string begin :
       {"{\"unknown\":\"", "{\"prompt\":\"", "{\"", "{\"a\":[{\"b\":\""}) {
    CHECK(most(begin + words, kChat) <= 64 * kMiB);
    CHECK(most(begin + words + "\"", kChat) <= 64 * kMiB);
    CHECK(most(begin + words + "\":1}", kOverSocket) <= 64 * kMiB);
    CHECK(most(begin + words + "\"}", kCompletions) <= 64 * kMiB);
  }
  const std::string messages = R"([{"role":"user","content":")" + words + "\"}]";
  CHECK(most(R"({"messages":)" + messages + "}", kChat) <= 64 * kMiB);
  CHECK(most(R"({"verb":"generate","messages":)" + messages + "}", kOverSocket) <= 64 * kMiB);
}

TEST_CASE("a request is written for its worker without another copy of its text") {
  constexpr size_t kBytes = 31 * kMiB;
  const auto taken_by = [](const ipc::ComputeRequest& request) {
    const size_t before = taken;
    taken_max = taken;
    const std::string json = ipc::encode_worker_request({}, request);
    CHECK(json.size() > 31 * kMiB);
    return taken_max - before;
  };
  ipc::TokenizeRequest text;
  text.text.assign(kBytes, 'x');
  CHECK(taken_by(text) < kBytes + kMiB);
  ipc::GenerateRequest conversation;
  conversation.messages.text = R"([{"role":"user","content":")" + std::string(kBytes, 'x') + "\"}]";
  CHECK(taken_by(conversation) < 2 * kBytes + kMiB);  // its text is checked, string by string
}

TEST_CASE("the arguments of all calls together have a bound, which those of a long chat keep") {
  const auto chat = [](size_t calls, const std::string& arguments) {
    return list(
        R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","tool_calls":[)",
        R"({"id":"a","type":"function","function":{"name":"f","arguments":")" + arguments + "\"}}",
        calls, "]}]}");
  };
  const auto response = [](size_t calls, const std::string& arguments) {
    return list(
        R"({"input":[)",
        R"({"type":"function_call","call_id":"a","name":"f","arguments":")" + arguments + "\"}",
        calls, "]}");
  };
  const std::string long_list = list(R"({\"a\":[)", "1", 100'000, "]}");
  check_refused(chat(80, long_list), kChat);
  check_refused(response(80, long_list), kResponses);
  const std::string usual = R"({\"path\":\"src/main.cpp\",\"lines\":[1,2,3],\"all\":true})";
  CHECK(kChat(chat(4000, usual)).ok());
  CHECK(kResponses(response(4000, usual)).ok());
}

}  // namespace
}  // namespace hearth::http
