#include <doctest/doctest.h>

#include <fstream>

#include "daemon/worker/load/options.h"
#include "ipc/wire/worker_codec.h"
#include "tests/temp_dir.h"
#include "tests/unit/models/tiny_model.h"

namespace hearth::worker {
namespace {

TEST_CASE("every setting of the engine reaches its configuration") {
  ipc::ServeSettings settings;
  ipc::EngineSettings& engine = settings.engine;
  engine.device = "cuda:1";
  engine.threads = 3;
  engine.cpu_variant = "avx2";
  engine.numerics = "fast";
  engine.mapping = "file";
  engine.weight_bytes = 6;
  engine.kv_type = "q8_0/q4_0";
  engine.kv_bytes = 123;
  engine.block_size = 32;
  engine.context_length = 77;
  engine.max_seqs = 9;
  engine.max_step_tokens = 10;
  engine.policy = "static";
  engine.chunked_prefill = false;
  engine.waiting_served_ratio = 1.25;
  engine.speculation = "off";
  engine.draft = "small";
  engine.prefix_store_bytes = 5'000'000;
  engine.prefix_owner_bytes = 7;
  engine.prefix_pinned_bytes = 8;
  engine.adapter_bytes = 11;
  engine.prefix_ram_bytes = 9;
  engine.prefix_restore = "always";
  engine.tool_form = "hermes";
  settings.sampling.top_k = 5;
  settings.log_level = "warn";
  settings.prefix_dir = "/s/prefix";
  settings.memory_bytes = 10'000'000;
  settings.kv_events = "shared";
  const auto travelled = ipc::decode_serve_settings(ipc::encode_serve_settings(settings));
  REQUIRE(travelled.ok());
  CHECK(*travelled == settings);
  const Result<ServeOptions> read = serve_options("/run/1.sock", "/m/a b.gguf", *travelled);
  REQUIRE(read.ok());
  const ServeOptions& options = *read;
  CHECK(options.socket == "/run/1.sock");
  CHECK(options.model == "/m/a b.gguf");
  CHECK(options.device.device == "cuda:1");
  CHECK(options.device.threads == 3);
  CHECK(options.device.cpu_variant == "avx2");
  CHECK(options.device.numerics == "fast");
  CHECK(options.device.mapping == "file");
  CHECK(options.device.most_weight_bytes() == 6);
  CHECK(options.engine.kv_type == kernels::KvTypes(kernels::KvType::kQ8_0, kernels::KvType::kQ4_0));
  CHECK(options.engine.kv_bytes == 123);
  CHECK(options.engine.block_size == 32);
  CHECK(options.engine.context_length == 77);
  CHECK(options.engine.prefix_cache);
  CHECK_FALSE(options.engine.speculation.enabled);
  CHECK(options.engine.scheduler.max_seqs == 9);
  CHECK(options.engine.scheduler.max_step_tokens == 10);
  CHECK(options.engine.scheduler.policy == engine::SchedulerPolicy::kStatic);
  CHECK_FALSE(options.engine.scheduler.chunked_prefill);
  CHECK(options.engine.scheduler.waiting_served_ratio == 1.25);
  CHECK(options.engine.always_restore);
  CHECK(options.engine.restore_overlap != engine::RestoreOverlap::kAlways);
  CHECK(options.draft == "small");
  CHECK(options.prefix_dir == "/s/prefix");
  CHECK(options.memory_bytes == 10'000'000);
  CHECK(options.engine.published == engine::PublishedScopes::kShared);
  CHECK(options.prefix_store_bytes == 5'000'000);
  CHECK(options.prefix_owner_bytes == 7);
  CHECK(options.prefix_pinned_bytes == 8);
  CHECK(options.engine.adapter_bytes == 11);
  CHECK(options.prefix_ram_bytes == 9);
  CHECK(options.tool_form == "hermes");
  CHECK(options.sampling.top_k == 5);
  CHECK(options.log_level == LogLevel::kWarn);
}

TEST_CASE("prefixes may be restored and computed at once; without a cache they take no memory") {
  ipc::ServeSettings settings;
  settings.prefix_dir = "/s/prefix";
  ipc::EngineSettings& engine = settings.engine;
  engine.prefix_restore = "both";
  CHECK(serve_options("/s", "/m", settings)->engine.restore_overlap ==
        engine::RestoreOverlap::kAlways);
  engine.prefix_cache = false;
  CHECK(serve_options("/s", "/m", settings)->prefix_ram_bytes == 0);
}

TEST_CASE("the draft next to a model: heads before a draft model, and what a setting names") {
  const tests::TempDir dir;
  const auto model = dir.path() / "m.gguf", heads = dir.path() / "m-medusa.gguf",
             draft = dir.path() / "m-draft.gguf";
  REQUIRE(models::tiny_model().write(model).ok());
  CHECK(choose_draft("auto", model).path.empty());
  REQUIRE(models::tiny_model().write(draft).ok());
  CHECK(choose_draft("auto", model).path == draft);
  CHECK_FALSE(choose_draft("auto", model).heads);
  REQUIRE(models::tiny_heads().write(heads).ok());
  const DraftChoice found = choose_draft("auto", model);
  CHECK(found.path == heads);
  CHECK(found.heads);
  CHECK(found.found_by_name);
  const auto eagle = dir.path() / "m-eagle3.gguf";
  REQUIRE(models::tiny_eagle3().write(eagle).ok());
  CHECK(choose_draft("auto", model).path == eagle);
  CHECK(choose_draft("auto", model).heads);
  const auto dflash = dir.path() / "m-dflash.gguf";
  REQUIRE(models::tiny_dflash().write(dflash).ok());
  CHECK(choose_draft("auto", model).path == dflash);
  CHECK(choose_draft("auto", model).heads);
  std::filesystem::remove(dflash);
  std::filesystem::remove(eagle);
  CHECK_FALSE(choose_draft("m-draft", model).heads);
  CHECK(choose_draft("m-medusa", model).heads);
  CHECK(choose_draft(heads.string(), dir.path() / "other.gguf").heads);
  CHECK(choose_draft("none", model).path.empty());
  CHECK(choose_draft("mtp", model).path.empty());
  // A damaged file is refused where it is loaded.
  std::ofstream(heads, std::ios::binary) << "GGUF";
  CHECK(choose_draft("auto", model).path == heads);
  CHECK_FALSE(choose_draft("auto", model).heads);
}

TEST_CASE("a setting with an invalid value is named") {
  const auto refused = [](auto change) {
    ipc::ServeSettings settings;
    change(settings);
    const Result<ServeOptions> read = serve_options("/s", "/m", settings);
    REQUIRE_FALSE(read.ok());
    return read.error().field;
  };
  CHECK(refused([](auto& s) { s.engine.kv_type = "f8"; }) == "kv_type");
  CHECK(refused([](auto& s) { s.engine.kv_type = "q8_0/q4_0/f16"; }) == "kv_type");
  CHECK(refused([](auto& s) { s.engine.policy = "x"; }) == "policy");
  CHECK(refused([](auto& s) { s.engine.speculation = "x"; }) == "speculation");
  CHECK(refused([](auto& s) { s.log_level = "x"; }) == "log_level");
  CHECK_FALSE(ipc::decode_serve_settings(R"({"engine":{"threads":"many"}})").ok());
  CHECK_FALSE(ipc::decode_serve_settings("[]").ok());
}

}  // namespace
}  // namespace hearth::worker
