#include "daemon/worker/observe/kv_events.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

namespace hearth::worker {
namespace {

using engine::BlocksRemoved;
using engine::BlocksStored;
using engine::CacheEvent;
using engine::CacheTier;
using Json = nlohmann::json;

KvEventForm form() {
  return {.pool_medium = "CPU",
          .block_size = 2,
          .groups = {{.num_blocks = 8},
                     {.num_blocks = 8, .window = 64},
                     {.num_blocks = 8, .recurrent = true}}};
}

std::string text(std::string_view name) {
  return static_cast<char>(0xa0 + name.size()) + std::string(name);
}

TEST_CASE("a removal, byte for byte") {
  const std::vector<CacheEvent> events = {BlocksRemoved{CacheTier::kPool, 0, {1, UINT64_MAX}}};
  const std::string want = std::string("\x91\x84") + text("type") + text("BlockRemoved") +
                           text("block_hashes") + "\x92\x01\xcf" + std::string(8, '\xff') +
                           text("medium") + text("CPU") + text("group_idx") + '\0';
  CHECK(encode_kv_events(events, form()) == want);
}

TEST_CASE("a chain's beginning, byte for byte, in the order of vLLM's struct") {
  const std::vector<CacheEvent> events = {
      BlocksStored{CacheTier::kDatabase, 0, {5, 6}, {}, {7, 300, 9, 10}, "docs"}};
  const std::string want =
      std::string("\x91\x8b") + text("type") + text("BlockStored") + text("block_hashes") +
      "\x92\x05\x06" + text("parent_block_hash") + "\xc0" + text("token_ids") +
      "\x94\x07\xcd\x01," + "\x09\x0a" + text("block_size") + "\x02" + text("lora_id") + "\xc0" +
      text("medium") + text("STORAGE") + text("lora_name") + "\xc0" + text("extra_keys") +
      "\x92\x91" + text("docs") + "\xc0" + text("group_idx") + std::string(1, '\0') +
      text("kv_cache_spec_kind") + text("full_attention");
  CHECK(encode_kv_events(events, form()) == want);
}

TEST_CASE("continued chains, groups and tiers") {
  const std::vector<CacheEvent> events = {
      BlocksStored{CacheTier::kHost, 1, {5}, 1ull << 63, {7, 8}, ""},
      BlocksStored{CacheTier::kPool, 2, {5}, 4, {7, 8}, ""}};
  KvEventForm gpu = form();
  gpu.pool_medium = "GPU";
  const Json list = Json::from_msgpack(encode_kv_events(events, gpu));
  CHECK(list[0]["parent_block_hash"] == 1ull << 63);
  CHECK(list[0]["extra_keys"] == Json::parse("[null]"));
  CHECK(list[0]["medium"] == "CPU");
  CHECK(list[0]["group_idx"] == 1);
  CHECK(list[0]["kv_cache_spec_kind"] == "sliding_window");
  CHECK(list[0]["kv_cache_spec_sliding_window"] == 64);
  CHECK(list[1]["medium"] == "GPU");
  CHECK(list[1]["kv_cache_spec_kind"] == "mamba");
  CHECK_FALSE(list[1].contains("kv_cache_spec_sliding_window"));
}

TEST_CASE("every length and number in its shortest form") {
  std::vector<CacheEvent> events;
  for (const size_t count : {15, 16, 40, 70'000}) {
    BlocksRemoved& removed = std::get<BlocksRemoved>(events.emplace_back(BlocksRemoved{}));
    for (size_t i = 0; i < count; ++i) {
      removed.hashes.push_back((uint64_t{1} << i % 64) - i % 2);
    }
  }
  for (const size_t bytes : {31, 32, 255, 256, 70'000}) {
    events.emplace_back(
        BlocksStored{CacheTier::kPool, 0, {1}, {}, {0, INT32_MAX}, std::string(bytes, 'x')});
  }
  const std::string met = encode_kv_events(events, form());
  const auto list = nlohmann::ordered_json::from_msgpack(met);
  CHECK(list[3]["block_hashes"].size() == 70'000);
  CHECK(list[8]["extra_keys"][0][0] == std::string(70'000, 'x'));
  std::string want;
  nlohmann::ordered_json::to_msgpack(list, want);
  CHECK(met == want);
}

TEST_CASE("events of a few milliseconds are one batch") {
  KvEventBatch batch;
  batch.set_form(form());
  CHECK_FALSE(batch.take_due(1'000'000));
  batch.add({BlocksRemoved{CacheTier::kPool, 0, {1}}}, 50);
  batch.add({BlocksRemoved{CacheTier::kPool, 0, {2}}}, 9'000);
  CHECK_FALSE(batch.empty());
  CHECK_FALSE(batch.take_due(10'049));
  const auto due = batch.take_due(10'050);
  REQUIRE(due.has_value());
  CHECK(Json::from_msgpack(*due).size() == 2);
  CHECK(batch.empty());
  CHECK_FALSE(batch.take_due(1'000'000));
}

}  // namespace
}  // namespace hearth::worker
