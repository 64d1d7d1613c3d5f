#include "ipc/files/model_file.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <fstream>
#include <map>

#include "tests/temp_dir.h"

namespace hearth::ipc {
namespace {

TEST_CASE("a file is itself, a name is looked up in the model directories") {
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

TEST_CASE("models are in folders and subfolders, with a suffix in any case") {
  const tests::TempDir temp;
  const auto put = [&temp](const std::string& file) {
    std::filesystem::create_directories((temp.path() / file).parent_path());
    std::ofstream(temp.path() / file) << file;
  };
  put("a/zeta.gguf");
  put("a/Loud.GGUF");
  put("a/owner/repo/deep.gguf");
  put("a/owner/repo/mmproj-deep.gguf");
  put("a/owner/repo/deeper/too-deep.gguf");
  put("a/other/repo/deep.gguf");
  put("a/.hidden/x.gguf");
  put("b/zeta.gguf");
  put("b/readme.txt");
  const FoundModels found =
      list_model_files({temp.path() / "a", temp.path() / "b", temp.path() / "absent"});
  std::vector<std::string> names;
  for (const FoundModel& model : found.models) names.push_back(model.name);
  CHECK(names == std::vector<std::string>{"Loud", "deep", "deep@owner", "zeta"});
  CHECK(found.models[3].path == temp.path() / "a/zeta.gguf");
  CHECK(found.models[3].bytes == 11);
}

TEST_CASE("the parts of a split model are one entry with their sum, or with what is missing") {
  const tests::TempDir temp;
  const auto put = [&temp](const std::string& file) {
    std::filesystem::create_directories((temp.path() / file).parent_path());
    std::ofstream(temp.path() / file) << file;
  };
  put("a/m-00001-of-00003.gguf");
  put("a/m-00002-of-00003.gguf");
  put("a/m-00003-of-00003.gguf");
  put("a/lost-00002-of-00003.gguf");
  put("a/one-00001-of-00001.gguf");
  // A whole file before parts, all parts before some of them.
  put("a/both-00001-of-00002.gguf");
  put("a/both-00002-of-00002.gguf");
  put("a/both.gguf");
  put("a/twice-00001-of-00002.gguf");
  put("a/twice-00001-of-00003.gguf");
  put("a/twice-00002-of-00003.gguf");
  put("a/twice-00003-of-00003.gguf");
  put("b/m-00001-of-00002.gguf");
  put("b/m-00002-of-00002.gguf");
  put("b/mmproj-m-00001-of-00002.gguf");
  const FoundModels found = list_model_files({temp.path() / "a", temp.path() / "b"});
  std::map<std::string, FoundModel> models;
  for (const FoundModel& model : found.models) models.emplace(model.name, model);
  REQUIRE(models.size() == 5);
  CHECK(models["m"].path == temp.path() / "a/m-00001-of-00003.gguf");
  CHECK(models["m"].bytes == 3 * 23);
  CHECK(models["m"].changed_ns > 0);
  CHECK(models["m"].problem.empty());
  CHECK(models["lost"].path == temp.path() / "a/lost-00001-of-00003.gguf");
  CHECK(models["lost"].bytes == 26);
  CHECK(models["lost"].problem ==
        "2 of its 3 parts missing: lost-00001-of-00003.gguf, lost-00003-of-00003.gguf");
  CHECK(models["one"].problem.empty());
  CHECK(models["both"].path == temp.path() / "a/both.gguf");
  CHECK(models["twice"].path == temp.path() / "a/twice-00001-of-00003.gguf");
  REQUIRE(found.hidden.size() == 3);
  CHECK(found.hidden[0].path == temp.path() / "a/both-00001-of-00002.gguf");
  CHECK(found.hidden[0].used == temp.path() / "a/both.gguf");
  CHECK(found.hidden[1].path == temp.path() / "a/twice-00001-of-00002.gguf");
  CHECK(found.hidden[2].name == "m");
  CHECK(found.hidden[2].path == temp.path() / "b/m-00001-of-00002.gguf");
  CHECK(found.hidden[2].used == temp.path() / "a/m-00001-of-00003.gguf");

  const FoundModel many = model_of_file(temp.path() / "a/many-00001-of-00256.gguf");
  CHECK(many.name == "many");
  CHECK(many.problem.size() < 200);
  CHECK(many.problem.starts_with("256 of its 256 parts missing: many-00001-of-00256.gguf, "));
  CHECK(many.problem.ends_with(", ..."));

  const std::string path = (temp.path() / "a/m").string();
  CHECK(find_model_file(path).value() == temp.path() / "a/m-00001-of-00003.gguf");
  CHECK(find_model_file(path + ".gguf").value() == temp.path() / "a/m-00001-of-00003.gguf");
  CHECK(find_model_file(path + "-00002-of-00003.gguf").value() ==
        temp.path() / "a/m-00002-of-00003.gguf");
}

TEST_CASE("a name matches with its suffix and in another case, where that is unambiguous") {
  const std::vector<std::string> names = {"Gemma-3.Q4_K_M", "tales", "Tales2", "tales2"};
  CHECK(match_model_name("tales", names) == "tales");
  CHECK(match_model_name("tales.gguf", names) == "tales");
  CHECK(match_model_name("TALES", names) == "tales");
  CHECK(match_model_name("gemma-3.q4_k_m.GGUF", names) == "Gemma-3.Q4_K_M");
  CHECK(match_model_name("tales2", names) == "tales2");
  CHECK(match_model_name("TALES2", names) == "");
  CHECK(match_model_name("tales-00002-of-00003.gguf", names) == "tales");
  CHECK(match_model_name("TALES-00002-of-00003", names) == "tales");
  CHECK(match_model_name("tale", names) == "");
  CHECK(match_model_name("", names) == "");
}

}  // namespace
}  // namespace hearth::ipc
