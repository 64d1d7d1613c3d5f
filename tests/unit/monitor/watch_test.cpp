// The bytes that dashboards receive, whole and damaged, and recordings of them.

#include "ipc/schema/watch.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "ipc/client/event_stream.h"

namespace hearth::ipc {
namespace {

WatchUpdate example() {
  WatchUpdate update;
  update.sequence = 7;
  update.now_us = 123'456'789;
  update.steps_dropped = 2;
  update.block_size = 16;
  update.steps.push_back({.step = 900,
                          .end_us = 123'400'000,
                          .duration_us = 30'500,
                          .decode_rows = 12,
                          .draft_rows = 24,
                          .accepted = 18,
                          .prefills = {{5, 256}, {0, 17}},
                          .prefills_unlisted = 3,
                          .running = 13,
                          .waiting = 4,
                          .preempted = 1});
  update.pools.push_back({.group = 1,
                          .num_blocks = 100'000,
                          .full = true,
                          .runs = {{.first = 0,
                                    .count = 400,
                                    .state = WatchedBlock::kShared,
                                    .refs = 255,
                                    .request = ~uint64_t{0},
                                    .position = 12,
                                    .on_disk = true},
                                   {.first = 99'999,
                                    .count = 1,
                                    .state = WatchedBlock::kCached,
                                    .refs = 0,
                                    .request = 0,
                                    .position = 0,
                                    .on_disk = false}}});
  WatchedRequest row;
  row.number = 5;
  row.id = "story-1";
  row.owner = "uid:1000";
  row.model = "tales";
  row.priority = "interactive";
  row.state = "waiting";
  row.waiting_for = "blocks";
  row.queue_position = 2;
  row.estimate_ms = 1500;
  row.age_ms = 250;
  row.prompt_tokens = 4000;
  row.prompt_done = 512;
  row.cached_tokens = 480;
  row.output_tokens = 3;
  row.drafted_tokens = 9;
  row.accepted_tokens = 4;
  row.preemptions = 1;
  row.queue_us = 3000;
  row.ttft_us = 90'000;
  row.canvas = "97.0";
  row.canvas_first = 4;
  row.pass = 3;
  row.passes = 64;
  update.has_prefixes = true;
  update.prefixes.push_back({~uint64_t{0}, 1, 2, ~uint64_t{0}, 40, 8, 3, true});
  update.resident_bytes = ~uint64_t{0};
  update.power_mw = -1;
  update.gaps = {{0, 1}, {WatchLimits::kGapBuckets - 1, UINT32_MAX}};
  update.requests.push_back(row);
  return update;
}

TEST_CASE("an update reads back unchanged") {
  const Result<WatchUpdate> met = decode_watch(encode_watch(example()));
  REQUIRE_MESSAGE(met.ok(), met.error().message);
  CHECK(*met == example());
  const Result<WatchUpdate> empty = decode_watch(encode_watch({}));
  REQUIRE(empty.ok());
  CHECK(*empty == WatchUpdate{});
}

TEST_CASE("extreme numbers read back unchanged") {
  WatchUpdate update;
  update.sequence = ~uint64_t{0};
  update.now_us = INT64_MIN;
  update.block_size = INT32_MAX;
  update.requests.emplace_back();
  update.requests.back().output_tokens = INT32_MIN;
  update.requests.back().age_ms = INT64_MAX;
  const Result<WatchUpdate> met = decode_watch(encode_watch(update));
  REQUIRE(met.ok());
  CHECK(*met == update);
}

TEST_CASE("a truncated message is refused, at any length") {
  const std::string bytes = encode_watch(example());
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decode_watch(std::string_view(bytes).substr(0, size)).ok());
  }
  CHECK_FALSE(decode_watch(bytes + "x").ok());
  CHECK_FALSE(decode_watch("\x01" + bytes.substr(1)).ok());
}

TEST_CASE("values out of range are refused by name") {
  const auto problem = [](const WatchUpdate& update) {
    const Result<WatchUpdate> met = decode_watch(encode_watch(update));
    return met.ok() ? std::string() : met.error().message;
  };
  WatchUpdate update = example();
  update.pools[0].runs[1].count = 2;
  CHECK(problem(update).find("past the pool's end") != std::string::npos);
  update = example();
  update.pools[0].num_blocks = -1;
  CHECK(problem(update).find("pool.num_blocks") != std::string::npos);
  update = example();
  update.pools[0].num_blocks = INT32_MAX;
  CHECK(problem(update).find("pool.num_blocks") != std::string::npos);
  update = example();
  update.pools[0].group = 64;
  CHECK(problem(update).find("pool.group") != std::string::npos);
  update = example();
  update.pools[0].runs[0].position = INT32_MAX;
  CHECK(problem(update).find("run.position") != std::string::npos);
  update = example();
  update.gaps[1].bucket = WatchLimits::kGapBuckets;
  CHECK(problem(update).find("gaps.bucket") != std::string::npos);
  // A list that claims more than the message can hold takes no memory.
  std::string claims = encode_watch({});
  claims[5] = static_cast<char>(0xFF);  // the number of steps
  CHECK_FALSE(decode_watch(claims + std::string(10, '\x7F')).ok());
}

TEST_CASE("a gap's bucket is within 3 % of it, from a microsecond to a day") {
  uint32_t before = 0;
  for (int64_t us = 0; us < 86'400'000'000; us += 1 + us / 100) {
    const uint32_t bucket = gap_bucket(us);
    CHECK(bucket >= before);
    CHECK(bucket < WatchLimits::kGapBuckets);
    CHECK(gap_us(bucket) == doctest::Approx(static_cast<double>(us)).epsilon(0.03));
    before = bucket;
  }
  CHECK(gap_bucket(-5) == 0);
  CHECK(gap_bucket(INT64_MAX) < WatchLimits::kGapBuckets);
}

TEST_CASE("a megabyte name is truncated before it is sent") {
  WatchUpdate update = example();
  update.requests[0].id = std::string(1 << 20, 'x');
  const std::string bytes = encode_watch(update);
  CHECK(bytes.size() < 1000);
  const Result<WatchUpdate> met = decode_watch(bytes);
  REQUIRE(met.ok());
  CHECK(met->requests[0].id.size() == WatchLimits::kTextBytes);
}

TEST_CASE("random damage never crashes, and never passes the bounds") {
  const std::string bytes = encode_watch(example());
  std::mt19937 random(4);
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = bytes;
    for (unsigned n = 0; n <= random() % 4; ++n) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    const Result<WatchUpdate> met = decode_watch(damaged);
    if (!met.ok()) continue;
    for (const PoolUpdate& pool : met->pools) {
      for (const BlockRun& run : pool.runs) {
        CHECK(uint64_t{run.first} + run.count <= static_cast<uint64_t>(pool.num_blocks));
      }
    }
  }
}

struct TempFile {
  std::filesystem::path path = std::filesystem::temp_directory_path() /
                               ("hearth-recording-" + std::to_string(::getpid()) + ".rec");
  ~TempFile() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
};

TEST_CASE("a recording reads back; its truncated end is left out, its damage named") {
  const TempFile file;
  const std::vector<StreamMessage> messages = {
      {-5, "stats", "", "{}"}, {1'000'000, "watch", "tales", std::string(300, '\0')}};
  {
    Result<RecordingWriter> writer = RecordingWriter::create(file.path);
    REQUIRE(writer.ok());
    for (const StreamMessage& message : messages) REQUIRE(writer->add(message).ok());
  }
  const Result<std::vector<StreamMessage>> met = read_recording(file.path);
  REQUIRE_MESSAGE(met.ok(), met.error().message);
  CHECK(*met == messages);
  std::ifstream in(file.path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const auto cut = parse_recording(std::string_view(bytes).substr(0, bytes.size() - 1));
  REQUIRE(cut.ok());
  CHECK(cut->size() == 1);
  CHECK_FALSE(parse_recording("HEARTHREC9\n").ok());
  std::string damaged = bytes;
  damaged[11 + 4 + 8] = 100;  // the length of the first kind
  const auto refused = parse_recording(damaged);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("message 0") != std::string::npos);
  CHECK_FALSE(read_recording(file.path, 10).ok());
  CHECK_FALSE(read_recording("/nowhere/at/all").ok());
}

}  // namespace
}  // namespace hearth::ipc
