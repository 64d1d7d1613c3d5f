#include "tests/monitor/rig.h"

#include <algorithm>
#include <cmath>

#include "ipc/wire/codec.h"

// Memory that the graphics stack keeps is not ours to free.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libEGL\nleak:swrast_dri\nleak:libLLVM\nleak:libgallium\nleak:libglapi\n";
}

namespace hearth::monitor {
namespace {

ipc::StatsReply stats_at(int tick, int running, int32_t blocks, int32_t used, int32_t cached) {
  ipc::StatsReply reply;
  reply.instance = "d3adb33f";
  reply.version = "0.1.0";
  reply.uptime_ms = 3'600'000 + tick * 100;
  reply.requests_live = running;
  reply.requests_total = 412;
  reply.requests_done = 400;
  ipc::WorkerStats worker;
  worker.model = "tales";
  worker.device = "cpu avx512-vnni";
  worker.state = "ready";
  worker.pid = 4711;
  ipc::WorkerSnapshot& s = worker.snapshot;
  const double wave = std::sin(tick * 0.13) + 0.5 * std::sin(tick * 0.041);
  s.num_steps = static_cast<uint64_t>(tick) * 3;
  s.num_running = running - running / 8;
  s.num_waiting = running / 8;
  s.num_preempted = tick > 40 ? 1 : 0;
  s.preemptions_total = tick > 40 ? 1 : 0;
  s.kv_blocks_total = {blocks};
  s.kv_blocks_used = {used};
  s.kv_blocks_cached = {cached};
  s.kv_bytes = s.kv_reserved_bytes = s.kv_bound_bytes = static_cast<uint64_t>(blocks) * 96 * 1024;
  s.kv_backed_bytes = s.kv_bytes / 4;
  s.prompt_tokens_total = 100'000 + static_cast<uint64_t>(tick) * 400;
  s.prompt_tokens_cached = 62'000 + static_cast<uint64_t>(tick) * 260;
  s.prompt_tokens_restored = 8'000;
  s.decode_tokens_per_s = 110 + 18 * wave;
  s.prefill_tokens_per_s = std::max(0.0, 260 + 190 * std::sin(tick * 0.09));
  s.step_ms_recent = 31 + 4 * wave;
  const auto verified = static_cast<uint64_t>(200 + tick * 9);
  s.speculation.verifications = verified;
  for (uint64_t place = 0; place < 6; ++place) {
    const uint64_t drafted = verified * (10 - place) / 10;
    s.speculation.drafted_at.push_back(drafted);
    s.speculation.accepted_at.push_back(drafted * (8 - place) / 10);
    s.speculation.drafted_tokens += s.speculation.drafted_at.back();
    s.speculation.accepted_tokens += s.speculation.accepted_at.back();
  }
  s.speculation.saved_ms = 12'340;
  s.speculation.by = {{"lookup", 1000, 250}, {"mtp", s.speculation.drafted_tokens - 1000, 2000}};
  s.store.state = "writing";
  s.store.entries = 1204;
  s.store.bytes = 1'300'000'000;
  s.store.budget_bytes = 8ull << 30;
  s.store.chunks_saved = 900;
  s.store.chunks_loaded = 310;
  reply.workers.push_back(worker);
  return reply;
}

ipc::ModelEntry entry_of(const char* name, const char* state, uint64_t file_bytes) {
  ipc::ModelEntry out;
  out.name = name;
  out.state = state;
  out.file_bytes = file_bytes;
  return out;
}

ipc::ModelsReply models() {
  ipc::ModelsReply reply;
  ipc::ModelEntry entry = entry_of("tales", "resident", 131'000'000);
  entry.roles = {"default"};
  entry.load_share = 1;
  entry.architecture = "llama";
  entry.file_type = "Q8_0";
  entry.num_parameters = 120'000'000;
  entry.context_length = 8192;
  entry.device = "cpu avx512-vnni";
  entry.weight_bytes = 127'500'000;
  entry.kv_bytes = 393'216'000;
  entry.kv_backed_bytes = 98'304'000;
  entry.worker_pid = 4711;
  reply.models.push_back(entry);
  ipc::ModelEntry loading = entry_of("qwen3-4b-instruct", "loading", 4'280'000'000);
  loading.load_share = 0.62;
  reply.models.push_back(loading);
  reply.models.push_back(entry_of("granite-3.3-2b", "available", 2'700'000'000));
  reply.folders = {"/var/lib/hearth/models", "/home/ada/.local/share/hearth/models"};
  return reply;
}

std::vector<ipc::WatchedRequest> requests_at(int tick, int running) {
  constexpr const char* kOwners[] = {"uid:1000", "uid:1001", "uid:1004"};
  constexpr const char* kClasses[] = {"interactive", "normal", "batch"};
  std::vector<ipc::WatchedRequest> rows;
  for (int i = 0; i < running; ++i) {
    ipc::WatchedRequest row;
    const int begun = i * 3;
    if (tick < begun) continue;
    row.number = static_cast<uint64_t>(100 + i);
    row.id = "story-" + std::to_string(100 + i);
    row.owner = kOwners[i % 3];
    row.model = "tales";
    row.priority = kClasses[i % 3];
    row.age_ms = (tick - begun) * 100 + 40;
    row.prompt_tokens = 200 + i * 37;
    row.cached_tokens = i % 4 == 0 ? 160 : 0;
    const bool waits = i % 8 == 7;
    if (waits) {
      row.state = "waiting";
      row.waiting_for = "blocks";
      row.queue_position = i / 8 + 1;
      row.estimate_ms = 800 * (i / 8 + 1);
    } else if (tick - begun < 6) {
      row.state = "prefill";
      row.prompt_done = (tick - begun) * 40;
    } else {
      row.state = "decode";
      row.prompt_done = row.prompt_tokens;
      row.ttft_us = 500'000 + i * 11'000;
      row.output_tokens = (tick - begun - 5) * 3;
      row.drafted_tokens = row.output_tokens;
      row.accepted_tokens = row.output_tokens * 6 / 10;
    }
    row.queue_us = 40'000;
    if (i == 2) {
      row.canvas = "99753..9.1";
      row.pass = 3;
      row.passes = 8;
    }
    rows.push_back(row);
  }
  return rows;
}

void add_pools(ipc::WatchUpdate& update, int tick, int running, int32_t blocks, int32_t& used,
               int32_t& cached) {
  ipc::PoolUpdate pool{.group = 0, .num_blocks = blocks, .full = true, .runs = {}};
  const auto each = static_cast<uint32_t>(blocks / (running + 6));
  uint32_t at = 0;
  // A prompt that several share, then every sequence's own blocks, with gaps, then cached blocks.
  const auto add = [&](uint32_t count, ipc::WatchedBlock state, uint8_t refs, uint64_t request,
                       int32_t position) {
    pool.runs.push_back({at, count, state, refs, request, position, refs == 0});
    at += count;
    (refs == 0 ? cached : used) += static_cast<int32_t>(count);
  };
  add(each, ipc::WatchedBlock::kShared, 5, 100, 0);
  for (int i = 0; i < running; ++i) {
    const uint32_t grown = std::min(each - 1, each / 3 + static_cast<uint32_t>(tick / 8 + i % 5));
    add(grown, ipc::WatchedBlock::kUsed, 1, static_cast<uint64_t>(100 + i), 10);
    at += (i % 3 == 0) ? 2 : 0;
  }
  add(each * 2, ipc::WatchedBlock::kCached, 0, 0, 0);
  add(each / 2, ipc::WatchedBlock::kPinned, 0, 0, 0);
  add(each / 4, ipc::WatchedBlock::kMoving, 0, 0, 0);
  update.pools.push_back(pool);
}

}  // namespace

std::vector<ipc::StreamMessage> made_recording(int seconds, int running, int32_t blocks) {
  std::vector<ipc::StreamMessage> out;
  uint64_t step_number = 0;
  int64_t step_end_us = kBeginUs;
  for (int tick = 0; tick < seconds * 10; ++tick) {
    const int64_t now_us = kBeginUs + tick * 100'000;
    ipc::WatchUpdate update;
    update.sequence = static_cast<uint64_t>(tick + 1);
    update.now_us = now_us;
    update.block_size = 16;
    while (step_end_us < now_us) {
      const bool prefills = ++step_number % 4 == 1;
      ipc::WatchedStep step;
      step.step = step_number;
      step.duration_us = prefills ? 46'000 : 24'000 + static_cast<int64_t>(step_number % 5) * 1000;
      if (step_end_us + step.duration_us + 500 > now_us) {
        --step_number;  // it ends after this message
        break;
      }
      step_end_us += step.duration_us + 500;
      step.end_us = step_end_us;
      step.decode_rows = std::min(running, tick / 3 + 1);
      step.draft_rows = step.decode_rows * 2;
      step.accepted = step.decode_rows;
      if (prefills) {
        step.prefills = {{100 + step_number / 4 % 8, 40}, {101 + step_number / 4 % 8, 24}};
      }
      step.running = running - running / 8;
      step.waiting = running / 8;
      update.steps.push_back(step);
    }
    update.resident_bytes = 620'000'000 + static_cast<uint64_t>(tick) * 40'000;
    update.power_mw = 23'400 + tick % 50 * 20;
    if (tick % 20 == 0) {
      // A prompt that two requests continue, one of them in use.
      update.has_prefixes = true;
      update.prefixes = {{1, 1, 9, 9, 20, 20, 4, false},
                         {2, 2, 1, 1, 28, 8, 8, false},
                         {3, 3, 1, 1, 24, 4, 0, true}};
    }
    // Two decode steps and one with a prefill.
    const auto rows = static_cast<uint32_t>(std::min(running, tick / 3 + 1));
    update.gaps = {{ipc::gap_bucket(25'000), rows * 2}, {ipc::gap_bucket(46'000), rows}};
    int32_t used = 0, cached = 0;
    add_pools(update, tick, running, blocks, used, cached);
    if (tick % 10 == 0) out.push_back({now_us, "models", "", ipc::encode_event(models())});
    out.push_back(
        {now_us, "stats", "", ipc::encode_event(stats_at(tick, running, blocks, used, cached))});
    out.push_back({now_us, "watch", "tales", ipc::encode_watch(update)});
    ipc::WatchUpdate live;
    live.now_us = now_us;
    live.requests = requests_at(tick, running);
    out.push_back({now_us, "requests", "", ipc::encode_watch(live)});
  }
  return out;
}

Offscreen* screen(std::string* why) {
  static std::string problem;
  // Never destroyed: an unloaded driver could not be distinguished from a leak of ours.
  static Offscreen* const made = [] {
    Result<std::unique_ptr<Offscreen>> created = Offscreen::create(1280, 800);
    if (created.ok()) return std::move(created).value().release();
    problem = created.error().message;
    return static_cast<Offscreen*>(nullptr);
  }();
  *why = problem;
  return made;
}

Drawn::Drawn(Offscreen& where, const std::vector<ipc::StreamMessage>& messages, bool dark)
    : offscreen(where), textures(make_gl_textures()), app(dark, 1) {
  app.view().textures = textures.get();
  app.view().drawn = &texts;
  for (const ipc::StreamMessage& message : messages) app.apply(message);
}

void Drawn::show(Panel panel) {
  app.view().panel = panel;
  picture = offscreen.draw([this] { app.frame(); });
}

void Drawn::frame() {
  picture = offscreen.draw([this] { app.frame(); }, 1);
}

std::string Drawn::text(const std::string& place) const {
  const auto found = std::ranges::find(texts, place, &DrawnText::place);
  return found == texts.end() ? "" : found->text;
}

bool Drawn::visible(const DrawnText& text_drawn) const {
  const int left = std::max(0, static_cast<int>(text_drawn.min.x));
  const int top = std::max(0, static_cast<int>(text_drawn.min.y));
  const int right = std::min(picture.width, static_cast<int>(text_drawn.max.x) + 1);
  const int bottom = std::min(picture.height, static_cast<int>(text_drawn.max.y) + 1);
  if (left >= right || top >= bottom) return false;
  const uint32_t first = picture.at(left, top);
  for (int y = top; y < bottom; ++y) {
    for (int x = left; x < right; ++x) {
      if (picture.at(x, y) != first) return true;
    }
  }
  return false;
}

}  // namespace hearth::monitor
