#include "daemon/broker/requests/cache_verbs.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/broker/requests/owners.h"
#include "ipc/text/utf8.h"

namespace hearth::broker {
namespace {

constexpr size_t kMaxRuns = 4;
constexpr size_t kMaxOutputBytes = 8u << 20;
constexpr auto kMaxTime = std::chrono::minutes(5);

bool is_prefix_name(const std::string& name) {
  return name.size() >= 4 && name.size() <= 32 && std::ranges::all_of(name, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

Result<std::vector<std::string>> cache_arguments(const CachePaths& paths, const Caller& caller,
                                                 const ipc::CacheRequest& request) {
  if (paths.state_dir.empty()) {
    return Error::unavailable("this daemon keeps no prefixes on disk");
  }
  const std::string& op = request.op;
  const bool all_owners = caller.is_admin && request.all;
  if ((op == "verify" || op == "compact") && !caller.is_admin) {
    return Error::forbidden(fmt::format("{} concerns every owner: for admins", op), "op");
  }
  for (const std::string& name : request.names) {
    if (!is_prefix_name(name)) {
      return Error::invalid("names: want 4 to 32 hexadecimal digits, as ls shows them", "names");
    }
  }
  const bool takes_names = op == "rm" || op == "pin" || op == "unpin";
  if (!takes_names && !request.names.empty()) {
    return Error::invalid(fmt::format("names: {} takes none", op), "names");
  }
  if (takes_names && request.names.empty() && !(op == "rm" && request.all)) {
    return Error::invalid("names: want some, as ls shows them", "names");
  }
  // Values follow "=", so that none can be parsed as an option.
  std::vector<std::string> out = {paths.program.string(), "cache", op,
                                  "--state-dir=" + paths.state_dir.string()};
  if (!request.model.empty()) out.push_back("--model=" + request.model);
  if (op != "verify" && op != "compact") {
    if (!all_owners) {
      out.push_back("--owner=" + owner_name(caller.uid));
    } else if (op == "rm" && request.names.empty()) {
      out.emplace_back("--all");
    }
  }
  if (op == "rm" && request.wipe) out.emplace_back("--wipe");
  if (op == "pin") {
    out.push_back(fmt::format("--ttl-s={}", request.ttl_s));
    out.push_back(fmt::format("--pinned-bytes={}", paths.pinned_bytes));
  }
  if ((op == "ls" || op == "stats") && request.as_json) out.emplace_back("--json");
  if (op == "ls" && request.show_text) {
    out.emplace_back("--show-text");
    for (const auto& dir : paths.model_dirs) out.push_back("--model-dir=" + dir.string());
  }
  out.insert(out.end(), request.names.begin(), request.names.end());
  return out;
}

// ---- Why ----------------------------------------------------------------------------------------

MissLog::Entry& MissLog::entry(uint32_t owner, const std::string& id) {
  if (of_owner_.size() >= kOwners && !of_owner_.contains(owner)) of_owner_.erase(of_owner_.begin());
  std::deque<Entry>& entries = of_owner_[owner];
  const auto known = std::ranges::find(entries, id, &Entry::id);
  Entry newest = known == entries.end() ? Entry{.id = id} : std::move(*known);
  if (known != entries.end()) entries.erase(known);
  if (entries.size() == kPerOwner) entries.pop_front();
  entries.push_back(std::move(newest));
  return entries.back();
}

void MissLog::note_left_out(uint32_t owner, const std::string& id, int32_t lines) {
  entry(owner, id).left_out = lines;
}

void MissLog::note(uint32_t owner, const std::string& id, const ipc::DoneEvent& done) {
  Entry& ended = entry(owner, id);
  const std::string why = done.cache_miss.empty()
                              ? "missed nothing: all full blocks before the last token were "
                                "cached"
                              : "missed " + done.cache_miss;
  ended.sentence = fmt::format("{}: {} of {} prompt tokens cached, {} of them from disk; {}", id,
                               done.usage.cached_tokens, done.usage.prompt_tokens,
                               done.usage.cached_disk_tokens, why);
  if (ended.left_out > 0) {
    ended.sentence += fmt::format(
        "; lines of its system prompt that differ in each request were left out: {} "
        "(http.volatile_lines)",
        ended.left_out);
  }
}

Result<std::string> MissLog::why(uint32_t owner, const std::string& id) const {
  if (const auto entries = of_owner_.find(owner); entries != of_owner_.end()) {
    for (const Entry& entry : entries->second) {
      if (entry.id == id && !entry.sentence.empty()) return entry.sentence;
    }
  }
  return Error::not_found(
      fmt::format("none of your last {} requests that ended has that id", kPerOwner), "names");
}

// ---- Running ------------------------------------------------------------------------------------

CacheVerbs::CacheVerbs(boost::asio::io_context& io, CachePaths paths)
    : paths_(std::move(paths)),
      runs_(io, {.runs = kMaxRuns, .output_bytes = kMaxOutputBytes, .time = kMaxTime}) {}

void CacheVerbs::handle(const Caller& caller, const ipc::CacheRequest& request,
                        const Answer& answer) {
  if (request.op == "why") {
    if (request.names.size() != 1) {
      return answer(Error::invalid("names: want one request id", "names"));
    }
    Result<std::string> sentence = misses_.why(caller.uid, request.names.front());
    if (!sentence.ok()) return answer(sentence.take_error());
    return answer(ipc::CacheReply{true, *sentence + "\n"});
  }
  Result<std::vector<std::string>> arguments = cache_arguments(paths_, caller, request);
  if (!arguments.ok()) return answer(arguments.take_error());
  const Result<void> started = runs_.start(*arguments, [answer](Result<ProgramRuns::Ended> ended) {
    if (!ended.ok()) return answer(ended.take_error());
    answer(ipc::CacheReply{ended->ok, ipc::to_valid_utf8(ended->output)});
  });
  if (!started.ok()) answer(started.error());
}

}  // namespace hearth::broker
