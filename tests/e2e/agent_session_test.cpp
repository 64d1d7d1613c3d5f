// What an agent's session computes of the tokens that it sends, on the tiny model.

#include "tests/e2e/agent_session.h"

#include <doctest/doctest.h>

#include "tests/e2e/tiny_model.h"
#include "tests/skip.h"

namespace hearth::e2e {
namespace {

constexpr const char* kTemplate =
    "{% for t in tools or [] %}{{ t.function.name }} {{ t.function.description }} {% endfor %}"
    "{% for m in messages %}{{ m.role }} {{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    " {% endfor %}";

SessionCounts run_session(bool restart, bool head) {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1, kTemplate, 4 * kTinyContext);
  // By default a quarter of the size, with the same shares.
  return run_agent_session(
      sandbox,
      {.model = "tiny", .scale = tests::full_counts() ? 1 : 4, .restart = restart, .head = head});
}

TEST_CASE("an agent's session of 20 turns computes a fifteenth of what it sends") {
  const SessionCounts plain = run_session(false, false);
  CHECK(plain.share() <= 7.0);
  CHECK(run_session(true, false).share() <= 8.0);
  // A line that differs in each turn changes nothing, since it is left out.
  const SessionCounts head = run_session(false, true);
  CHECK(head.sent == plain.sent);
  CHECK(head.computed == plain.computed);
}

}  // namespace
}  // namespace hearth::e2e
