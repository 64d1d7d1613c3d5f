#pragma once
// The wire name of every member, once, for reading and for writing: `bind(visitor, object)` calls
// `visitor("name", object.member)` for each. Included by the codec's .cpp files only.

#include <concepts>
#include <tuple>
#include <type_traits>
#include <variant>

#include "ipc/schema/bind_settings.h"
#include "ipc/schema/messages.h"
#include "ipc/schema/request_fields.h"
#include "ipc/schema/worker_messages.h"

namespace hearth::ipc {

template <class V, Of<ExpertUse> R>
void bind(V& v, R& r) {
  v("unused_parameters", r.unused_parameters);
  v("bytes", r.bytes);
  v("share", r.share);
}
template <class V, class R>
requires Of<R, SamplingDefaults> || Of<R, SamplingSettings>
void bind(V& v, R& r) {
  v("temperature", r.temperature);
  v("top_k", r.top_k);
  v("top_p", r.top_p);
  v("min_p", r.min_p);
  v("repetition_penalty", r.repetition_penalty);
  v("penalty_window", r.penalty_window);
}
template <class V, Of<WorkerEnvelope> R>
void bind(V& v, R& r) {
  v("owner", r.owner);
  v("received_ms_ago", r.received_ms_ago);
  v("resume", r.resume);
  v("prefix", r.prefix);
  v("fork_of", r.fork_of);
  v("fork_sample", r.fork_sample);
  v("end_reasoning", r.end_reasoning);
  v("adapter_paths", r.adapter_paths);
}

template <class T, class Variant>
inline constexpr bool kIsAlternative = false;
template <class T, class... Ts>
inline constexpr bool kIsAlternative<T, std::variant<Ts...>> = (std::same_as<T, Ts> || ...);

// Requests are bound by their rows in request_fields.h.
template <class V, class R>
requires kIsAlternative<std::remove_const_t<R>, ClientRequest>
void bind(V& v, R& r) {
  std::apply([&](const auto&... rows) { (v(rows.field.name, r.*rows.member), ...); },
             request_fields::kRowsOf<std::remove_const_t<R>>);
}

// ---- Events ----

template <class V, Of<Error> R>
void bind(V& v, R& r) {
  v("code", r.code);
  v("message", r.message);
  v("field", r.field);
}
template <class V, Of<TopLogprob> R>
void bind(V& v, R& r) {
  v("token", r.token);
  v("logprob", r.logprob);
  v("text", r.text);
}
template <class V, Of<TokenLogprobs> R>
void bind(V& v, R& r) {
  v("logprob", r.logprob);
  v("top", r.top);
  v("text", r.text);
}
template <class V, Of<DeltaPart> R>
void bind(V& v, R& r) {
  v("channel", r.channel);
  v("text", r.text);
}
template <class V, Of<ToolCall> R>
void bind(V& v, R& r) {
  v("index", r.index);
  v("id", r.id);
  v("name", r.name);
}
template <class V, Of<QueuedEvent> R>
void bind(V& v, R& r) {
  v("reason", r.reason);
  v("position", r.position);
  v("estimate_ms", r.estimate_ms);
}
template <class V, Of<CanvasState> R>
void bind(V& v, R& r) {
  v("sample", r.sample);
  v("pass", r.pass);
  v("passes", r.passes);
  v("texts", r.texts);
  v("confidence", r.confidence);
}
template <class V, Of<ProgressEvent> R>
void bind(V& v, R& r) {
  v("prompt_done", r.prompt_done);
  v("prompt_total", r.prompt_total);
  v("canvas", r.canvas);
}
template <class V, Of<StartedEvent> R>
void bind(V& v, R& r) {
  v("model", r.model);
  v("prompt_tokens", r.prompt_tokens);
  v("cached_tokens", r.cached_tokens);
  v("queue_ms", r.queue_ms);
  v("max_tokens", r.max_tokens);
  v("relaxed", r.relaxed);
  v("without_effect", r.without_effect);
  v("remote", r.remote);
}
template <class V, Of<PromptLogprobsEvent> R>
void bind(V& v, R& r) {
  v("logprobs", r.logprobs);
  v("ids", r.ids);
  v("texts", r.texts);
  v("top", r.top);
}
template <class V, Of<SampleDoneEvent> R>
void bind(V& v, R& r) {
  v("sample", r.sample);
  v("reason", r.reason);
  v("num_tokens", r.num_tokens);
  v("stop", r.stop);
}
template <class V, Of<Usage> R>
void bind(V& v, R& r) {
  v("prompt_tokens", r.prompt_tokens);
  v("cached_tokens", r.cached_tokens);
  v("output_tokens", r.output_tokens);
  v("drafted_tokens", r.drafted_tokens);
  v("accepted_tokens", r.accepted_tokens);
  v("cached_disk_tokens", r.cached_disk_tokens);
  v("reasoning_tokens", r.reasoning_tokens);
  v("remote", r.remote);
}
template <class V, Of<Timings> R>
void bind(V& v, R& r) {
  v("queue_ms", r.queue_ms);
  v("prefill_ms", r.prefill_ms);
  v("ttft_ms", r.ttft_ms);
  v("tpot_ms", r.tpot_ms);
  v("total_ms", r.total_ms);
  v("restore_ms", r.restore_ms);
  v("saved_ms", r.saved_ms);
}
template <class V, Of<ProposerStats> R>
void bind(V& v, R& r) {
  v("name", r.name);
  v("drafted_tokens", r.drafted_tokens);
  v("accepted_tokens", r.accepted_tokens);
}
template <class V, Of<SpeculationStats> R>
void bind(V& v, R& r) {
  v("verifications", r.verifications);
  v("drafted_tokens", r.drafted_tokens);
  v("accepted_tokens", r.accepted_tokens);
  v("drafted_at", r.drafted_at);
  v("accepted_at", r.accepted_at);
  v("mean_accepted", r.mean_accepted);
  v("saved_ms", r.saved_ms);
  v("by", r.by);
}
template <class V, Of<DoneEvent> R>
void bind(V& v, R& r) {
  v("finish_reasons", r.finish_reasons);
  v("model", r.model);
  v("seed", r.seed);
  v("usage", r.usage);
  v("timings", r.timings);
  v("preemptions", r.preemptions);
  v("cache_miss", r.cache_miss);
  v("resumed", r.resumed);
  v("bandwidth_share", r.bandwidth_share);
  v("speculation", r.speculation);
}
template <class V, Of<ErrorEvent> R>
void bind(V& v, R& r) {
  bind(v, r.error);
  v("retry_ms", r.retry_ms);
}

// ---- Replies ----

template <class V, Of<PongReply> R>
void bind(V& v, R& r) {
  v("instance", r.instance);
  v("pid", r.pid);
  v("version", r.version);
  v("uptime_ms", r.uptime_ms);
  v("draining", r.draining);
}
template <class V, Of<TokenizeReply> R>
void bind(V& v, R& r) {
  v("model", r.model);
  v("ids", r.ids);
  v("entries", r.entries);
  v("text", r.text);
  v("bos", r.bos);
  v("eos", r.eos);
}
template <class V, Of<CancelReply> R>
void bind(V& v, R& r) {
  v("id", r.id);
}
template <class V, Of<GpuSnapshot> R>
void bind(V& v, R& r) {
  v("name", r.name);
  v("driver", r.driver);
  v("memory_used_bytes", r.memory_used_bytes);
  v("memory_total_bytes", r.memory_total_bytes);
  v("sm_clock_mhz", r.sm_clock_mhz);
  v("sm_clock_max_mhz", r.sm_clock_max_mhz);
  v("memory_clock_mhz", r.memory_clock_mhz);
  v("power_mw", r.power_mw);
  v("power_limit_mw", r.power_limit_mw);
  v("temperature_c", r.temperature_c);
  v("utilization_percent", r.utilization_percent);
  v("throttled", r.throttled);
}
template <class V, Of<StageUse> R>
void bind(V& v, R& r) {
  v("device", r.device);
  v("first_layer", r.first_layer);
  v("end_layer", r.end_layer);
  v("weight_bytes", r.weight_bytes);
  v("kv_bytes", r.kv_bytes);
  v("other_bytes", r.other_bytes);
  v("budget_bytes", r.budget_bytes);
  v("experts", r.experts);
  v("share", r.share);
}
template <class V, Of<AdapterUse> R>
void bind(V& v, R& r) {
  v("name", r.name);
  v("bytes", r.bytes);
  v("requests", r.requests);
}
template <class V, Of<AdapterEntry> R>
void bind(V& v, R& r) {
  v("name", r.name);
  v("file_bytes", r.file_bytes);
}
template <class V, Of<ReplicaEntry> R>
void bind(V& v, R& r) {
  v("device", r.device);
  v("state", r.state);
  v("problem", r.problem);
  v("worker_pid", r.worker_pid);
  v("memory_bytes", r.memory_bytes);
  v("budget_bytes", r.budget_bytes);
  v("requests", r.requests);
}
template <class V, Of<ModelEntry> R>
void bind(V& v, R& r) {
  v("name", r.name);
  v("roles", r.roles);
  v("state", r.state);
  v("file_bytes", r.file_bytes);
  v("load_share", r.load_share);
  v("problem", r.problem);
  v("architecture", r.architecture);
  v("file_type", r.file_type);
  v("num_parameters", r.num_parameters);
  v("context_length", r.context_length);
  v("device", r.device);
  v("weight_bytes", r.weight_bytes);
  v("kv_bytes", r.kv_bytes);
  v("worker_pid", r.worker_pid);
  v("kv_bytes_used", r.kv_bytes_used);
  v("kv_backed_bytes", r.kv_backed_bytes);
  v("kv_bound_bytes", r.kv_bound_bytes);
  v("memory_bytes", r.memory_bytes);
  v("keep_alive_ms", r.keep_alive_ms);
  v("idle_ms", r.idle_ms);
  v("draft", r.draft);
  v("sampling", r.sampling);
  v("experts", r.experts);
  v("chat_template", r.chat_template);
  v("abilities", r.abilities);
  v("gpu", r.gpu);
  v("adapters", r.adapters);
  v("replicas", r.replicas);
  v("stages", r.stages);
}
template <class V, Of<ModelsReply> R>
void bind(V& v, R& r) {
  v("models", r.models);
  v("folders", r.folders);
  v("adapters", r.adapters);
}
template <class V, Of<PsEntry> R>
void bind(V& v, R& r) {
  v("id", r.id);
  v("owner", r.owner);
  v("model", r.model);
  v("state", r.state);
  v("priority", r.priority);
  v("prompt_tokens", r.prompt_tokens);
  v("output_tokens", r.output_tokens);
  v("age_ms", r.age_ms);
  v("remote", r.remote);
}
template <class V, Of<PsReply> R>
void bind(V& v, R& r) {
  v("requests", r.requests);
  v("models", r.models);
}
template <class V, Of<StoreSnapshot> R>
void bind(V& v, R& r) {
  v("state", r.state);
  v("entries", r.entries);
  v("bytes", r.bytes);
  v("budget_bytes", r.budget_bytes);
  v("chunks_loaded", r.chunks_loaded);
  v("chunks_saved", r.chunks_saved);
  v("chunks_evicted", r.chunks_evicted);
  v("chunks_dropped", r.chunks_dropped);
  v("chunks_refused", r.chunks_refused);
  v("pins_refused", r.pins_refused);
  v("last_error", r.last_error);
  v("ram_budget_bytes", r.ram_budget_bytes);
  v("ram_bytes", r.ram_bytes);
  v("ram_pinned_bytes", r.ram_pinned_bytes);
  v("ram_chunks", r.ram_chunks);
  v("ram_loaded", r.ram_loaded);
  v("ram_evicted", r.ram_evicted);
}
template <class V, Of<DeviceMemory> R>
void bind(V& v, R& r) {
  v("planned_bytes", r.planned_bytes);
  v("reserved_bytes", r.reserved_bytes);
  v("taken_bytes", r.taken_bytes);
  v("graph_bytes", r.graph_bytes);
}
template <class V, Of<WorkerSnapshot> R>
void bind(V& v, R& r) {
  v("num_steps", r.num_steps);
  v("num_running", r.num_running);
  v("num_waiting", r.num_waiting);
  v("num_preempted", r.num_preempted);
  v("kv_blocks_total", r.kv_blocks_total);
  v("kv_blocks_used", r.kv_blocks_used);
  v("kv_blocks_cached", r.kv_blocks_cached);
  v("kv_bytes", r.kv_bytes);
  v("kv_bytes_used", r.kv_bytes_used);
  v("kv_reserved_bytes", r.kv_reserved_bytes);
  v("kv_backed_bytes", r.kv_backed_bytes);
  v("kv_bound_bytes", r.kv_bound_bytes);
  v("kv_short", r.kv_short);
  v("kv_stalled", r.kv_stalled);
  v("prompt_tokens_total", r.prompt_tokens_total);
  v("prompt_tokens_cached", r.prompt_tokens_cached);
  v("prefill_tokens_total", r.prefill_tokens_total);
  v("decode_tokens_total", r.decode_tokens_total);
  v("preemptions_total", r.preemptions_total);
  v("speculation", r.speculation);
  v("prefill_tokens_per_s", r.prefill_tokens_per_s);
  v("decode_tokens_per_s", r.decode_tokens_per_s);
  v("step_ms_recent", r.step_ms_recent);
  v("prompt_tokens_restored", r.prompt_tokens_restored);
  v("store", r.store);
  v("device_memory", r.device_memory);
  v("gpu", r.gpu);
  v("adapters", r.adapters);
}
template <class V, Of<WorkerStats> R>
void bind(V& v, R& r) {
  v("model", r.model);
  v("device", r.device);
  v("state", r.state);
  v("pid", r.pid);
  v("restarts", r.restarts);
  v("heartbeat_age_ms", r.heartbeat_age_ms);
  v("snapshot", r.snapshot);
}
template <class V, Of<RemoteStats> R>
void bind(V& v, R& r) {
  v("role", r.role);
  v("remote", r.remote);
  v("requests_live", r.requests_live);
  v("requests_sent", r.requests_sent);
  v("requests_done", r.requests_done);
  v("requests_failed", r.requests_failed);
  v("requests_returned", r.requests_returned);
  v("requests_cancelled", r.requests_cancelled);
  v("output_tokens_total", r.output_tokens_total);
}
template <class V, Of<StatsReply> R>
void bind(V& v, R& r) {
  v("instance", r.instance);
  v("version", r.version);
  v("uptime_ms", r.uptime_ms);
  v("requests_live", r.requests_live);
  v("requests_total", r.requests_total);
  v("requests_done", r.requests_done);
  v("requests_failed", r.requests_failed);
  v("requests_cancelled", r.requests_cancelled);
  v("output_tokens_total", r.output_tokens_total);
  v("workers", r.workers);
  v("remotes", r.remotes);
}
template <class V, Of<HealthReply> R>
void bind(V& v, R& r) {
  v("status", r.status);
  v("problems", r.problems);
}
template <class V, Of<LoadingEvent> R>
void bind(V& v, R& r) {
  v("model", r.model);
  v("stage", r.stage);
  v("bytes_done", r.bytes_done);
  v("bytes_total", r.bytes_total);
  v("estimate_ms", r.estimate_ms);
}
template <class V, Of<LoadReply> R>
void bind(V& v, R& r) {
  v("model", r.model);
  v("load_ms", r.load_ms);
  v("weight_bytes", r.weight_bytes);
  v("kv_bytes", r.kv_bytes);
  v("draft", r.draft);
}
template <class V, Of<UnloadReply> R>
void bind(V& v, R& r) {
  v("model", r.model);
  v("was_resident", r.was_resident);
  v("asleep", r.asleep);
}
template <class V, Of<SwapReply> R>
void bind(V& v, R& r) {
  v("role", r.role);
  v("model", r.model);
  v("previous", r.previous);
  v("load_ms", r.load_ms);
}

template <class V, Of<CacheReply> R>
void bind(V& v, R& r) {
  v("ok", r.ok);
  v("text", r.text);
}

template <class V, Of<AttachedEvent> R>
void bind(V& v, R& r) {
  v("id", r.id);
  v("model", r.model);
  v("live", r.live);
  v("from", r.from);
}
template <class V, Of<EmbedReply> R>
void bind(V& v, R& r) {
  v("model", r.model);
  v("dimensions", r.dimensions);
  v("prompt_tokens", r.prompt_tokens);
  v("vectors", r.vectors);
}

template <class V, Of<RecordingEvent> R>
void bind(V& v, R& r) {
  v("text", r.text);
  v("lost", r.lost);
}
template <class V, Of<RecordedEvent> R>
void bind(V& v, R& r) {
  v("arrival_us", r.arrival_us);
  v("model", r.model);
  v("request", r.request);
  v("error", r.error);
  v("finish_reasons", r.finish_reasons);
  v("seed", r.seed);
  v("usage", r.usage);
  v("timings", r.timings);
  v("text_tokens", r.text_tokens);
  v("digests", r.digests);
}

// ---- Between broker and worker ----

template <class V, Of<WorkerHello> R>
void bind(V& v, R& r) {
  v("pid", r.pid);
  v("version", r.version);
  v("device", r.device);
}
template <class V, Of<WorkerPlan> R>
void bind(V& v, R& r) {
  v("weight_bytes", r.weight_bytes);
  v("kv_bytes", r.kv_bytes);
  v("other_bytes", r.other_bytes);
  v("device_free_bytes", r.device_free_bytes);
  v("host_bytes", r.host_bytes);
  v("kv_floor_bytes", r.kv_floor_bytes);
  v("stages", r.stages);
}
template <class V, Of<WorkerLoadProgress> R>
void bind(V& v, R& r) {
  v("stage", r.stage);
  v("bytes_done", r.bytes_done);
  v("bytes_total", r.bytes_total);
}
template <class V, Of<WorkerReady> R>
void bind(V& v, R& r) {
  v("sampling", r.sampling);
  v("experts", r.experts);
  v("chat_template", r.chat_template);
  v("model", r.model);
  v("architecture", r.architecture);
  v("title", r.title);
  v("file_type", r.file_type);
  v("fingerprint", r.fingerprint);
  v("device", r.device);
  v("context_length", r.context_length);
  v("vocab_size", r.vocab_size);
  v("num_parameters", r.num_parameters);
  v("weight_bytes", r.weight_bytes);
  v("kv_bytes", r.kv_bytes);
  v("load_ms", r.load_ms);
  v("draft", r.draft);
  v("block_size", r.block_size);
  v("num_blocks", r.num_blocks);
  v("can_sleep", r.can_sleep);
}
template <class V, Of<FileFacts> R>
void bind(V& v, R& r) {
  v("architecture", r.architecture);
  v("file_type", r.file_type);
  v("num_parameters", r.num_parameters);
  v("context_length", r.context_length);
  v("sampling", r.sampling);
  v("chat_template", r.chat_template);
  v("abilities", r.abilities);
}
template <class V, Of<WorkerFailed> R>
void bind(V& v, R& r) {
  bind(v, r.error);
}
template <class V, Of<WorkerHeartbeat> R>
void bind(V& v, R& r) {
  bind(v, r.snapshot);
}
template <class V, Of<WorkerStopped> R>
void bind(V&, R&) {}
template <class V, Of<WorkerAsleep> R>
void bind(V& v, R& r) {
  v("put_off_bytes", r.put_off_bytes);
}

}  // namespace hearth::ipc
