// Answers that need no model output: tokens, models, health.

#include <string>
#include <vector>

#include "daemon/http/answers/api_answer.h"
#include "daemon/http/answers/named_models.h"
#include "ipc/files/model_file.h"
#include "ipc/wire/json.h"

namespace hearth::http {
namespace {

using ipc::Json;

/// Null until a worker has read the model's file.
Json sampling_json(const ipc::ModelEntry& entry) {
  if (!entry.sampling) return nullptr;
  const ipc::SamplingDefaults& s = *entry.sampling;
  return {{"temperature", s.temperature},
          {"top_k", s.top_k},
          {"top_p", s.top_p},
          {"min_p", s.min_p},
          {"repetition_penalty", s.repetition_penalty},
          {"penalty_window", s.penalty_window}};
}

Json model_json(const std::string& id, const ipc::ModelEntry& entry) {
  // With the members by which vLLM's and Anthropic's clients know a model.
  return {{"id", id},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "hearth"},
          {"max_model_len", entry.context_length},
          {"type", "model"},
          {"display_name", id},
          {"created_at", "1970-01-01T00:00:00Z"},
          {"hearth",
           {{"file", entry.name},
            {"state", entry.state},
            {"context_length", entry.context_length},
            {"sampling", sampling_json(entry)},
            {"file_bytes", entry.file_bytes}}}};
}

// Visits every name that a request may use, with its model.
template <class Visit>
void for_each_name(const ipc::ModelsReply& reply, Visit visit) {
  for (const ipc::ModelEntry& entry : reply.models) visit(entry.name, entry);
  for (const ipc::ModelEntry& entry : reply.models) {
    for (const std::string& role : entry.roles) visit(role, entry);
  }
  // Adapters in memory, which are known to fit their model.
  for (const ipc::ModelEntry& entry : reply.models) {
    for (const ipc::AdapterUse& adapter : entry.adapters) {
      visit(entry.name + ":" + adapter.name, entry);
    }
  }
}

}  // namespace

std::string models_body(const ipc::ModelsReply& reply) {
  Json data = Json::array();
  for_each_name(reply, [&](const std::string& id, const ipc::ModelEntry& entry) {
    data.push_back(model_json(id, entry));
  });
  Json first, last;  // null if there are none
  if (!data.empty()) {
    first = data.front()["id"];
    last = data.back()["id"];
  }
  return ipc::dump_json({{"object", "list"},
                         {"data", std::move(data)},
                         {"has_more", false},
                         {"first_id", std::move(first)},
                         {"last_id", std::move(last)}});
}

NamedEntry find_entry(const ipc::ModelsReply& reply, std::string_view name) {
  std::vector<std::string> names;
  for_each_name(reply, [&](const std::string& id, const ipc::ModelEntry&) { names.push_back(id); });
  NamedEntry found{.name = ipc::match_model_name(name, names)};
  for_each_name(reply, [&](const std::string& id, const ipc::ModelEntry& entry) {
    if (found.entry == nullptr && !found.name.empty() && id == found.name) found.entry = &entry;
  });
  return found;
}

std::string model_body(const ipc::ModelsReply& reply, std::string_view name) {
  const NamedEntry found = find_entry(reply, name);
  if (found.entry == nullptr) return {};
  return ipc::dump_json(model_json(found.name, *found.entry));
}

std::string health_body(const ipc::HealthReply& reply) {
  return ipc::dump_json({{"status", reply.status}, {"problems", reply.problems}});
}

std::string ready_body(const Result<void>& ready) {
  if (ready) return ipc::dump_json({{"ready", true}});
  return ipc::dump_json({{"ready", false}, {"reason", ready.error().message}});
}

}  // namespace hearth::http
