#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "ipc/wire/codec.h"
#include "ipc/wire/worker_codec.h"

namespace hearth::ipc {
namespace {

/// Encodes, decodes, and compares.
template <class T>
void check_round_trip(const T& event) {
  const std::string json = encode_event(event);
  const auto back = decode_event(json);
  REQUIRE_MESSAGE(back.ok(), json << ": " << (back.ok() ? "" : back.error().message));
  REQUIRE_MESSAGE(std::holds_alternative<T>(*back), json);
  CHECK_MESSAGE(event_kind(json) == kind_of(*back), json);
  CHECK_MESSAGE(std::get<T>(*back) == event, json);
}
template <class T>
void check_worker_round_trip(const T& event) {
  const auto back = decode_worker_event(encode_worker_event(event));
  REQUIRE(back.ok());
  REQUIRE(std::holds_alternative<T>(*back));
  CHECK(std::get<T>(*back) == event);
}

GpuSnapshot gpu() {
  GpuSnapshot g;
  g.name = "NVIDIA H200";
  g.driver = "580.65.06";
  g.memory_used_bytes = int64_t{1} << 36;
  g.memory_total_bytes = int64_t{1} << 37;
  g.sm_clock_mhz = 1755;
  g.sm_clock_max_mhz = 1980;
  g.memory_clock_mhz = 3201;
  g.power_mw = 412'345;
  g.temperature_c = 51;
  g.throttled = "power limit";
  return g;
}

WorkerSnapshot snapshot() {
  WorkerSnapshot s;
  s.num_steps = 1u << 30;
  s.num_running = 3;
  s.num_waiting = 2;
  s.num_preempted = 1;
  s.kv_blocks_total = {100, 50};
  s.kv_blocks_used = {60, 20};
  s.kv_blocks_cached = {30, 0};
  s.kv_bytes = uint64_t{1} << 40;
  s.prompt_tokens_total = 10;
  s.prompt_tokens_cached = 4;
  s.prefill_tokens_total = 6;
  s.decode_tokens_total = 200;
  s.preemptions_total = 5;
  s.speculation = {7, 28, 20, {7, 7, 7, 7}, {7, 6, 4, 3}, 2.5, -12.25, {{"lookup", 28, 20}}};
  s.prefill_tokens_per_s = 1234.5;
  s.decode_tokens_per_s = 84.25;
  s.step_ms_recent = 11.75;
  s.prompt_tokens_restored = 2;
  s.store = {"degraded", 1, 2, 3, 4, 5, 6, 7, 8, 9, "no such folder", 10, 11, 12, 13, 14, 15};
  return s;
}

ModelEntry model() {
  ModelEntry m;
  m.name = "stories";
  m.roles = {"default", "draft"};
  m.state = "resident";
  m.file_bytes = 1'000'000;
  m.load_share = 0.5;
  m.problem = "none";
  m.architecture = "llama";
  m.file_type = "Q8_0";
  m.num_parameters = 260'000;
  m.context_length = 512;
  m.device = "cpu avx512-vnni";
  m.weight_bytes = 300'000;
  m.kv_bytes = 77;
  m.worker_pid = 4242;
  m.memory_bytes = 400'000;
  m.keep_alive_ms = 60'000;
  m.idle_ms = 12;
  m.gpu = gpu();
  return m;
}

TEST_CASE("events read back from the wire are unchanged") {
  check_round_trip(QueuedEvent{"loading", 3, 1500});
  check_round_trip(ProgressEvent{128, 4000});
  check_round_trip(ProgressEvent{12, 12, CanvasState{1, 3, 8, {" Once", ""}, {0.75f, 0}}});
  check_round_trip(StartedEvent{"stories", 12, 8, 1.5, 200, {"the format 'x'"}});
  check_round_trip(PromptLogprobsEvent{{-0.5f, -12.25f}});
  check_round_trip(PromptLogprobsEvent{{-0.5f}, {1, 2}, {"a", "b"}, {{{2, -0.5f, "b"}}}});
  check_round_trip(AttachedEvent{"r1", "stories", true, {0, 64}});
  check_round_trip(EmbedReply{"stories", 2, {3}, {"AACAPwAAAAA="}});
  check_round_trip(SampleDoneEvent{1, "length", 77, ""});
  check_round_trip(SampleDoneEvent{0, "stop", 3, "\n\n"});
  check_round_trip(DoneEvent{{"stop", "length"},
                             "stories",
                             UINT64_MAX,
                             {12, 8, 200},
                             {0.5, 20.25, 31, 11.875, 2400.5},
                             1,
                             "from token 8 on: it ends there",
                             2,
                             0.75,
                             {40,
                              96,
                              71,
                              {40, 32, 24},
                              {33, 22, 16},
                              1.775,
                              -61.5,
                              {{"mtp", 30, 21}, {"lookup", 66, 50}}}});
  check_round_trip(PongReply{"8f3c", 4242, "0.1.0", 86'400'000, true});
  check_round_trip(TokenizeReply{
      "stories", {1, 2, 3}, {"<s>", "\xE2\x96\x81the", "<0x0A>"}, "<s>the\n", "<s>", "</s>"});
  check_round_trip(CancelReply{"r1"});
  check_round_trip(ModelsReply{{model(), {}}, {"/var/lib/hearth/models"}});
  check_round_trip(
      PsReply{{{"r1", "uid:1000", "stories", "decode", "normal", 12, 30, 456}}, {model()}});
  StatsReply stats{"8f3c", "0.1.0", 5, 1, 2, 3, 4, 5, 6, {}};
  stats.workers.push_back({"stories", "cpu", "ready", 7, 1, 20, snapshot()});
  check_round_trip(stats);
  CHECK(encode_event(stats).find("gpu") == std::string::npos);
  stats.workers[0].snapshot.gpu = gpu();
  stats.workers[0].snapshot.device_memory = {uint64_t{1} << 37, 2, 3, 4};
  check_round_trip(stats);
  check_round_trip(HealthReply{"degraded", {"worker of stories restarts"}});
  check_round_trip(LoadingEvent{"stories", "reading", 5, uint64_t{1} << 40, 1500});
  check_round_trip(LoadReply{"stories", 1200, 300'000, 77, "small"});
  check_round_trip(UnloadReply{"stories", true});
  check_round_trip(UnloadReply{"stories", true, true});
  check_round_trip(SwapReply{"default", "stories", "tales", 3});
  check_round_trip(CacheReply{false, "ls: \"quoted\"\n"});
}

TEST_CASE("errors keep code, message, field and retry") {
  const ErrorEvent busy{{ErrorCode::kBusy, "met 256 waiting, want fewer", "model"}, 250};
  const auto back = decode_event(encode_event(busy));
  REQUIRE(back.ok());
  const auto& error = std::get<ErrorEvent>(*back);
  CHECK(error.error.code == ErrorCode::kBusy);
  CHECK(error.error.message == busy.error.message);
  CHECK(error.error.field == "model");
  CHECK(error.retry_ms == 250);
  CHECK(
      encode_event(busy) ==
      R"({"event":"error","code":"busy","message":"met 256 waiting, want fewer","field":"model","retry_ms":250})");
}

TEST_CASE("the wire format matches the documentation") {
  CHECK(encode_event(QueuedEvent{"loading", 1, 0}) ==
        R"({"event":"queued","reason":"loading","position":1,"estimate_ms":0})");
  CHECK(encode_event(CancelReply{"r1"}) == R"({"event":"reply","verb":"cancel","id":"r1"})");
  // Floats are written with the fewest digits that read back to the bit.
  CHECK(encode_event(PromptLogprobsEvent{{-0.1f}}) ==
        R"({"event":"prompt_logprobs","logprobs":[-0.1],"ids":[],"texts":[],"top":[]})");
}

TEST_CASE("text that is not UTF-8 cannot break an answer") {
  const auto back = decode_event(encode_event(HealthReply{"ok", {"bad \xFF byte"}}));
  REQUIRE(back.ok());
  CHECK(std::get<HealthReply>(*back).problems[0] == "bad \xEF\xBF\xBD byte");
}

TEST_CASE("numbers that JSON cannot represent are left out") {
  DoneEvent done;
  done.timings.tpot_ms = std::numeric_limits<double>::quiet_NaN();
  done.bandwidth_share = std::numeric_limits<double>::infinity();
  const auto back = decode_event(encode_event(done));
  REQUIRE(back.ok());
  CHECK(std::get<DoneEvent>(*back).timings.tpot_ms == 0);
  CHECK(std::get<DoneEvent>(*back).bandwidth_share == 0);
}

TEST_CASE("unknown members are skipped, unknown events are distinguished from broken ones") {
  const auto more = decode_event(R"({"event":"queued","reason":"x","future":[{}]})");
  REQUIRE(more.ok());
  CHECK(std::get<QueuedEvent>(*more).reason == "x");
  CHECK(decode_event(R"({"event":"sung"})").error().code == ErrorCode::kUnsupported);
  CHECK(decode_event(R"({"event":"reply","verb":"sing"})").error().code == ErrorCode::kUnsupported);
  CHECK(decode_event(R"({"reason":"x"})").error().code == ErrorCode::kProtocol);
  CHECK(decode_event(R"({"event":7})").error().code == ErrorCode::kProtocol);
  for (const char* wrong :
       {R"({"event":"queued","position":"1"})", R"({"event":"queued","position":2147483648})",
        R"({"event":"queued","position":1.5})", R"({"event":"queued","reason":[]})",
        R"({"event":"done","usage":7})", R"({"event":"done","usage":{"prompt_tokens":-1e9}})",
        R"({"event":"done","seed":-1})", R"({"event":"done","finish_reasons":[1]})",
        R"({"event":"prompt_logprobs","logprobs":[1e308]})"}) {
    const auto decoded = decode_event(wrong);
    REQUIRE_MESSAGE(!decoded.ok(), wrong);
    CHECK(decoded.error().code == ErrorCode::kInvalidArgument);
  }
}

TEST_CASE("the kind of an event is read from its first member alone") {
  CHECK(event_kind(encode_event(QueuedEvent{})) == EventKind::kQueued);
  CHECK(event_kind(encode_event(ProgressEvent{})) == EventKind::kProgress);
  CHECK(event_kind(encode_event(StartedEvent{})) == EventKind::kStarted);
  CHECK(event_kind(encode_event(PromptLogprobsEvent{})) == EventKind::kPromptLogprobs);
  CHECK(event_kind(encode_event(SampleDoneEvent{})) == EventKind::kSampleDone);
  CHECK(event_kind(encode_event(DoneEvent{})) == EventKind::kDone);
  CHECK(event_kind(encode_event(ErrorEvent{})) == EventKind::kError);
  CHECK(event_kind(encode_event(LoadingEvent{})) == EventKind::kLoading);
  CHECK(event_kind(encode_event(AttachedEvent{})) == EventKind::kAttached);
  CHECK(event_kind(encode_event(LoadReply{})) == EventKind::kReply);
  CHECK(event_kind(encode_event(EmbedReply{})) == EventKind::kReply);
  CHECK(event_kind(R"({"event":"done",rubbish)") == EventKind::kDone);
  for (const char* unknown : {"", "{}", R"({"event":"load"})", R"({"event":"sung"})",
                              R"({"event":"don)", R"({"id":1,"event":"done"})"}) {
    CHECK_MESSAGE(!event_kind(unknown).has_value(), unknown);
  }
}

TEST_CASE("a worker's messages read back unchanged") {
  check_worker_round_trip(WorkerHello{4242, "0.1.0", "cpu"});
  check_worker_round_trip(WorkerLoadProgress{1u << 20, uint64_t{1} << 33, "warming_up"});
  check_worker_round_trip(WorkerReady{
      "stories", "llama", "Stories", "F32", "ab12", "cpu avx2", 512, 512, 260'000, 1, 2, 300,
      "small", SamplingDefaults{.top_k = 7}, ExpertUse{10, 20, 0.25}, true, 16, 640});
  check_worker_round_trip(WorkerHeartbeat{snapshot()});
  check_worker_round_trip(WorkerStopped{});
  check_worker_round_trip(WorkerAsleep{1'200'000});
  check_worker_round_trip(WorkerPlan{uint64_t{1} << 40, 2, 3, uint64_t{1} << 41, 5});
  const auto failed = decode_worker_event(
      encode_worker_event(WorkerFailed{{ErrorCode::kCorrupt, "blk.0.attn_q: cut", ""}}));
  REQUIRE(failed.ok());
  CHECK(std::get<WorkerFailed>(*failed).error.code == ErrorCode::kCorrupt);
  CHECK(std::get<WorkerFailed>(*failed).error.message == "blk.0.attn_q: cut");
  CHECK_FALSE(decode_worker_event(R"({"event":"queued"})").ok());
  for (const WorkerControl control :
       {WorkerControl::kCancel, WorkerControl::kDrain, WorkerControl::kStop,
        WorkerControl::kKvBound, WorkerControl::kSleep, WorkerControl::kWake}) {
    CHECK(*decode_worker_control(encode_worker_control(control)) == control);
  }
  CHECK_FALSE(decode_worker_control(R"({"control":"dance"})").ok());
}

TEST_CASE("facts of a file read back unchanged") {
  const FileFacts facts{.architecture = "llama",
                        .file_type = "Q8_0",
                        .num_parameters = 260'000,
                        .context_length = 512,
                        .sampling = {.top_k = 3, .min_p = 0.25f},
                        .chat_template = true};
  const auto met = decode_file_facts(encode_file_facts(facts));
  REQUIRE(met.ok());
  CHECK(*met == facts);
  CHECK_FALSE(decode_file_facts("").ok());
  CHECK_FALSE(decode_file_facts(R"({"context_length":"many"})").ok());
}

TEST_CASE("a delta's header, ids and logprobs agree or it is refused") {
  const std::vector<int32_t> ids = {5, 6};
  const std::vector<TokenLogprobs> logprobs = {{-0.5f, {{5, -0.5f, " a"}, {9, -1.25f}}, " a"},
                                               {-2.0f, {}}};
  const std::string payload = encode_delta_payload({0, 10, 2, 0}, "two");
  const std::string id_bytes = encode_ids(ids);
  const std::string json = encode_logprobs(logprobs);
  const auto delta = decode_delta({true, {}, payload, id_bytes, json});
  REQUIRE(delta.ok());
  CHECK(delta->header == DeltaHeader{0, 10, 2, 0});
  CHECK(delta->text == "two");
  CHECK(delta->ids == ids);
  CHECK(delta->logprobs == logprobs);
  CHECK(decode_delta({true, {}, payload, id_bytes, {}})->logprobs.empty());

  const std::vector<DeltaPart> parts = {
      {DeltaChannel::kText, "a"}, {DeltaChannel::kReasoning, "b"}, {DeltaChannel::kText, "c"}};
  const std::string with_parts = encode_delta_payload({0, 10, 2, 0}, parts);
  const auto parted = decode_delta({true, {}, with_parts, id_bytes, {}});
  REQUIRE(parted.ok());
  CHECK(parted->parts == parts);
  CHECK(parted->text == "ac");
  CHECK(delta_as_json(*parted).find(R"("parts":[{"channel":"text","text":"a"},)") !=
        std::string::npos);
  CHECK_FALSE(decode_delta({true, {}, with_parts + "x", id_bytes, {}}).ok());
  const ToolCall call{1, "a1B2c3D4e", "f"};
  CHECK(decode_tool_call(encode_tool_call(call)).value() == call);

  const std::string one_id = encode_ids(std::vector<int32_t>{5});
  const std::string one_logprob = encode_logprobs({logprobs.data(), 1});
  CHECK_FALSE(decode_delta({true, {}, payload, one_id, {}}).ok());
  CHECK_FALSE(decode_delta({true, {}, payload, id_bytes, one_logprob}).ok());
  for (const char* bad :
       {"x", "[", "7", "{}", "[1,2]", "[],\"x\":[]", "[{\"logprob\":\"1\"},{}]"}) {
    CHECK_FALSE(decode_delta({true, {}, payload, id_bytes, bad}).ok());
  }
}

}  // namespace
}  // namespace hearth::ipc
