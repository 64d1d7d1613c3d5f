#include "ipc/wire/protocol_page.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "ipc/schema/field_table.h"
#include "tests/paths.h"

namespace hearth::ipc {
namespace {

TEST_CASE("docs/protocol.md is what `hearth protocol` prints") {
  std::ifstream in(hearth::tests::source_dir() + "/docs/protocol.md", std::ios::binary);
  REQUIRE(in.good());
  std::ostringstream file;
  file << in.rdbuf();
  // Not CHECK(a == b): both pages would be printed whole.
  const bool same = file.str() == protocol_page();
  CHECK_MESSAGE(same, "run: hearth protocol > docs/protocol.md");
}

TEST_CASE("the page names every field and every verb") {
  const std::string page = protocol_page();
  for (int i = 0; i < kNumVerbs; ++i) {
    const auto verb = static_cast<Verb>(i);
    for (const Field& field : fields(verb)) {
      CHECK_MESSAGE(page.find("| `" + std::string(field.name) + "` |") != std::string::npos,
                    field.name);
      CHECK_MESSAGE(field.meaning.ends_with('.'), field.name << ": a sentence");
      CHECK_MESSAGE(field.meaning.find('|') == std::string_view::npos, field.name);
    }
    CHECK(page.find("### " + std::string(name(verb)) + "\n") != std::string::npos);
    CHECK(verb_from_name(name(verb)) == verb);
  }
  CHECK_FALSE(verb_from_name("").has_value());
}

}  // namespace
}  // namespace hearth::ipc
