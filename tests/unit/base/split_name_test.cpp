#include "kernels/base/split_name.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/temp_dir.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;

TEST_CASE("the name of a part has a number and a count of five digits each") {
  const auto split = parse_split_name("a-00002-of-00003-00002-of-00256");
  REQUIRE(split.has_value());
  CHECK(split->base == "a-00002-of-00003");
  CHECK(split->part == 2);
  CHECK(split->parts == 256);
  CHECK(split->stem_of(17) == "a-00002-of-00003-00017-of-00256");
  for (const char* other :
       {"", "a", "-00001-of-00002", "a-00000-of-00002", "a-00003-of-00002", "a-00001-of-00257",
        "a-0001-of-00002", "a-00001-of-0002", "a-000001-of-00002", "a-00001_of-00002",
        "a-00001-of-00002x", "a-+0001-of-00002", "a-00001-of- 0002", "a00001-of-00002"}) {
    CAPTURE(other);
    CHECK_FALSE(parse_split_name(other).has_value());
    CHECK(model_stem(other) == other);
  }
  CHECK(model_stem("m.Q4_K-00001-of-00001") == "m.Q4_K");
}

TEST_CASE("the files of a model, and the first one by the model's name") {
  const tests::TempDir temp;
  const auto put = [&temp](const char* file) { std::ofstream(temp.path() / file) << "x"; };
  const auto at = [&temp](const char* file) { return temp.path() / file; };
  CHECK(parts_of_model(at("m.gguf")) == std::vector{at("m.gguf")});
  CHECK(parts_of_model(at("m-00002-of-00002.GGUF")) ==
        std::vector{at("m-00001-of-00002.GGUF"), at("m-00002-of-00002.GGUF")});

  CHECK(find_split_model(at("m")) == at("m"));
  put("m-00003-of-00003.gguf");
  put("m-00002-of-00002.gguf");
  put("m-00001-of-00001.txt");
  put("other-00001-of-00001.gguf");
  for (const char* name : {"m", "m.gguf", "m.GGUF"}) {
    CHECK(find_split_model(at(name)) == at("m-00001-of-00002.gguf"));
  }
  CHECK(find_split_model(at("m-00003-of-00003.gguf")) == at("m-00003-of-00003.gguf"));
  put("m.gguf");
  CHECK(find_split_model(at("m.gguf")) == at("m.gguf"));
  CHECK(find_split_model(at("none/m")) == at("none/m"));
  CHECK(find_split_model("").empty());
}

}  // namespace
}  // namespace hearth
