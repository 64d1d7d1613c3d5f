#pragma once
// Lists every setting of hearth.toml once, with key, range and member. Reading and listing a
// section use the same walk, so neither can miss a key. Private to the broker's configuration.

#include <string>
#include <vector>

#include "daemon/broker/config/config.h"

namespace hearth::broker {

inline constexpr int64_t kMaxMs = 86'400'000;  ///< a day; longer values are probably typing errors

template <class Section>
void visit_server(Section& in, ServerConfig* server) {
  in.path("runtime_dir", &server->runtime_dir);
  in.path("state_dir", &server->state_dir);
  in.paths("model_dirs", &server->model_dirs);
  in.paths("other_model_dirs", &server->other_model_dirs);
  in.text("admin_group", &server->admin_group);
  std::string level(name(server->log_level));
  in.choice("log_level", {"debug", "info", "warn", "error"}, &level);
  parse_log_level(level, &server->log_level);
  in.integer("drain_timeout_ms", 0, kMaxMs, &server->drain_timeout_ms);
  in.choice("start", {"auto", "loaded", "idle"}, &server->start);
  in.text("tcp", &server->tcp);
  in.path("tcp_secret_file", &server->tcp_secret_file);
  in.path("tcp_clients_file", &server->tcp_clients_file);
  in.choice("sleep_closes", {"gpu", "all", "none"}, &server->sleep_closes);
}

template <class Section>
void visit_limits(Section& in, LimitsConfig* limits) {
  in.integer("max_message_bytes", 1024, 1 << 30, &limits->max_message_bytes);
  in.integer("max_requests", 1, 1 << 20, &limits->max_requests);
  in.integer("max_requests_per_owner", 1, 1 << 20, &limits->max_requests_per_owner);
  in.integer("max_queued_bytes", 1024, int64_t{1} << 40, &limits->max_queued_bytes);
  in.integer("max_queued_bytes_per_owner", 1024, int64_t{1} << 40,
             &limits->max_queued_bytes_per_owner);
  in.integer("max_output_tokens_per_owner", 0, int64_t{1} << 40,
             &limits->max_output_tokens_per_owner);
  in.integer("output_buffer_bytes", 4096, 1 << 30, &limits->output_buffer_bytes);
  in.integer("max_connections", 16, 1 << 20, &limits->max_connections);
  in.integer("max_connections_per_owner", 1, 1 << 20, &limits->max_connections_per_owner);
  in.integer("max_resident", 1, 256, &limits->max_resident);
  in.integer("attach_bytes_per_owner", 0, int64_t{1} << 40, &limits->attach_bytes_per_owner);
  in.integer("attach_bytes", 0, int64_t{1} << 40, &limits->attach_bytes);
  in.integer("attach_keep_ms", 0, kMaxMs, &limits->attach_keep_ms);
}

template <class Section>
void visit_http(Section& in, HttpConfig* http) {
  in.boolean("enabled", &http->enabled);
  in.text("listen", &http->listen);
  in.path("keys_file", &http->keys_file);
  in.path("tls_certificate_file", &http->tls_certificate_file);
  in.path("tls_key_file", &http->tls_key_file);
  in.texts("trusted_proxy", &http->trusted_proxy);
  in.texts("allowed_hosts", &http->allowed_hosts);
  in.texts("allowed_origins", &http->allowed_origins);
  in.boolean("leave_out_volatile_lines", &http->leave_out_volatile_lines);
  in.texts("volatile_lines", &http->volatile_lines);
  in.integer("max_connections", 1, 1 << 16, &http->max_connections);
  in.integer("header_timeout_ms", 100, kMaxMs, &http->header_timeout_ms);
  in.integer("body_timeout_ms", 100, kMaxMs, &http->body_timeout_ms);
  in.integer("idle_timeout_ms", 100, kMaxMs, &http->idle_timeout_ms);
  in.integer("write_timeout_ms", 100, kMaxMs, &http->write_timeout_ms);
  in.integer("responses_keep_s", 0, int64_t{10} * 366 * 86'400, &http->responses_keep_s);
  in.integer("responses_bytes", 1 << 20, int64_t{1} << 40, &http->responses_bytes);
  in.integer("responses_bytes_per_owner", 1 << 20, int64_t{1} << 40,
             &http->responses_bytes_per_owner);
  in.integer("batches_keep_s", 0, int64_t{10} * 366 * 86'400, &http->batches_keep_s);
  in.integer("batches_bytes", 1 << 20, int64_t{1} << 40, &http->batches_bytes);
  in.integer("batches_bytes_per_owner", 1 << 20, int64_t{1} << 40, &http->batches_bytes_per_owner);
  in.integer("batch_requests", 1, 1 << 10, &http->batch_requests);
}

template <class Section>
void visit_residency(Section& in, ResidencyConfig* residency) {
  in.integer("memory_bytes", 0, int64_t{1} << 50, &residency->memory_bytes);
  in.integer("keep_alive_ms", 0, 7 * kMaxMs, &residency->keep_alive_ms);
  in.integer("keep_alive_max_ms", 0, 7 * kMaxMs, &residency->keep_alive_max_ms);
  in.integer("turn_ms", 0, kMaxMs, &residency->turn_ms);
  in.boolean("load_on_demand", &residency->load_on_demand);
}

/// Devices that need no name of their own.
inline const std::vector<std::string> kDeviceKinds = {
    "auto", "cpu", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7"};

template <class Section>
void visit_device(Section& in, DeviceConfig* device) {
  in.choice("kind", kDeviceKinds, &device->kind);
  in.integers("cores", 0, 1023, &device->cores);
  in.integer("threads", 0, 4096, &device->threads);
  in.integer("memory_bytes", 0, int64_t{1} << 50, &device->memory_bytes);
}

/// Settings of all workers that a model may have of its own: WorkerConfig or ModelConfig.
template <class Section, class Settings>
void visit_worker_or_model(Section& in, Settings* settings) {
  in.choice("device", kDeviceKinds, &settings->device);
  in.choice("numerics", {"exact", "fast"}, &settings->numerics);
  in.choice("mapping", {"memory", "file"}, &settings->mapping);
  in.integer("weight_bytes", 0, int64_t{1} << 50, &settings->weight_bytes);
  in.one_or_two("kv_type", {"f16", "bf16", "q8_0", "fp8", "q4_0", "f32"}, &settings->kv_type);
  in.integer("kv_bytes", 0, int64_t{1} << 50, &settings->kv_bytes);
  in.integer("context_length", 0, 1 << 27, &settings->context_length);
  in.text("draft", &settings->draft);
}

template <class Section>
void visit_worker(Section& in, WorkerConfig* worker) {
  visit_worker_or_model(in, worker);
  in.path("program", &worker->program);
  in.integer("threads", 0, 4096, &worker->threads);
  in.text("cpu_variant", &worker->cpu_variant);
  in.integer("block_size", 16, 1024, &worker->block_size);
  in.integer("max_seqs", 1, 1 << 16, &worker->max_seqs);
  in.integer("max_step_tokens", 1, 1 << 20, &worker->max_step_tokens);
  in.choice("policy", {"continuous", "static"}, &worker->policy);
  in.boolean("chunked_prefill", &worker->chunked_prefill);
  in.number("waiting_served_ratio", 0.0, 1e6, &worker->waiting_served_ratio);
  in.boolean("prefix_cache", &worker->prefix_cache);
  in.choice("speculation", {"lookup", "off"}, &worker->speculation);
  in.boolean("prefix_store", &worker->prefix_store);
  in.integer("prefix_store_bytes", 1 << 20, int64_t{1} << 50, &worker->prefix_store_bytes);
  in.integer("prefix_owner_bytes", 0, int64_t{1} << 50, &worker->prefix_owner_bytes);
  in.integer("adapter_bytes", 0, int64_t{1} << 50, &worker->adapter_bytes);
  in.integer("prefix_pinned_bytes", 0, int64_t{1} << 50, &worker->prefix_pinned_bytes);
  in.integer("prefix_ram_bytes", 0, int64_t{1} << 50, &worker->prefix_ram_bytes);
  in.choice("tool_form", {"template", "hermes"}, &worker->tool_form);
  in.choice("prefix_restore", {"auto", "always", "both"}, &worker->prefix_restore);
  in.integer("heartbeat_timeout_ms", 100, kMaxMs, &worker->heartbeat_timeout_ms);
  in.integer("load_timeout_ms", 100, kMaxMs, &worker->load_timeout_ms);
  in.integer("restart_delay_ms", 0, kMaxMs, &worker->restart_delay_ms);
  in.integer("restart_delay_max_ms", 0, kMaxMs, &worker->restart_delay_max_ms);
}

template <class Section>
void visit_cache(Section& in, CacheConfig* cache) {
  in.choice("tier", {"off", "memory", "disk"}, &cache->tier);
  in.integer("disk_bytes", 1 << 20, int64_t{1} << 50, &cache->disk_bytes);
}

template <class Section>
void visit_cache_owners(Section& in, std::map<std::string, std::string>* owners) {
  in.strings(owners);
}

template <class Section>
void visit_kv_events(Section& in, KvEventsConfig* kv_events) {
  in.choice("publish", {"off", "shared", "all"}, &kv_events->publish);
  in.text("listen", &kv_events->listen);
  in.text("replay_listen", &kv_events->replay_listen);
  in.text("pod", &kv_events->pod);
  in.integer("buffer_bytes", 1 << 16, 1 << 30, &kv_events->buffer_bytes);
}

template <class Section>
void visit_sampling(Section& in, SamplingConfig* sampling) {
  in.sampling(&sampling->models);
}

template <class Section>
void visit_roles(Section& in, std::map<std::string, std::string>* roles) {
  in.strings(roles);
}

/// [roles.NAME]. `local`: the model here, which [roles] names for a role without a remote.
template <class Section>
void visit_remote(Section& in, std::string* local, RemoteConfig* remote) {
  in.text("local", local);
  in.text("remote", &remote->remote);
  in.path("key_file", &remote->key_file);
  in.path("ca_file", &remote->ca_file);
  in.text("model", &remote->model);
  in.text("when", &remote->when);
  in.integer("stall_timeout_ms", 100, kMaxMs, &remote->stall_timeout_ms);
}

template <class Section>
void visit_model(Section& in, ModelConfig* model) {
  visit_worker_or_model(in, model);
  in.texts("devices", &model->devices);
  in.texts_or_auto("stages", &model->stages);
  in.texts("split", &model->split);
  in.text("experts", &model->experts);
  in.integer("hot_expert_bytes", 0, int64_t{1} << 50, &model->hot_expert_bytes);
  in.integer("keep_alive_ms", 0, 7 * kMaxMs, &model->keep_alive_ms);
}

template <class Section>
void visit_owner(Section& in, OwnerConfig* owner) {
  in.integer("max_requests", 1, 1 << 20, &owner->max_requests);
  in.integer("max_queued_bytes", 1024, int64_t{1} << 40, &owner->max_queued_bytes);
  in.integer("max_output_tokens", 0, int64_t{1} << 40, &owner->max_output_tokens);
  in.choice("priority", {"interactive", "normal", "batch"}, &owner->priority);
  in.boolean("remote", &owner->remote);
}

}  // namespace hearth::broker
