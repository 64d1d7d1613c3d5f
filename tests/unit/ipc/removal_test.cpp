#include "ipc/files/removal.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/temp_dir.h"

namespace hearth::ipc {
namespace {

namespace fs = std::filesystem;

struct ModelDirs {
  tests::TempDir temp;
  std::vector<fs::path> folders = {temp.path() / "a", temp.path() / "b"};

  void put(const std::string& file) const {
    fs::create_directories((temp.path() / file).parent_path());
    std::ofstream(temp.path() / file) << file;
  }
  bool has(const std::string& file) const {
    return fs::exists(fs::symlink_status(temp.path() / file));
  }
};

TEST_CASE("all parts of a model are removed, and nothing else") {
  const ModelDirs dirs;
  for (const char* file :
       {"a/m-00001-of-00003.gguf", "a/m-00002-of-00003.gguf", "a/m-00003-of-00003.gguf",
        "a/m-draft.gguf", "a/m-00001-of-00002.txt", "b/m.gguf", "b/z.gguf"}) {
    dirs.put(file);
  }
  for (const char* name : {"m", "M.gguf", "m-00002-of-00003.gguf"}) {
    const auto removal = find_removal(name, dirs.folders);
    REQUIRE(removal.ok());
    CHECK(removal->model == "m");
    CHECK(removal->files.size() == 3);
    CHECK(removal->bytes == 3 * 23);
    CHECK(removal->folder == dirs.folders[0]);
    CHECK(removal->remaining == std::vector<fs::path>{dirs.temp.path() / "b/m.gguf"});
  }
  REQUIRE(remove_files(find_removal("m", dirs.folders).value()).ok());
  for (const char* gone :
       {"a/m-00001-of-00003.gguf", "a/m-00002-of-00003.gguf", "a/m-00003-of-00003.gguf"}) {
    CHECK_FALSE(dirs.has(gone));
  }
  for (const char* left : {"a/m-draft.gguf", "a/m-00001-of-00002.txt", "b/m.gguf", "b/z.gguf"}) {
    CHECK(dirs.has(left));
  }
  // Now the other one has the name. With a slash at the end of the folder, too.
  const auto other = find_removal("m", {dirs.folders[0], dirs.folders[1] / ""});
  REQUIRE_MESSAGE(other.ok(), (other.ok() ? "" : other.error().message));
  CHECK(other->files == std::vector<fs::path>{dirs.temp.path() / "b/m.gguf"});
  CHECK(other->remaining.empty());
}

TEST_CASE("what is left of a model with missing parts is removed") {
  const ModelDirs dirs;
  dirs.put("a/m-00002-of-00003.gguf");
  const auto removal = find_removal("m", dirs.folders);
  REQUIRE(removal.ok());
  CHECK(removal->files == std::vector<fs::path>{dirs.temp.path() / "a/m-00002-of-00003.gguf"});
  REQUIRE(remove_files(*removal).ok());
  CHECK_FALSE(dirs.has("a/m-00002-of-00003.gguf"));
  CHECK(remove_files(*removal).ok());  // gone meanwhile
}

TEST_CASE("of a link the link is removed; a folder that leads elsewhere is refused") {
  const ModelDirs dirs;
  dirs.put("elsewhere/target");
  dirs.put("elsewhere/out.gguf");
  dirs.put("a/own.gguf");
  fs::create_symlink(dirs.temp.path() / "elsewhere/target", dirs.temp.path() / "a/link.gguf");
  fs::create_directory_symlink(dirs.temp.path() / "elsewhere", dirs.temp.path() / "a/owner");
  fs::create_directory_symlink(dirs.temp.path() / "a", dirs.temp.path() / "linked");
  const auto link = find_removal("link", dirs.folders);
  REQUIRE(link.ok());
  CHECK(link->bytes == 0);
  REQUIRE(remove_files(*link).ok());
  CHECK_FALSE(dirs.has("a/link.gguf"));
  CHECK(dirs.has("elsewhere/target"));
  const auto outside = find_removal("out", dirs.folders);
  REQUIRE_FALSE(outside.ok());
  CHECK(outside.error().code == ErrorCode::kForbidden);
  CHECK(outside.error().message.find("outside of") != std::string::npos);
  // The model directory itself may be a link.
  CHECK(find_removal("own", {dirs.temp.path() / "linked"}).ok());
}

TEST_CASE("paths and unknown names are refused") {
  const ModelDirs dirs;
  dirs.put("a/m.gguf");
  for (const char* path : {"a/m", "../a/m.gguf", "/etc/passwd", "./m"}) {
    CHECK(find_removal(path, dirs.folders).error().code == ErrorCode::kInvalidArgument);
  }
  for (const char* name : {"", "..", "n", "m-00001-of-00002x"}) {
    const auto none = find_removal(name, dirs.folders);
    REQUIRE_FALSE(none.ok());
    CHECK(none.error().code == ErrorCode::kNotFound);
    CHECK(none.error().message.find("there are: m") != std::string::npos);
  }
  Removal busy;
  busy.files = {dirs.temp.path() / "a"};  // a folder that is not empty
  const Result<void> failed = remove_files(busy);
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().message.find((dirs.temp.path() / "a").string()) != std::string::npos);
  CHECK(dirs.has("a/m.gguf"));
}

}  // namespace
}  // namespace hearth::ipc
