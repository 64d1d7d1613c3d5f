#include "daemon/worker/serve/adapter_files.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "models/gguf/fingerprint.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"
#include "tests/temp_dir.h"
#include "tests/unit/daemon/prep_fixture.h"

namespace hearth::worker {
namespace {

namespace fs = std::filesystem;

void write_adapter(const fs::path& path, float value) {
  models::GgufWriter file;
  file.set_string("general.type", "adapter");
  const uint64_t dims[] = {4, 2};
  const std::vector<float> values(8, value);
  file.add_floats("blk.0.attn_q.weight.lora_a", dims, kernels::DType::kF32, values);
  REQUIRE(file.write(path).ok());
}

TEST_CASE("adapter files: opened once, and again when the file is another") {
  const tests::TempDir temp;
  const fs::path path = temp.path() / "style.gguf";
  write_adapter(path, 1);
  AdapterFiles files;
  const auto first = files.open(path).value();
  CHECK(first->file().fingerprint() == models::fingerprint(first->file()));
  CHECK(first->check().ok());
  CHECK(files.open(path).value() == first);
  write_adapter(path, 2);
  const auto second = files.open(path).value();
  CHECK(second != first);
  CHECK(second->file().fingerprint() != first->file().fingerprint());
  CHECK(second->check().ok());
  // Overwritten in place while it is open.
  std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(-2, std::ios::end);
  out.put('#');
  out.close();
  CHECK_FALSE(second->check().ok());
}

TEST_CASE("adapter files: those used least lately are closed") {
  const tests::TempDir temp;
  AdapterFiles files;
  std::vector<std::weak_ptr<engine::AdapterFile>> opened;
  for (int i = 0; i < 12; ++i) {
    const fs::path path = temp.path() / (std::to_string(i) + ".gguf");
    write_adapter(path, static_cast<float>(i));
    opened.push_back(files.open(path).value());
    CHECK(files.open(temp.path() / "0.gguf").ok());
  }
  CHECK_FALSE(opened[0].expired());
  CHECK(opened[3].expired());
  CHECK_FALSE(opened[11].expired());
}

TEST_CASE("adapter files: damaged ones are refused, by file and tensor") {
  const tests::TempDir temp;
  AdapterFiles files;
  const fs::path path = temp.path() / "style.gguf";
  const auto refused = [&] {
    const auto opened = files.open(path);
    REQUIRE_FALSE(opened.ok());
    return opened.error();
  };
  CHECK(refused().code == ErrorCode::kNotFound);
  write_adapter(path, std::numeric_limits<float>::quiet_NaN());
  CHECK(refused().code == ErrorCode::kCorrupt);
  CHECK(refused().message.find("style") != std::string::npos);
  CHECK(refused().message.find("blk.0.attn_q.weight.lora_a [4,2]: value 0 of 8 is nan") !=
        std::string::npos);
  write_adapter(path, 1);
  fs::resize_file(path, fs::file_size(path) - 8);
  CHECK(refused().code == ErrorCode::kCorrupt);
  std::ofstream(path) << "no adapter";
  CHECK(refused().code == ErrorCode::kCorrupt);
}

TEST_CASE("adapter files: a request's adapters are opened while it is prepared") {
  const tests::TempDir temp;
  const fs::path path = temp.path() / "style.gguf";
  write_adapter(path, 1);
  const Fixture f;
  ipc::WorkerRequest request = Fixture::request("ab");
  CHECK(f.good(request).adapters.empty());
  request.generate().adapter = "style=0.25,style";
  request.adapter_paths = {path, path};
  const engine::Request good = f.good(request);
  REQUIRE(good.adapters.size() == 2);
  CHECK(good.adapters[0].name == "style");
  CHECK(good.adapters[0].scale == 0.25f);
  CHECK(good.adapters[1].scale == 1);
  CHECK(good.adapters[0].source == good.adapters[1].source);
  request.adapter_paths = {path};
  CHECK(f.bad(request).field == "adapter_paths");
  request.adapter_paths = {path, temp.path() / "none.gguf"};
  CHECK(f.bad(request).field == "adapter");
  CHECK(f.bad(request).code == ErrorCode::kNotFound);
}

}  // namespace
}  // namespace hearth::worker
