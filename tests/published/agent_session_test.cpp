// What an agent's session computes of the tokens that it sends, on a published model.

#include "tests/e2e/agent_session.h"

#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <fstream>

#include "tests/published/published_model.h"

namespace hearth::published {
namespace {

namespace fs = std::filesystem;
using e2e::AgentSession;
using e2e::Sandbox;
using e2e::SessionCounts;

/// Copies a file of the family llama and changes the context length that it names.
void copy_with_context(const fs::path& from, const fs::path& to, uint32_t context) {
  fs::copy_file(from, to);
  fs::permissions(to, fs::perms::owner_read | fs::perms::owner_write);
  std::fstream file(to, std::ios::in | std::ios::out | std::ios::binary);
  std::string head(1 << 20, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  const std::string key = "llama.context_length";
  constexpr uint32_t kU32 = 4;  // GGUF's type of the value, which follows it
  const size_t at = head.find(key);
  REQUIRE(at != std::string::npos);
  uint32_t type = 0;
  std::memcpy(&type, head.data() + at + key.size(), sizeof type);
  REQUIRE(type == kU32);
  const auto bytes = std::bit_cast<std::array<char, sizeof context>>(context);
  file.seekp(static_cast<std::streamoff>(at + key.size() + sizeof type));
  file.write(bytes.data(), bytes.size());
  REQUIRE(file.good());
}

SessionCounts run(AgentSession session, bool restart, bool head, uint32_t context = 0) {
  const Sandbox sandbox;
  const fs::path file = sandbox.models() / (session.model + ".gguf");
  if (context == 0) {
    fs::create_symlink(file_of(kSmolLm2), file);
  } else {
    copy_with_context(file_of(kSmolLm2), file, context);
  }
  session.restart = restart;
  session.head = head;
  return e2e::run_agent_session(sandbox, session);
}

// The model's context is 8192 tokens, so all sizes are a sixth. A session takes half a minute.
TEST_CASE("SmolLM2: an agent's session of 20 turns computes a fifteenth of what it sends") {
  HEARTH_NEEDS_MODEL(kSmolLm2);
  const AgentSession session{.model = kSmolLm2.name,
                             .scale = 6,
                             .hermes = true,
                             .settings = {"worker.kv_bytes=268435456"},
                             .patience_ms = 600'000};
  const SessionCounts restarted = run(session, true, false);
  CHECK(restarted.share() <= 8.0);
  if (!tests::full_counts()) return;
  const SessionCounts plain = run(session, false, false), head = run(session, false, true);
  CHECK(plain.share() <= 7.0);
  CHECK(head.sent == plain.sent);
  CHECK(head.computed == plain.computed);
}

// Half an hour on two busy cores. Beyond its own context the model writes nonsense; its tokens
// count as ever.
TEST_CASE("SmolLM2: an agent's session of full length" * doctest::skip()) {
  HEARTH_NEEDS_MODEL(kSmolLm2);
  constexpr uint32_t kContext = 49'152;
  const AgentSession session{.model = kSmolLm2.name,
                             .hermes = true,
                             .settings = {"worker.kv_bytes=1610612736"},
                             .patience_ms = 3'600'000};
  CHECK(run(session, true, false, kContext).share() <= 8.0);
}

}  // namespace
}  // namespace hearth::published
