#include "daemon/worker/load/model_source.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/paths.h"
#include "tests/split_model.h"
#include "tests/temp_dir.h"

namespace hearth::worker {
namespace {

namespace fs = std::filesystem;

const std::string kTales = hearth::tests::source_path("models/demo/tales.gguf");

TEST_CASE("a change of any part is found; a new mode or name of one changes nothing") {
  for (const size_t which : {0u, 1u, 2u}) {
    CAPTURE(which);
    const tests::TempDir temp;
    const auto files = tests::write_split_model(kTales, temp.path(), "m", 3);
    REQUIRE(files.size() == 3);
    const auto file = models::GgufFile::open(files[0]);
    REQUIRE(file.ok());
    Result<ModelSource> source = ModelSource::open(*file, {});
    REQUIRE_MESSAGE(source.ok(), (source.ok() ? "" : source.error().message));
    CHECK(source->digest() == models::fingerprint(*file));
    CHECK(source->check().ok());

    fs::permissions(files[which], fs::perms::owner_read | fs::perms::owner_write);
    CHECK(source->check().ok());
    fs::rename(files[which], temp.path() / "aside");
    CHECK(source->check().ok());
    fs::rename(temp.path() / "aside", files[which]);
    CHECK(source->check().ok());

    std::fstream out(files[which], std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(-5, std::ios::end);
    out.put('#');
    out.close();
    const Result<void> changed = source->check();
    REQUIRE_FALSE(changed.ok());
    CHECK(changed.error().code == ErrorCode::kCorrupt);
    CHECK(changed.error().message.starts_with(files[which].filename().string() +
                                              ": the file changed while"));
    fs::resize_file(files[which], fs::file_size(files[which]) + 1);
    CHECK_FALSE(source->check().ok());
  }
}

}  // namespace
}  // namespace hearth::worker
