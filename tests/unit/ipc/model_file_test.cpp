#include "ipc/model_file.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <fstream>

#include "tests/temp_dir.h"

namespace hearth::ipc {
namespace {

TEST_CASE("a file is itself, a name is looked for in the model directories") {
  tests::TempDir temp;
  const std::filesystem::path file = temp.path() / "one.gguf";
  std::ofstream(file) << "x";
  REQUIRE(::setenv("HEARTH_MODEL_DIRS", temp.path().c_str(), 1) == 0);
  auto found = find_model_file(file.string());
  CHECK((found.ok() && found.value() == file));
  found = find_model_file("one");
  CHECK((found.ok() && found.value() == file));
  for (const char* absent : {"two", "two.gguf", "./one", "no/such/file", ""}) {
    CAPTURE(absent);
    found = find_model_file(absent);
    REQUIRE_FALSE(found.ok());
    CHECK(found.error().code == ErrorCode::kNotFound);
  }
  CHECK(find_model_file("two").error().message.find(temp.path().string()) != std::string::npos);
  REQUIRE(::unsetenv("HEARTH_MODEL_DIRS") == 0);
}

}  // namespace
}  // namespace hearth::ipc
