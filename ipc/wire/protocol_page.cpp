#include "ipc/wire/protocol_page.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "ipc/schema/field_table.h"
#include "ipc/wire/codec.h"
#include "kernels/base/numbers.h"

namespace hearth::ipc {
namespace {

constexpr std::string_view kFramesSection = R"(# HEARTH/1

Local programs send requests to the daemon over a ZeroMQ socket: a DEALER connects to `api.sock` in
the runtime directory. That is `/run/hearth` for the service; for a user `$XDG_RUNTIME_DIR/hearth`,
or `~/.cache/hearth/run` if that variable is unset. `HEARTH_RUNTIME_DIR` overrides all of these. JSON
is UTF-8. `hearth protocol` prints this page from the table that the daemon checks requests against.

## Frames

| client sends | daemon answers |
|---|---|
| `HEARTH/1` | `HEARTH/1` |
| request id | the same request id |
| JSON request | `event`, then JSON; or |
| | `delta`, then header and text, then token ids, then logprobs (if requested) |

A request id is 1 to 64 visible ASCII characters, chosen by the client and unique among the live
requests of its user. The kernel reports which user a connection belongs to; the daemon believes no
message about that.

A delta's header is 16 bytes, four little-endian 32-bit numbers: sample, index of the delta's first
token among the sample's generated tokens, number of tokens, number of parts.

* If the number of parts is 0, UTF-8 text follows in the same frame. An incomplete character waits for
  the next delta.
* Answers to `messages` can have parts instead. A part is two little-endian 32-bit numbers, channel
  and number of bytes, and then that many bytes of UTF-8. Channel 0 is text. Channel 1 is reasoning,
  if the model's template marks it. Channel 2 begins a call of a function,
  `{"index":0,"id":"a1B2c3D4e","name":"f"}`. Channel 3 is more of that call's arguments, as JSON text.

The ids frame holds the delta's token ids, each a little-endian 32-bit number. If a delta's first
index is not the expected one, a delta was lost. Deltas of an answer that a remote gave have text and
no tokens. The logprobs frame is a JSON list with one
`{"logprob":x,"top":[{"token":i,"logprob":x,"text":"a"}],"text":"a"}` per token. If the bytes of a
token are not valid UTF-8 by themselves, its text is `bytes:\xe2\x82`, in hexadecimal.

A request is answered by these events (\*: any number of them):

* `generate`: `queued`\*, `progress`\*, `started`, `prompt_logprobs` (if requested), deltas, one
  `sample_done` per sample, and last `done` or `error`.
* `fork`: the same.
* `attach`: `attached`, and then the same. What was already sent comes first, with the events in the
  order above.
* `load`, `unload`, `swap`: `loading`\*, and then `reply` or `error` when it is done, which may take long.
* `record`: see below.
* every other verb: one `reply` or `error`.

Skip events and members that you do not know.

`queued` reports why a request waits: `loading`, `busy` and `recovering` for a worker; `slots`,
`blocks`, `fairness` and `restoring` in the worker's queue. It also has the number of requests of this
model that wait ahead, and an estimate of the time until the request starts. While the model loads, that
is the time that its last load took; in the worker's queue it follows from the durations of recent
requests. It is 0 if it is unknown, as it is for `busy`.

`progress` with a `canvas` (of a model that denoises) also comes between the deltas, at most every 100 ms:
the texts of the canvas's tokens, empty where they are masked, and how sure each was when it was filled.

A request is refused with an `error` if it has more than 32 MiB or more than 32 levels, or if a field
is unknown, given twice or out of range; the error names the field. Where the table has integer, a
number must not have a fraction or an exponent. Integers go up to 2^64 - 1: keep all their digits when
you parse.
)";

struct VerbMeaning {
  Verb verb;
  std::string_view meaning;
};
constexpr VerbMeaning kVerbMeanings[] = {
    {Verb::kGenerate, "Continues a prompt."},
    {Verb::kTokenize,
     "Turns text into token ids with the model's tokenizer, or ids into text; may load the model."},
    {Verb::kEmbed,
     "Computes a vector for each text, with an embedding model or from a decoder's last rows. Each "
     "vector is f32, little endian, in base64."},
    {Verb::kAttach,
     "Sends the answers of one of the caller's own requests: those already sent, from a given "
     "token on, and then new\nones as they come. It works from another connection too, and for a "
     "short while after the request's end. `from` in\n`attached` is the first token of each sample "
     "that follows. It is later than the given one if the daemon has\nno memory left for older "
     "tokens. When this client leaves, the request goes on."},
    {Verb::kFork,
     "Generates new samples that continue what such a request has generated so far, or an earlier "
     "token of it. The new\nrequest has all tokens up to there as its prompt. Settings that are "
     "not given are those of the forked request.\nKV blocks of a running request are shared, not "
     "computed again."},
    {Verb::kCancel,
     "Ends a live request of the same user; that request's `done` has the reason `cancelled`."},
    {Verb::kPing,
     "Checks that the daemon answers. If `instance` has changed, the daemon was restarted, and "
     "earlier requests are gone."},
    {Verb::kModels, "Lists the models that can be named, and the folders searched."},
    {Verb::kPs,
     "Lists the caller's live requests (for an administrator those of all users) and the resident "
     "models."},
    {Verb::kStats, "Reports counters since the start, and each worker's last state."},
    {Verb::kHealth, "Reports whether the daemon can serve, and what is wrong if it cannot."},
    {Verb::kLoad, "Loads a model into memory. For administrators, like the next two verbs."},
    {Verb::kUnload,
     "Removes a model from memory once its requests have ended; a later request loads it again."},
    {Verb::kSwap,
     "Loads a model and then points a role at it, until the daemon ends. Running requests continue "
     "with the old model.\nIf the new one cannot be loaded, the role does not change."},
    {Verb::kCache,
     "Manages the caller's prefixes on disk, whether or not their model is resident."},
    {Verb::kRecord,
     "Sends the caller's own `generate` and `embed` requests that arrive from now on, over any "
     "socket: `recording` first,\nthen `recorded` for each request as it ends, until the "
     "connection "
     "ends. An administrator, too, receives only requests\nof the same user. Refused over TCP. If "
     "the connection does not read, records are lost, and another `recording`\nreports how many so "
     "far. Forks are not recorded."},
};

std::string type_of(const Field& field) {
  switch (field.type) {
    case FieldType::kBool: return "true or false";
    case FieldType::kInteger: return "integer";
    case FieldType::kSeed: return "integer";
    case FieldType::kNumber: return "number";
    case FieldType::kText:
    case FieldType::kName: return "string";
    case FieldType::kChoice: return "string";
    case FieldType::kTextList: return "list of strings";
    case FieldType::kIdList: return "list of integers";
    case FieldType::kIdLists: return "list of lists of integers";
    case FieldType::kLogitBias: return "list of pairs";
    case FieldType::kObjects: return "list of objects";
    case FieldType::kObject: return "object";
  }
  return "";
}

/// 1e6 as 1000000: {:.15g} keeps integers of the table whole.
std::string plain(double number) { return fmt::format("{:.15g}", number); }

std::string range_of(const Field& field) {
  std::string range = fmt::format("{} to {}", plain(field.min), plain(field.max));
  switch (field.type) {
    case FieldType::kBool: return "";
    case FieldType::kInteger:
    case FieldType::kNumber: return range;
    case FieldType::kSeed: return "0 to 18446744073709551615";
    case FieldType::kText:
    case FieldType::kName: return range + " bytes";
    case FieldType::kChoice: return fmt::format("{}", fmt::join(field.choices, ", "));
    case FieldType::kTextList:
      return fmt::format("at most {}, each {} bytes", field.max_items, range);
    case FieldType::kIdList:
      return fmt::format("{} to {}, each {}", field.min_items, field.max_items, range);
    case FieldType::kIdLists:
      return fmt::format("{} to {} lists, each integer {}", field.min_items, field.max_items,
                         range);
    case FieldType::kLogitBias:
      return fmt::format("at most {}, numbers {}", field.max_items, range);
    case FieldType::kObjects: return fmt::format("{} to {}", field.min_items, field.max_items);
    case FieldType::kObject: return "";
  }
  return "";
}

std::string fields_of(Verb verb) {
  std::string rows;
  for (const Field& field : fields(verb)) {
    // Bytes already stand in the range.
    const std::string unit = field.unit == "bytes" ? "" : std::string(field.unit);
    rows += fmt::format(
        "| `{}` | {} | {} | {} | {} | {} |\n", field.name, type_of(field), range_of(field), unit,
        field.default_value.empty() ? "" : fmt::format("`{}`", field.default_value), field.meaning);
  }
  if (rows.empty()) return "No fields.\n";
  return "| field | type | range | unit | default | meaning |\n|---|---|---|---|---|---|\n" + rows;
}

std::string_view meaning(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "A field has a value that is not allowed.";
    case ErrorCode::kUnknownField: return "The verb does not have this field.";
    case ErrorCode::kProtocol: return "The frames or the JSON are not of this protocol.";
    case ErrorCode::kNotFound: return "The model or request does not exist.";
    case ErrorCode::kForbidden: return "It belongs to another user.";
    case ErrorCode::kContextOverflow:
      return "Prompt and output do not fit; the message gives both sizes.";
    case ErrorCode::kTooLarge: return "A number of bytes or items is over its bound.";
    case ErrorCode::kBusy: return "A queue is full; try again after `retry_ms`.";
    case ErrorCode::kUnavailable: return "The daemon is stopping, or no worker could be started.";
    case ErrorCode::kDeadline: return "The request's own deadline passed before it began.";
    case ErrorCode::kCancelled: return "Cancelled before it began.";
    case ErrorCode::kPoison: return "Two workers died with this request; it is not tried again.";
    case ErrorCode::kCorrupt: return "The model's file contradicts itself.";
    case ErrorCode::kUnsupported:
      return "The request is well formed, but this build does not support it.";
    case ErrorCode::kOutOfMemory:
      return "It does not fit into memory; the message gives the sizes.";
    case ErrorCode::kIo: return "The operating system refused an operation.";
    case ErrorCode::kLost:
      return "The daemon or the worker was lost (reported by client libraries).";
    case ErrorCode::kInternal: return "A bug in hearth.";
  }
  return "";
}

WorkerStats ready_worker(const char* model, const char* device, int32_t pid,
                         int64_t heartbeat_age_ms) {
  WorkerStats out;
  out.model = model;
  out.device = device;
  out.state = "ready";
  out.pid = pid;
  out.heartbeat_age_ms = heartbeat_age_ms;
  return out;
}

DoneEvent example_done() {
  DoneEvent done;
  done.finish_reasons = {"stop"};
  done.model = "stories";
  done.seed = 7;
  done.usage = {12, 8, 180, 96, 71};
  done.timings = {0.4, 6.5, 9.25, 1.5, 277.75};
  done.cache_miss = "from token 8 on: what was kept ends there";
  done.bandwidth_share = 0.5;
  done.speculation = {40, 96, 71, {40, 32, 24}, {33, 22, 16}, 1.775, 61.5, {{"mtp", 96, 71}}};
  return done;
}

RecordedEvent example_record(const DoneEvent& done) {
  return {.arrival_us = 1'500'000,
          .model = "stories",
          .request = {R"({"verb":"generate","prompt":"Once","max_tokens":180})"},
          .error = "",
          .finish_reasons = {"stop"},
          .seed = 7,
          .usage = done.usage,
          .timings = done.timings,
          .text_tokens = {},
          .digests = {"90c95f5ef8a1b2d3"}};
}

StatsReply example_stats() {
  StatsReply stats;
  stats.instance = "5f0c9d31a7e24b68";
  stats.version = "0.1.0";
  stats.uptime_ms = 60'000;
  stats.requests_live = 1;
  stats.requests_total = 10;
  stats.requests_done = 9;
  stats.output_tokens_total = 1800;
  WorkerStats worker = ready_worker("stories", "cpu avx512-vnni", 4243, 90);
  worker.snapshot.kv_blocks_total = {512};
  worker.snapshot.kv_blocks_used = {12};
  worker.snapshot.kv_blocks_cached = {40};
  worker.snapshot.adapters = {{.name = "style", .bytes = 98'304, .requests = 1}};
  WorkerStats on_gpu = ready_worker("large", "cuda sm_90", 4244, 120);
  on_gpu.snapshot.store.ram_budget_bytes = 4'294'967'296;
  on_gpu.snapshot.store.ram_bytes = 1'073'741'824;
  on_gpu.snapshot.device_memory = {88'000'000'000, 201'326'592, 100'663'296, 50'331'648};
  on_gpu.snapshot.gpu = {.name = "NVIDIA H200",
                         .driver = "580.65.06",
                         .memory_used_bytes = 89'000'000'000,
                         .memory_total_bytes = 150'000'000'000,
                         .sm_clock_mhz = 1755,
                         .sm_clock_max_mhz = 1980,
                         .memory_clock_mhz = 3201,
                         .power_mw = 412'345,
                         .power_limit_mw = 700'000,
                         .temperature_c = 51,
                         .utilization_percent = 97,
                         .throttled = "power limit"};
  stats.workers = {worker, on_gpu};
  stats.remotes = {{.role = "code",
                    .remote = "gpu.example.com",
                    .requests_live = 1,
                    .requests_sent = 4,
                    .requests_done = 3,
                    .output_tokens_total = 620}};
  return stats;
}

/// One of each event, encoded by the codec: the page cannot show another form.
std::vector<Event> example_events() {
  ModelEntry model;
  model.name = "stories";
  model.roles = {"default"};
  model.state = "resident";
  model.file_bytes = 1'185'376;
  model.load_share = 1;
  model.architecture = "llama";
  model.adapters = {{.name = "style", .bytes = 98'304, .requests = 1}};
  model.file_type = "Q8_0";
  model.num_parameters = 1'100'000;
  model.context_length = 1024;
  model.device = "cpu avx512-vnni";
  model.weight_bytes = 1'200'000;
  model.kv_bytes = model.kv_bound_bytes = 8'388'608;
  model.kv_backed_bytes = 2'097'152;
  model.worker_pid = 4243;
  model.memory_bytes = 10'000'000;
  model.keep_alive_ms = 1'800'000;
  const DoneEvent done = example_done();
  return {
      QueuedEvent{"slots", 2, 1500},
      ProgressEvent{128, 4000, CanvasState{0, 12, 64, {" Once", "", " a"}, {0.5f, 0, 0.25f}}},
      StartedEvent{"stories", 12, 8, 0.4, 200},
      PromptLogprobsEvent{{-0.25f}, {1, 403}, {"<s>", " Once"}, {{{403, -0.25f, " Once"}}}},
      SampleDoneEvent{0, "stop", 180},
      done,
      ErrorEvent{Error::invalid("temperature: met -1, want a number 0 to 10", "temperature"), 0},
      PongReply{"5f0c9d31a7e24b68", 4242, "0.1.0", 60'000, false},
      TokenizeReply{"stories",
                    {1, 403, 407},
                    {"<s>", "\xE2\x96\x81Once", "\xE2\x96\x81upon"},
                    "",
                    "<s>",
                    "</s>"},
      CancelReply{"r1"},
      ModelsReply{{model}, {"/var/lib/hearth/models"}, {{"style", 65'536}}},
      PsReply{{{"r1", "uid:1000", "stories", "decode", "normal", 12, 30, 456}}, {model}},
      example_stats(),
      HealthReply{"ok", {}},
      LoadingEvent{"stories", "reading", 600'000, 1'185'376, 40},
      LoadReply{"stories", 95, 1'200'000, 8'388'608, ""},
      UnloadReply{"stories", true},
      SwapReply{"default", "stories", "tales", 95},
      CacheReply{true, "stories: 3 chunks\n"},
      AttachedEvent{"r1", "stories", true, {64}},
      EmbedReply{"stories", 2, {3}, {"mpkZPwAAAL8="}},
      RecordingEvent{.text = true, .lost = 0},
      example_record(done),
  };
}

}  // namespace

std::string protocol_page() {
  std::string page(kFramesSection);
  page += "\n## Requests\n\nA request is one JSON object: `verb`, and the fields of that verb.\n";
  for (const VerbMeaning& entry : kVerbMeanings) {
    page +=
        fmt::format("\n### {}\n\n{}\n\n{}", name(entry.verb), entry.meaning, fields_of(entry.verb));
  }
  page += fmt::format(
      "\nAn example; fields that it leaves out have their defaults:\n\n"
      "```json\n{}\n```\n",
      R"({"verb":"generate","model":"default","prompt":"Once upon a time","max_tokens":200,"temperature":0})");
  page +=
      "\n## Events\n\nOne of each, as the daemon writes them. Times are milliseconds. A reason is "
      "`stop`, `tool_calls` (the sample\nstopped and has calls), `length`, `cancelled` or "
      "`deadline`. `tpot_ms` is the mean time per output token after the first.\n`stats`, and the "
      "models of `ps`, have `gpu` for models on a GPU whose management library (NVML) is "
      "installed; "
      "values\nthat the library does not report are empty or -1.\n\n```json\n";
  for (const Event& event : example_events()) page += encode_event(event) + "\n";
  page += "```\n\n## Error codes\n\n| code | means |\n|---|---|\n";
  for (int i = 0; i <= to_underlying(ErrorCode::kInternal); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    page += fmt::format("| `{}` | {} |\n", hearth::name(code), meaning(code));
  }
  page += "\n`field` names the request field concerned, or is empty.\n";
  return page;
}

}  // namespace hearth::ipc
