#include "daemon/broker/residency/model_directory.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/temp_dir.h"

namespace hearth::broker {
namespace {

namespace fs = std::filesystem;

struct TempDirs {
  tests::TempDir temp;
  const fs::path& root = temp.path();
  TempDirs() {
    fs::create_directory(root / "a");
    fs::create_directory(root / "b");
  }
  void put(const std::string& file, size_t bytes = 4) const {
    std::ofstream(root / file) << std::string(bytes, 'x');
  }
};

TEST_CASE("models are files of the directories, named without suffix; the first directory wins") {
  TempDirs dirs;
  dirs.put("a/zeta.gguf", 5);
  dirs.put("b/zeta.gguf", 9);
  dirs.put("b/alpha-1.5B.Q8_0.gguf", 7);
  dirs.put("a/readme.txt");
  dirs.put("a/.hidden.gguf");
  fs::create_directories(dirs.root / "a" / "folder.gguf");
  ModelDirectory models({dirs.root / "a", dirs.root / "b", dirs.root / "missing"}, {});
  CHECK(models.models().size() == 2);
  CHECK(models.resolve("zeta")->bytes == 5);
  CHECK(models.resolve("zeta")->path == dirs.root / "a" / "zeta.gguf");
  CHECK(models.resolve("alpha-1.5B.Q8_0")->bytes == 7);
}

TEST_CASE("a file of heads is known by its name next to a model's, and can be a draft") {
  TempDirs dirs;
  dirs.put("a/zeta.gguf");
  dirs.put("a/zeta-medusa.gguf");
  dirs.put("a/zeta-eagle3.gguf");
  dirs.put("a/zeta-dflash.gguf");
  dirs.put("a/eta-medusa.gguf");
  ModelDirectory models({dirs.root / "a"}, {});
  CHECK(models.is_heads("zeta-medusa"));
  CHECK(models.is_heads("zeta-eagle3"));
  CHECK(models.is_heads("zeta-dflash"));
  CHECK_FALSE(models.is_heads("zeta"));
  CHECK_FALSE(models.is_heads("eta-medusa"));  // of no model here
  CHECK(models.resolve("zeta-medusa").ok());
}

TEST_CASE("without descriptors to read the directories, the models that were there stay") {
  TempDirs dirs;
  dirs.put("a/m1.gguf");
  ModelDirectory models({dirs.root / "a"}, {});
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  models.rescan();
  const bool there = models.resolve("m1").ok();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(there);
  dirs.put("a/m2.gguf");
  CHECK(models.resolve("m2").ok());
}

TEST_CASE("default is the first by name until it is configured; roles point at models") {
  TempDirs dirs;
  dirs.put("a/m2.gguf");
  dirs.put("a/m1.gguf");
  ModelDirectory plain({dirs.root / "a"}, {});
  CHECK(plain.resolve("default")->name == "m1");
  CHECK(plain.roles_of("m1") == std::vector<std::string>{"default"});
  CHECK(plain.roles_of("m2").empty());

  ModelDirectory configured({dirs.root / "a"}, {{"default", "m2"}, {"fast", "m1"}, {"lost", "m9"}});
  CHECK(configured.resolve("default")->name == "m2");
  CHECK(configured.resolve("fast")->name == "m1");
  CHECK(configured.roles_of("m1") == std::vector<std::string>{"fast"});
  const Result<ModelFile> lost = configured.resolve("lost");
  REQUIRE_FALSE(lost.ok());
  CHECK(lost.error().code == ErrorCode::kNotFound);
  CHECK(lost.error().message == "no model m9 (role lost); there are: m1, m2");
}

TEST_CASE("a role is re-pointed; a model's name always means that file") {
  TempDirs dirs;
  dirs.put("a/m2.gguf");
  dirs.put("a/m1.gguf");
  ModelDirectory models({dirs.root / "a"}, {{"fast", "m2"}});
  CHECK(models.set_role("default", "m2").value() == "m1");
  CHECK(models.resolve("default")->name == "m2");
  CHECK(models.resolve("m1")->name == "m1");
  CHECK(models.roles_of("m2") == std::vector<std::string>{"default", "fast"});
  CHECK(models.set_role("fast", "m1").value() == "m2");
  const Result<std::string> none = models.set_role("slow", "m1");
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().code == ErrorCode::kNotFound);
  CHECK(none.error().message == "no role slow; there are: default, fast");
}

TEST_CASE("paths are refused, whatever they point at") {
  TempDirs dirs;
  dirs.put("a/m.gguf");
  ModelDirectory models({dirs.root / "a"}, {});
  for (const std::string& name : {(dirs.root / "a/m.gguf").string(), std::string("../a/m"),
                                  std::string("./m"), std::string("/etc/passwd")}) {
    const Result<ModelFile> result = models.resolve(name);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == ErrorCode::kForbidden);
    CHECK(result.error().message.find("Put the file into " + (dirs.root / "a").string()) !=
          std::string::npos);
  }
  CHECK(models.resolve("..").error().code == ErrorCode::kNotFound);
  CHECK(models.resolve("").error().code == ErrorCode::kNotFound);
}

TEST_CASE("a name matches with its suffix and in any case") {
  TempDirs dirs;
  dirs.put("a/Mixed.GGUF");
  ModelDirectory models({dirs.root / "a"}, {{"fast", "mixed.gguf"}});
  CHECK(models.resolve("mixed")->name == "Mixed");
  CHECK(models.resolve("MIXED.gguf")->name == "Mixed");
  CHECK(models.resolve("fast")->name == "Mixed");
}

TEST_CASE("models in subfolders are found, and changes in subfolders are seen") {
  TempDirs dirs;
  fs::create_directories(dirs.root / "a/owner/repo");
  ModelDirectory models({dirs.root / "a"}, {});
  CHECK_FALSE(models.resolve("m").ok());
  dirs.put("a/owner/repo/m.gguf");
  CHECK(models.resolve("m")->path == dirs.root / "a/owner/repo/m.gguf");
}

TEST_CASE("a split model has one entry; without all parts it is listed but not resolved") {
  TempDirs dirs;
  dirs.put("a/m-00001-of-00002.gguf", 5);
  ModelDirectory models({dirs.root / "a"}, {});
  CHECK(models.models().at("m").problem == "1 of its 2 parts missing: m-00002-of-00002.gguf");
  const Result<ModelFile> half = models.resolve("m");
  REQUIRE_FALSE(half.ok());
  CHECK(half.error().code == ErrorCode::kNotFound);
  CHECK(half.error().message ==
        "model m has 1 of its 2 parts missing: m-00002-of-00002.gguf; all parts have to be in " +
            (dirs.root / "a").string());
  CHECK(models.adopt(dirs.root / "a/m-00001-of-00002.gguf").error().message ==
        half.error().message);
  CHECK(models.resolve("default").error().message == half.error().message);

  dirs.put("a/z.gguf");
  CHECK(models.resolve("default")->name == "z");  // the first that can be loaded
  CHECK(models.roles_of("z") == std::vector<std::string>{"default"});

  dirs.put("a/m-00002-of-00002.gguf", 6);
  for (const char* name : {"m", "M.gguf", "m-00002-of-00002.gguf", "m-00001-of-00002", "default"}) {
    CAPTURE(name);
    const Result<ModelFile> model = models.resolve(name);
    REQUIRE(model.ok());
    CHECK(model->name == "m");
    CHECK(model->bytes == 11);
    CHECK(model->path == dirs.root / "a/m-00001-of-00002.gguf");
  }
  CHECK(models.adopt(dirs.root / "a/m-00002-of-00002.gguf").value() == "m");
  dirs.put("b/m-00001-of-00002.gguf", 1);
  dirs.put("b/m-00002-of-00002.gguf", 1);
  CHECK(models.adopt(dirs.root / "b/m-00002-of-00002.gguf").value() == "m@2");
  CHECK(models.resolve("m@2")->bytes == 2);
  fs::remove(dirs.root / "a/m-00001-of-00002.gguf");
  CHECK_FALSE(models.resolve("m").ok());
}

TEST_CASE("folders of other programs are searched last, and a level deeper") {
  TempDirs dirs;
  dirs.put("a/m.gguf", 1);
  dirs.put("b/m.gguf", 2);
  fs::create_directories(dirs.root / "b/models--o--r/snapshots/0123/too/deep");
  dirs.put("b/models--o--r/snapshots/0123/hub.gguf", 3);
  dirs.put("b/models--o--r/snapshots/0123/m.gguf", 4);
  dirs.put("b/models--o--r/snapshots/0123/too/deep.gguf", 5);
  ModelDirectory models({dirs.root / "a"}, {}, {dirs.root / "b"});
  CHECK(models.resolve("m")->bytes == 1);
  CHECK(models.resolve("hub")->bytes == 3);
  CHECK(models.resolve("m@models--o--r")->bytes == 4);
  CHECK_FALSE(models.resolve("deep").ok());
  CHECK(models.dirs() == std::vector<fs::path>{dirs.root / "a", dirs.root / "b"});
  models.configure({dirs.root / "a"}, {}, {});
  CHECK_FALSE(models.resolve("hub").ok());
  models.configure({}, {dirs.root / "b"}, {});
  CHECK(models.resolve("m")->bytes == 2);
}

TEST_CASE("a file is adopted under its own name, wherever its link leads") {
  TempDirs dirs;
  dirs.put("b/0123456789abcdef", 7);  // without a suffix, as a hub's cache keeps them
  fs::create_symlink(dirs.root / "b/0123456789abcdef", dirs.root / "b/linked.gguf");
  ModelDirectory models({dirs.root / "a"}, {});
  CHECK(models.adopt(dirs.root / "b/linked.gguf").value() == "linked");
  CHECK(models.resolve("linked")->bytes == 7);
}

TEST_CASE("the daemon's own user may name a file elsewhere, which gets its own name") {
  TempDirs dirs;
  dirs.put("a/m.gguf", 4);
  dirs.put("b/m.gguf", 9);
  ModelDirectory models({dirs.root / "a"}, {});
  CHECK(models.adopt(dirs.root / "a/m.gguf").value() == "m");
  CHECK(models.adopt(dirs.root / "b/m.gguf").value() == "m@2");
  CHECK(models.adopt(dirs.root / "b/../b/m.gguf").value() == "m@2");
  CHECK(models.resolve("m@2")->bytes == 9);
  models.rescan();
  CHECK(models.resolve("m@2")->bytes == 9);
  CHECK(models.adopt(dirs.root / "b/none.gguf").error().code == ErrorCode::kNotFound);
  CHECK(models.adopt(dirs.root / "b").error().code == ErrorCode::kNotFound);
}

TEST_CASE("a new or deleted file is noticed at the next lookup") {
  TempDirs dirs;
  ModelDirectory models({dirs.root / "a"}, {});
  const Result<ModelFile> none = models.resolve("default");
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().message.find("no .gguf file in the model directories") != std::string::npos);
  dirs.put("a/m.gguf");
  CHECK(models.resolve("default").ok());
  fs::remove(dirs.root / "a/m.gguf");
  CHECK_FALSE(models.resolve("m").ok());
}

}  // namespace
}  // namespace hearth::broker
