#include "daemon/broker/requests/cache_verbs.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>

#include "ipc/text/utf8.h"
#include "kernels/base/log.h"

namespace hearth::broker {
namespace asio = boost::asio;
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
  const auto refuse = [](ErrorCode code, std::string message, const char* field) {
    return Error{code, std::move(message), field};
  };
  if (paths.state_dir.empty()) {
    return refuse(ErrorCode::kUnavailable, "this daemon keeps no prefixes on disk", "");
  }
  const std::string& op = request.op;
  const bool everybody = caller.is_admin && request.all;
  if ((op == "verify" || op == "compact") && !caller.is_admin) {
    return refuse(ErrorCode::kForbidden, fmt::format("{} concerns every owner: for admins", op),
                  "op");
  }
  for (const std::string& name : request.names) {
    if (!is_prefix_name(name)) {
      return refuse(ErrorCode::kInvalidArgument,
                    "names: want 4 to 32 hexadecimal digits, as ls shows them", "names");
    }
  }
  const bool takes_names = op == "rm" || op == "pin" || op == "unpin";
  if (!takes_names && !request.names.empty()) {
    return refuse(ErrorCode::kInvalidArgument, fmt::format("names: {} takes none", op), "names");
  }
  if (takes_names && request.names.empty() && !(op == "rm" && request.all)) {
    return refuse(ErrorCode::kInvalidArgument, "names: want some, as ls shows them", "names");
  }
  // Values stand behind "=": none of them can be taken for an option.
  std::vector<std::string> out = {paths.program.string(), "cache", op,
                                  "--state-dir=" + paths.state_dir.string()};
  if (!request.model.empty()) out.push_back("--model=" + request.model);
  if (op != "verify" && op != "compact") {
    if (!everybody) {
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

void MissLog::note(uint32_t owner, const std::string& id, const ipc::DoneEvent& done) {
  if (of_owner_.size() >= kOwners && !of_owner_.contains(owner)) of_owner_.erase(of_owner_.begin());
  std::deque<Entry>& entries = of_owner_[owner];
  std::erase_if(entries, [&](const Entry& entry) { return entry.id == id; });
  if (entries.size() == kPerOwner) entries.pop_front();
  const std::string why = done.cache_miss.empty()
                              ? "missed nothing: all full blocks in front of the last token were "
                                "cached"
                              : "missed " + done.cache_miss;
  entries.push_back({id, fmt::format("{}: {} of {} prompt tokens cached, {} of them from disk; {}",
                                     id, done.usage.cached_tokens, done.usage.prompt_tokens,
                                     done.usage.cached_disk_tokens, why)});
}

Result<std::string> MissLog::why(uint32_t owner, const std::string& id) const {
  if (const auto entries = of_owner_.find(owner); entries != of_owner_.end()) {
    for (const Entry& entry : entries->second) {
      if (entry.id == id) return entry.sentence;
    }
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("none of your last {} requests that ended has that id", kPerOwner),
               "names"};
}

// ---- Running ------------------------------------------------------------------------------------

struct CacheVerbs::Run {
  Run(asio::io_context& io, int read_fd, ChildProcess started, Answer on_end)
      : output(io, read_fd), timer(io), child(std::move(started)), answer(std::move(on_end)) {}
  asio::posix::stream_descriptor output;
  asio::steady_timer timer;
  ChildProcess child;
  Answer answer;
  std::array<char, 16384> piece{};
  std::string text;
};

CacheVerbs::CacheVerbs(asio::io_context& io, CachePaths paths)
    : io_(io), paths_(std::move(paths)) {}

CacheVerbs::~CacheVerbs() = default;

void CacheVerbs::handle(const Caller& caller, const ipc::CacheRequest& request, Answer answer) {
  if (request.op == "why") {
    if (request.names.size() != 1) {
      return answer(Error{ErrorCode::kInvalidArgument, "names: want one request id", "names"});
    }
    Result<std::string> sentence = misses_.why(caller.uid, request.names.front());
    if (!sentence.ok()) return answer(sentence.take_error());
    return answer(ipc::CacheReply{true, *sentence + "\n"});
  }
  Result<std::vector<std::string>> arguments = cache_arguments(paths_, caller, request);
  if (!arguments.ok()) return answer(arguments.take_error());
  if (running_.size() >= kMaxRuns) {
    return answer(Error{ErrorCode::kBusy, "other cache requests are being answered", ""});
  }
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return answer(Error{ErrorCode::kIo, "pipe", ""});
  Result<ChildProcess> child = ChildProcess::start(*arguments, fds[1]);
  ::close(fds[1]);
  if (!child.ok()) {
    ::close(fds[0]);
    return answer(child.take_error());
  }
  const uint64_t number = next_number_++;
  Run& run = *(running_[number] =
                   std::make_unique<Run>(io_, fds[0], std::move(child).value(), std::move(answer)));
  run.timer.expires_after(kMaxTime);
  run.timer.async_wait([this, number](const boost::system::error_code& error) {
    if (!error) end(number, "took too long");
  });
  read(number);
}

// What a handler is about may have ended since it was queued: numbers are looked up, never kept
// alive.
void CacheVerbs::read(uint64_t number) {
  Run& run = *running_.at(number);
  run.output.async_read_some(
      asio::buffer(run.piece),
      [this, number](const boost::system::error_code& error, size_t bytes) {
        if (error == asio::error::operation_aborted || !running_.contains(number)) return;
        if (error) return end(number, nullptr);  // its output is closed: it has ended
        Run& read_from = *running_.at(number);
        read_from.text.append(read_from.piece.data(), bytes);
        if (read_from.text.size() > kMaxOutputBytes) return end(number, "too much to say");
        read(number);
      });
}

void CacheVerbs::end(uint64_t number, const char* problem) {
  const auto at = running_.find(number);
  if (at == running_.end()) return;
  const std::unique_ptr<Run> ended = std::move(at->second);
  running_.erase(at);
  if (problem != nullptr) {
    log_warn("cache_verb", "problem=\"{}\"", problem);
    return ended->answer(Error{ErrorCode::kUnavailable, problem, ""});
  }
  const bool ok = ended->child.reap() == "exit status 0";
  ended->answer(ipc::CacheReply{ok, ipc::to_valid_utf8(ended->text)});
}

}  // namespace hearth::broker
