// Ollama's lists of models.

#include <fmt/core.h>

#include <algorithm>

#include "daemon/http/answers/api_answer.h"
#include "daemon/http/answers/named_models.h"
#include "ipc/wire/json.h"
#include "kernels/base/numbers.h"

namespace hearth::http {
namespace {

using ipc::Json;

std::string parameter_size(uint64_t parameters) {
  const double count = as_double(parameters);
  return count >= 1e9 ? fmt::format("{:.1f}B", count / 1e9) : fmt::format("{:.2f}M", count / 1e6);
}

Json details(const ipc::ModelEntry& entry) {
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", entry.architecture},
          {"families", Json::array({entry.architecture})},
          {"parameter_size", parameter_size(entry.num_parameters)},
          {"quantization_level", entry.file_type}};
}

Json listed(const ipc::ModelEntry& entry) {
  return {{"name", entry.name},
          {"model", entry.name},
          {"size", entry.file_bytes},
          {"digest", ""},
          {"details", details(entry)}};
}

Json capabilities(const ipc::ModelEntry& entry) {
  Json out = Json::array();
  for (const auto& [ours, theirs] :
       {std::pair{"text", "completion"}, std::pair{"tools", "tools"},
        std::pair{"reasoning", "thinking"}, std::pair{"vectors", "embedding"}}) {
    if (std::ranges::find(entry.abilities, ours) != entry.abilities.end()) out.push_back(theirs);
  }
  return out;
}

/// How tokens are drawn if a request leaves it open, one parameter a line.
std::string parameters(const ipc::ModelEntry& entry) {
  if (!entry.sampling) return {};
  const ipc::SamplingDefaults& s = *entry.sampling;
  return fmt::format(
      "temperature {}\ntop_k {}\ntop_p {}\nmin_p {}\nrepeat_penalty {}\nrepeat_last_n {}",
      s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty, s.penalty_window);
}

}  // namespace

std::string ollama_tags_body(const ipc::ModelsReply& reply) {
  Json models = Json::array();
  for (const ipc::ModelEntry& entry : reply.models) models.push_back(listed(entry));
  return ipc::dump_json({{"models", std::move(models)}});
}

std::string ollama_ps_body(const ipc::ModelsReply& reply, int64_t now_s) {
  Json models = Json::array();
  for (const ipc::ModelEntry& entry : reply.models) {
    if (entry.state != "resident") continue;
    Json one = listed(entry);
    one["size"] = entry.memory_bytes;
    one["size_vram"] = entry.device.starts_with("cuda") ? entry.memory_bytes : 0;
    one["context_length"] = entry.context_length;
    if (entry.keep_alive_ms > 0) {
      const int64_t left_ms = std::max<int64_t>(entry.keep_alive_ms - entry.idle_ms, 0);
      one["expires_at"] = time_text(now_s + left_ms / 1000);
    }
    models.push_back(std::move(one));
  }
  return ipc::dump_json({{"models", std::move(models)}});
}

std::string ollama_show_body(const ipc::ModelsReply& reply, std::string_view name) {
  const ipc::ModelEntry* const entry = find_entry(reply, name).entry;
  if (entry == nullptr) return {};
  Json info = {{"general.architecture", entry->architecture},
               {"general.parameter_count", entry->num_parameters},
               {entry->architecture + ".context_length", entry->context_length}};
  return ipc::dump_json({{"parameters", parameters(*entry)},
                         {"details", details(*entry)},
                         {"model_info", std::move(info)},
                         {"capabilities", capabilities(*entry)}});
}

}  // namespace hearth::http
