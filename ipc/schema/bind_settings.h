#pragma once
// The part of bind.h that has the settings of a worker.

#include <concepts>
#include <type_traits>

#include "ipc/schema/serve_settings.h"

namespace hearth::ipc {

template <class R, class T>
concept Of = std::same_as<std::remove_const_t<R>, T>;

template <class V, Of<EngineSettings> R>
void bind(V& v, R& r) {
  v("device", r.device);
  v("threads", r.threads);
  v("cpu_variant", r.cpu_variant);
  v("numerics", r.numerics);
  v("mapping", r.mapping);
  v("weight_bytes", r.weight_bytes);
  v("kv_type", r.kv_type);
  v("kv_bytes", r.kv_bytes);
  v("block_size", r.block_size);
  v("context_length", r.context_length);
  v("max_seqs", r.max_seqs);
  v("max_step_tokens", r.max_step_tokens);
  v("policy", r.policy);
  v("chunked_prefill", r.chunked_prefill);
  v("waiting_served_ratio", r.waiting_served_ratio);
  v("prefix_cache", r.prefix_cache);
  v("speculation", r.speculation);
  v("draft", r.draft);
  v("prefix_store", r.prefix_store);
  v("prefix_store_bytes", r.prefix_store_bytes);
  v("prefix_owner_bytes", r.prefix_owner_bytes);
  v("prefix_pinned_bytes", r.prefix_pinned_bytes);
  v("prefix_ram_bytes", r.prefix_ram_bytes);
  v("tool_form", r.tool_form);
  v("prefix_restore", r.prefix_restore);
  v("adapter_bytes", r.adapter_bytes);
}
template <class V, Of<StageSettings> R>
void bind(V& v, R& r) {
  v("device", r.device);
  v("cores", r.cores);
  v("threads", r.threads);
  v("memory_bytes", r.memory_bytes);
  v("kind", r.kind);
}
template <class V, Of<ServeSettings> R>
void bind(V& v, R& r) {
  v("engine", r.engine);
  v("sampling", r.sampling);
  v("log_level", r.log_level);
  v("prefix_dir", r.prefix_dir);
  v("kv_events", r.kv_events);
  v("memory_bytes", r.memory_bytes);
  v("cores", r.cores);
  v("stages", r.stages);
  v("split", r.split);
  v("spare_stages", r.spare_stages);
  v("experts_apart", r.experts_apart);
  v("hot_expert_bytes", r.hot_expert_bytes);
}

}  // namespace hearth::ipc
