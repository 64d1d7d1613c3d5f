// The command line's parts that need no process: output to a terminal, flags as fields, the
// machine's texts.

#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "ipc/cli/answer/canvas_screen.h"
#include "ipc/cli/answer/loading_status.h"
#include "ipc/cli/answer/run_fields.h"
#include "ipc/cli/answer/timing_line.h"
#include "ipc/cli/doctor/doctor_worker.h"
#include "ipc/cli/doctor/machine.h"
#include "ipc/cli/parse.h"
#include "ipc/cli/terminal/input.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"
#include "ipc/text/utf8.h"
#include "tests/temp_dir.h"

namespace hearth::cli {
namespace {

Parsed parse_words(std::vector<std::string> words) {
  words.insert(words.begin(), "hearth");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return parse(static_cast<int>(argv.size()), argv.data());
}

TEST_CASE("control characters are shown on a terminal and have no effect") {
  CHECK(terminal_safe("plain\n\ttext \xC3\xA9\xF0\x9F\x94\xA5") ==
        "plain\n\ttext \xC3\xA9\xF0\x9F\x94\xA5");
  CHECK(terminal_safe("\x1b[31mred") == "␛[31mred");
  CHECK(terminal_safe("\x1b]0;title\x07") == "␛]0;title␇");
  CHECK(terminal_safe(std::string("\r\b\0", 3)) == "␍␈␀");
  CHECK(terminal_safe("\x7F") == "␡");
  CHECK(terminal_safe("\xC2\x9B"
                      "31m") ==
        "\xEF\xBF\xBD"
        "31m");
  CHECK(terminal_safe("\xC2\xA0\xC2\xBF") == "\xC2\xA0\xC2\xBF");
  std::string all;
  for (int c = 1; c < 128; ++c) all += static_cast<char>(c);
  const std::string shown = terminal_safe(all);
  CHECK(ipc::is_valid_utf8(shown));
  for (const char c : shown) {
    const auto byte = static_cast<unsigned char>(c);
    CHECK((byte >= 0x20 || byte == '\n' || byte == '\t'));
    CHECK(byte != 0x7F);
  }
}

TEST_CASE("a canvas is drawn over its last drawing, after the whole text's last line") {
  CanvasScreen screen(10);
  CHECK(screen.clear().empty());
  ipc::CanvasState canvas{0, 1, 4, {"a", "", "b\n", ""}, {0.75f, 0, 0.25f, 0}};
  CHECK(screen.draw(canvas) ==
        "\ra\x1b[2m\xE2\x96\x91"
        "b \xE2\x96\x91\x1b[0m");
  CHECK(screen.clear() == "\r\x1b[J");
  CHECK(screen.clear().empty());
  // Two tokens are text now, on a second line.
  screen.note("one\nline two", 2);
  canvas.confidence = {1, 1, 1, 1};
  canvas.texts = {"x", "x", "cccc", "\x1b[m"};
  CHECK(screen.draw(canvas) == "\rline twocccc␛[m");
  // 15 columns are two rows of ten: one up, to the beginning, everything after it away.
  CHECK(screen.draw(canvas) == "\x1b[1A\r\x1b[Jline two\rline twocccc␛[m");
  // What would leave the terminal is left out.
  canvas.texts.assign(300, "1234567890");
  canvas.confidence.assign(300, 1);
  CHECK(screen.draw(canvas).size() < 200);
}

TEST_CASE("ps, stats and top have a line for each GPU that reports values, and none for others") {
  ipc::PsReply ps;
  ps.models.resize(2);
  ps.models[0].name = "tales";
  ps.models[1].name = "large";
  ipc::StatsReply stats;
  stats.workers.resize(2);
  CHECK(ps_text(ps).find("NVIDIA") == std::string::npos);
  ipc::GpuSnapshot gpu;
  gpu.name = "NVIDIA \x1b[31m";  // from a driver
  gpu.power_mw = 412'345;
  gpu.power_limit_mw = 700'000;
  gpu.driver = "580.65.06";
  ps.models[1].gpu = gpu;
  stats.workers[1].snapshot.gpu = gpu;
  const std::string line = "NVIDIA ␛[31m: 412 W of 700, driver 580.65.06\n";
  const auto count = [&line](const std::string& text) {
    size_t met = 0;
    for (size_t at = text.find(line); at != text.npos; at = text.find(line, at + 1)) ++met;
    return met;
  };
  CHECK(count(ps_text(ps)) == 1);
  CHECK(ps_text(ps).find("large") < ps_text(ps).find(line));
  CHECK(count(stats_text(stats)) == 1);
  CHECK(count(top_text(stats, ps, 100)) == 1);
}

TEST_CASE("stats show what was reserved of a device's memory, and what was taken of it") {
  ipc::StatsReply stats;
  ipc::WorkerSnapshot& snapshot = stats.workers.emplace_back().snapshot;
  CHECK(stats_text(stats).find("planned") == std::string::npos);
  snapshot.device_memory = {uint64_t{5} << 30, 192 << 20, 96 << 20, 32 << 20};
  CHECK(stats_text(stats).find("  device      5.0 GiB planned; 192.0 MiB reserved, 96.0 MiB taken "
                               "of it, 32.0 MiB by graphs\n") != std::string::npos);
}

TEST_CASE("stats and top show drafts by proposer and by place, and the time that they saved") {
  ipc::StatsReply stats;
  ipc::SpeculationStats& drafts = stats.workers.emplace_back().snapshot.speculation;
  CHECK(stats_text(stats).find("drafted") == std::string::npos);
  CHECK(top_text(stats, {}, 100, 80).find("drafts") == std::string::npos);
  drafts = {40,          96,  48,     {40, 32, 24},
            {30, 12, 6}, 1.2, 61'540, {{"mtp", 90, 45}, {"lookup", 6, 3}}};
  CHECK(stats_text(stats).find(
            "  speculation 96 drafted, 48 accepted (50.0 %), 1.20 per verification, saved 61.5 s\n"
            "              by mtp: 90 drafted, 45 accepted (50.0 %)\n"
            "              by lookup: 6 drafted, 3 accepted (50.0 %)\n"
            "              right by place: 75 38 25 %\n") != std::string::npos);
  CHECK(top_text(stats, {}, 100, 80)
            .find("  drafts right by mtp: 45 of 90, lookup: 3 of 6; saved 61.5 s\n"
                  "  by place 75 38 25 %\n") != std::string::npos);
}

TEST_CASE("stats, top and ps show the remote of a role, and which request is there") {
  ipc::StatsReply stats;
  stats.remotes = {{.role = "code",
                    .remote = "gpu.example.com",
                    .requests_live = 1,
                    .requests_sent = 9,
                    .requests_done = 3,
                    .requests_failed = 2,
                    .requests_returned = 2,
                    .requests_cancelled = 1,
                    .output_tokens_total = 620}};
  CHECK(stats_text(stats).find("remote of code: gpu.example.com, 1 live, 9 sent: 3 done, 2 failed, "
                               "2 returned, 1 cancelled; 620 tokens\n") != std::string::npos);
  ipc::PsReply ps;
  ps.requests = {{"r1", "uid:1000", "qwen", "remote", "normal", 0, 0, 10, "gpu.example.com"}};
  CHECK(ps_text(ps, 120).find("remote gpu.example.com") != std::string::npos);
  CHECK(top_text(stats, ps, 100, 120)
            .find("remote of code: gpu.example.com  1 live, 3 done, 2 failed\n") !=
        std::string::npos);
}

TEST_CASE("stats show host memory used as a tier of a GPU, with a store on disk or without") {
  ipc::StatsReply stats;
  ipc::StoreSnapshot& store = stats.workers.emplace_back().snapshot.store;
  CHECK(stats_text(stats).find("host memory") == std::string::npos);
  store.ram_budget_bytes = uint64_t{4} << 30;
  store.ram_bytes = uint64_t{1} << 30;
  store.ram_pinned_bytes = 512 << 20;
  store.ram_chunks = 1000;
  store.ram_loaded = 17;
  store.ram_evicted = 3;
  CHECK(stats_text(stats).find("  host memory 1.0 GiB of 4.0 GiB for the GPU, 512.0 MiB of it "
                               "pinned: 1000 chunks, 17 loaded, 3 evicted\n") != std::string::npos);
}

TEST_CASE("tokenize: the model is the first word, or --model's and then every word is text") {
  Parsed parsed = parse_words({"tokenize", "tales", "Once", "upon", "--special", "--ids"});
  REQUIRE_FALSE(parsed.finished);
  CHECK(parsed.options.tokenize.model == "tales");
  CHECK(parsed.options.tokenize.text_words == std::vector<std::string>{"Once", "upon"});
  CHECK(parsed.options.tokenize.parse_special);
  CHECK(parsed.options.tokenize.ids);
  parsed = parse_words({"tokenize", "--model", "tales", "Once", "upon"});
  CHECK(parsed.options.tokenize.model == "tales");
  CHECK(parsed.options.tokenize.text_words == std::vector<std::string>{"Once", "upon"});
  parsed = parse_words({"tokenize"});
  CHECK(parsed.finished);
  CHECK(parsed.status == kUsage);
}

TEST_CASE("a worker's verb is passed on as it is written") {
  const Parsed parsed = parse_words({"inspect", "--help", "--no-such-flag", "a b"});
  CHECK_FALSE(parsed.finished);
  CHECK(parsed.options.passed_on ==
        std::vector<std::string>{"inspect", "--help", "--no-such-flag", "a b"});
}

TEST_CASE("the timing line") {
  ipc::DoneEvent done;
  done.usage = {12, 8, 100};
  done.timings.ttft_ms = 31.2;
  done.timings.tpot_ms = 11.876;
  done.finish_reasons = {"stop"};
  CHECK(timing_line(done) == "prompt 12 (cached 8) · TTFT 31 ms · 84.2 tokens/s · stop");
  ipc::DoneEvent restored = done;
  restored.usage.cached_disk_tokens = 6;
  restored.timings.saved_ms = 12'340;
  CHECK(timing_line(restored) ==
        "prompt 12 (cached 8, 6 from disk) · TTFT 31 ms · saved 12.3 s · 84.2 tokens/s · stop");
  done.timings.tpot_ms = 0;  // one token: no rate
  done.finish_reasons = {"length", "stop"};
  done.resumed = 1;
  CHECK(timing_line(done) == "prompt 12 (cached 8) · TTFT 31 ms · length, stop · resumed 1x");
  done.resumed = 0;
  done.usage.drafted_tokens = 40;
  done.usage.accepted_tokens = 31;
  CHECK(timing_line(done) ==
        "prompt 12 (cached 8) · TTFT 31 ms · drafted 40, accepted 31 · length, stop");
  done.speculation.by = {{"mtp", 30, 25}, {"lookup", 10, 6}};
  CHECK(timing_line(done) ==
        "prompt 12 (cached 8) · TTFT 31 ms · drafted 40, accepted 31 "
        "(mtp, lookup) · length, stop");
}

TEST_CASE("sizes and times for people") {
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(1023) == "1023 B");
  CHECK(human_bytes(1536) == "1.5 KiB");
  CHECK(human_bytes(UINT64_MAX) == "16384.0 PiB");
  CHECK(human_count(999) == "999");
  CHECK(human_count(1'100'000) == "1.1 M");
  CHECK(human_duration(850) == "850 ms");
  CHECK(human_duration(12'340) == "12.3 s");
  CHECK(human_duration(3'725'000) == "1 h 2 min");
  CHECK(human_duration(200'000'000) == "2 d 7 h");
}

TEST_CASE("flags become the fields of a request") {
  const Parsed parsed = parse_words({"run",
                                     "tales",
                                     "Once",
                                     "upon",
                                     "--max-tokens",
                                     "7",
                                     "--temperature",
                                     "0",
                                     "--seed",
                                     "18446744073709551615",
                                     "--stop",
                                     "END",
                                     "--stop",
                                     "a\"b",
                                     "--stop-ids",
                                     "2",
                                     "--logit-bias",
                                     "3=-100",
                                     "--logit-bias",
                                     "4=1.5",
                                     "--penalty-window",
                                     "-1",
                                     "--ignore-eos",
                                     "--cache",
                                     "off",
                                     "--priority",
                                     "batch",
                                     "--json"});
  REQUIRE_FALSE(parsed.finished);
  CHECK(parsed.options.verb == "run");
  const RunOptions& run = parsed.options.run;
  CHECK(run.json);
  CHECK(run.prompt_words == std::vector<std::string>{"Once", "upon"});
  const auto request = request_from_flags(run.model, "Once upon", run.fields);
  REQUIRE_MESSAGE(request.ok(), (request.ok() ? "" : request.error().message));
  ipc::GenerateRequest want;
  want.model = "tales";
  want.prompt = "Once upon";
  want.max_tokens = 7;
  want.temperature = 0;
  want.seed = UINT64_MAX;
  want.stop = {"END", "a\"b"};
  want.stop_ids = {2};
  want.logit_bias = {{3, -100.0f}, {4, 1.5f}};
  want.penalty_window = -1;
  want.ignore_eos = true;
  want.cache = "off";
  want.priority = "batch";
  CHECK(*request == want);
}

TEST_CASE("a bad value of a flag is refused by its field's name") {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"temperature", "-1"}, {"temperature", "hot"}, {"temperature", "NaN"},
      {"temperature", "1e"}, {"temperature", ""},    {"temperature", "0,5"},
      {"max_tokens", "-1"},  {"max_tokens", "1.5"},  {"max_tokens", "1e308"},
      {"max_tokens", "07"},  {"seed", "-1"},         {"seed", "18446744073709551616"},
      {"priority", "now"},   {"stop", ""},           {"stop_ids", "x"},
      {"stop_ids", "1,2"},   {"logit_bias", "3"},    {"logit_bias", "=1"},
      {"logit_bias", "3="},  {"logit_bias", "3=1]"}, {"temperature", "1,\"top_k\":1"},
  };
  for (const auto& [field, value] : bad) {
    const auto request = request_from_flags("m", "p", {{field, value}});
    REQUIRE_MESSAGE(!request.ok(), field << " " << value);
    CHECK_MESSAGE(request.error().field == field, value << ": " << request.error().message);
  }
  // The last of two plain values counts.
  CHECK(request_from_flags("m", "p", {{"top_k", "1"}, {"top_k", "2"}})->top_k == 2);
  CHECK(request_from_flags("m", "", {{"prompt_ids", "1"}, {"prompt_ids", "5"}})->prompt_ids ==
        std::vector<int32_t>{1, 5});
  CHECK(request_from_flags("m", "both", {{"prompt_ids", "1"}}).error().field == "prompt_ids");
  CHECK(request_from_flags("", "p", {}).error().field == "model");
}

TEST_CASE("an invalid command line ends with the usage status") {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{},
                                             {"sing"},
                                             {"run"},
                                             {"run", "m", "--bogus"},
                                             {"cancel"},
                                             {"ping", "--wait-ms", "x"},
                                             {"ping", "--wait-ms", "-5"},
                                             {"run", "m", "--top-k"}}) {
    const Parsed parsed = parse_words(words);
    CHECK(parsed.finished);
    CHECK(parsed.status == kUsage);
  }
}

TEST_CASE("text comes from words or a file, and is UTF-8") {
  tests::TempDir temp;
  const std::string good = temp.path() / "good.txt", bad = temp.path() / "bad.txt";
  std::ofstream(good) << "two\nlines\n";
  std::ofstream(bad) << "ab\xFF";
  CHECK(*read_text({"a", "b c"}, "") == "a b c");
  CHECK(*read_text({}, good) == "two\nlines");
  CHECK(read_text({}, bad).error().message == "byte 3 is not UTF-8");
  CHECK(read_text({"\xFF"}, "").error().code == ErrorCode::kInvalidArgument);
  CHECK(read_text({"a"}, good).error().code == ErrorCode::kInvalidArgument);
  CHECK(read_text({}, (temp.path() / "absent").string()).error().code == ErrorCode::kIo);
  CHECK(read_text({}, temp.path().string()).error().code == ErrorCode::kIo);
}

TEST_CASE("the doctor reads the kernel's texts") {
  const CpuFacts intel = parse_cpuinfo(
      "processor\t: 0\nmodel name\t: Example CPU @ 2.0GHz\nphysical id\t: 0\ncore id\t\t: 0\n"
      "flags\t\t: fpu sse2 avx2 fma f16c avx512f avx512_vnni\n\n"
      "processor\t: 1\nmodel name\t: Example CPU @ 2.0GHz\nphysical id\t: 0\ncore id\t\t: 0\n"
      "flags\t\t: fpu sse2 avx2 fma f16c avx512f avx512_vnni\n\n"
      "processor\t: 2\nphysical id\t: 1\ncore id\t\t: 0\n");
  CHECK(intel.model == "Example CPU @ 2.0GHz");
  CHECK(intel.num_threads == 3);
  CHECK(intel.num_cores == 2);
  CHECK(useful_features(intel) == "avx2 fma f16c avx512 avx512-vnni");
  const CpuFacts arm = parse_cpuinfo("processor\t: 0\nFeatures\t: fp asimd asimddp\n");
  CHECK(arm.num_cores == 0);
  CHECK(useful_features(arm) == "neon dotprod");
  CHECK(parse_cpuinfo("").num_threads == 0);

  const MemoryFacts memory = parse_meminfo(
      "MemTotal:       24000000 kB\nMemFree: 1 kB\nMemAvailable:   20000000 kB\n"
      "Hugepagesize:       2048 kB\nbroken line\n");
  CHECK(memory.total_bytes == 24'000'000ull * 1024);
  CHECK(memory.available_bytes == 20'000'000ull * 1024);
  CHECK(memory.huge_page_bytes == 2u << 20);
  CHECK(parse_choice("always [madvise] never\n") == "madvise");
  CHECK(parse_choice("] [") == "");
  CHECK(parse_choice("") == "");
}

TEST_CASE("a worker's description of itself is validated") {
  const std::vector<Check> checks = {{Level::kOk, "cpu path", "avx512-vnni"},
                                     {Level::kFail, "gpu", "no driver"}};
  const auto back = parse_worker_checks(checks_as_json(checks));
  REQUIRE(back.ok());
  REQUIRE(back->size() == 2);
  CHECK((*back)[1].level == Level::kFail);
  CHECK((*back)[1].name == "gpu");
  CHECK((*back)[1].detail == "no driver");
  CHECK(parse_worker_checks(R"({"checks":[{"level":"new","name":7}]})")->front().level ==
        Level::kWarn);
  for (const char* bad : {"", "ok cpu", "[]", "{}", R"({"checks":7})", R"({"checks":[7]})"}) {
    CHECK_FALSE(parse_worker_checks(bad).ok());
  }
  CHECK_FALSE(ask_worker("/nonexistent/worker").ok());
  CHECK_FALSE(ask_worker("/bin/true").ok());  // prints nothing
}

TEST_CASE("the progress of a load, in words") {
  CHECK(loading_text({"tales", "reading", 1u << 30, 3u << 30, 2000}) ==
        "tales: reading 1.0 GiB of 3.0 GiB, 2.0 s left");
  CHECK(waiting_text({"slots", 2, 3000}) == "waiting: slots, 2 ahead, about 3.0 s");
  CHECK(waiting_text({"busy", 0, 0}) == "waiting: busy");
  CHECK(loading_text({"tales", "room", 0, 0, 0}) == "tales: waiting for room");
  CHECK(loading_text({"tales", "something new", 0, 0, 0}) == "tales: something new");
}

TEST_CASE("a keep-alive is a number with a unit, or never") {
  CHECK(parse_keep_alive("90").value() == 90'000);
  CHECK(parse_keep_alive("90s").value() == 90'000);
  CHECK(parse_keep_alive("30m").value() == 1'800'000);
  CHECK(parse_keep_alive("168h").value() == 604'800'000);
  CHECK(parse_keep_alive("never").value() == 0);
  for (const char* wrong :
       {"", "0", "-1s", "169h", "1.5h", "h", "10 m", "10d", "99999999999999999999"}) {
    const Result<int64_t> parsed = parse_keep_alive(wrong);
    REQUIRE_FALSE_MESSAGE(parsed.ok(), wrong);
    CHECK(parsed.error().code == ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace hearth::cli
