#include "daemon/broker/residency/model_facts.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "ipc/wire/worker_codec.h"
#include "kernels/base/log.h"

namespace hearth::broker {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxFactsBytes = 64 << 10;
constexpr auto kMaxFactsTime = std::chrono::seconds(10);

}  // namespace

ModelFacts::ModelFacts(boost::asio::io_context& io, fs::path program)
    : program_(std::move(program)),
      runs_(io, {.runs = 1, .output_bytes = kMaxFactsBytes, .time = kMaxFactsTime}) {}

void ModelFacts::refresh(const std::map<std::string, ModelFile>& models) {
  std::set<fs::path> there;
  for (const auto& [name, model] : models) {
    if (!model.problem.empty()) continue;
    there.insert(model.path);
    const auto [at, added] = known_.try_emplace(model.path);
    Known& known = at->second;
    if (!added && known.bytes == model.bytes && known.changed_ns == model.changed_ns) continue;
    known = {.bytes = model.bytes, .changed_ns = model.changed_ns, .facts = std::nullopt};
    if (std::ranges::find(to_read_, model.path) == to_read_.end()) to_read_.push_back(model.path);
  }
  std::erase_if(known_, [&there](const auto& entry) { return !there.contains(entry.first); });
  std::erase_if(to_read_, [&there](const fs::path& path) { return !there.contains(path); });
  start_next();
}

const ipc::FileFacts* ModelFacts::find(const ModelFile& model) const {
  const auto known = known_.find(model.path);
  return known != known_.end() && known->second.facts ? &*known->second.facts : nullptr;
}

// A file that could not be described is not retried until it changes.
void ModelFacts::start_next() {
  if (to_read_.empty() || runs_.running() > 0) return;
  const fs::path path = std::move(to_read_.front());
  to_read_.pop_front();
  const auto then = [this, path](Result<ProgramRuns::Ended> ended) {
    const auto known = known_.find(path);
    if (known != known_.end() && ended.ok() && ended->ok) {
      known->second.facts = parse_description(ended->output);
    }
    start_next();
  };
  const Result<void> started = runs_.start({program_.string(), "describe", path.string()}, then);
  if (!started.ok()) log_debug("describe", "error=\"{}\"", started.error().message);
}

std::vector<std::string> abilities_of(const ipc::FileFacts& facts, std::string_view tool_form) {
  std::vector<std::string> out = facts.abilities;
  const auto text = std::ranges::find(out, "text");
  const bool has_tools = std::ranges::find(out, "tools") != out.end();
  if (tool_form == "hermes" && facts.chat_template && text != out.end() && !has_tools) {
    out.insert(text + 1, "tools");
  }
  return out;
}

std::optional<ipc::FileFacts> parse_description(std::string_view output) {
  while (output.ends_with('\n')) output.remove_suffix(1);
  Result<ipc::FileFacts> facts =
      ipc::decode_file_facts(output.substr(output.rfind('\n') + 1));  // npos + 1 is 0
  if (!facts.ok()) return std::nullopt;
  return std::move(facts).value();
}

}  // namespace hearth::broker
