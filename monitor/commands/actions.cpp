#include "monitor/commands/actions.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "ipc/client/client.h"
#include "ipc/files/paths.h"
#include "ipc/text/shown_text.h"
#include "monitor/commands/command_output.h"

namespace hearth::monitor {
namespace {

constexpr size_t kMaxOutput = 1u << 20;
constexpr int64_t kPinS = 86'400;
constexpr int kLeaveMs = 500;

using Kind = Command::Kind;

/// The `hearth` next to this program, or on PATH; empty if neither exists.
std::filesystem::path find_hearth() {
  const ipc::Environment environment = ipc::Environment::of_process();
  std::vector<std::filesystem::path> folders;
  if (!environment.program.empty()) folders.push_back(environment.program.parent_path());
  const std::string path = environment.variable("PATH");
  for (size_t from = 0; from <= path.size();) {
    const size_t to = std::min(path.find(':', from), path.size());
    if (to > from) folders.emplace_back(path.substr(from, to - from));
    from = to + 1;
  }
  for (const std::filesystem::path& folder : folders) {
    std::error_code ignored;
    const std::filesystem::path file = folder / "hearth";
    if (std::filesystem::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0) {
      return file;
    }
  }
  return {};
}

std::string loaded_text(const ipc::LoadReply& reply) {
  return fmt::format("{} is in memory: weights {}, KV {}", reply.model,
                     ipc::human_bytes(reply.weight_bytes), ipc::human_bytes(reply.kv_bytes));
}

Result<std::string> ask_cache(ipc::Client& client, const Command& command) {
  ipc::CacheRequest request;
  request.op = command.kind == Kind::kListCache      ? "ls"
               : command.kind == Kind::kRemovePrefix ? "rm"
               : command.kind == Kind::kPinPrefix    ? "pin"
                                                     : "unpin";
  request.as_json = command.kind == Kind::kListCache;
  if (!command.target.empty()) request.names = {command.target};
  request.ttl_s = kPinS;
  HEARTH_ASSIGN_OR_RETURN(ipc::CacheReply reply, client.cache(request));
  if (!reply.ok) return Error::internal(std::move(reply.text));
  return std::move(reply.text);
}

Result<std::string> ask_daemon(const std::filesystem::path& runtime_dir, const Command& command) {
  ipc::ClientOptions options;
  options.runtime_dir = runtime_dir;
  HEARTH_ASSIGN_OR_RETURN(ipc::Client client, ipc::Client::connect(options));
  const std::string& target = command.target;
  switch (command.kind) {
    case Kind::kCancel: {
      HEARTH_TRY(client.cancel(target));
      return fmt::format("{} was cancelled", target);
    }
    case Kind::kLoad: {
      ipc::LoadRequest request;
      request.model = target;
      HEARTH_ASSIGN_OR_RETURN(const ipc::LoadReply reply, client.load(request));
      return loaded_text(reply);
    }
    case Kind::kUnload: {
      HEARTH_TRY(client.unload({.model = target}));
      return fmt::format("{} has left memory", target);
    }
    case Kind::kSwap: {
      HEARTH_TRY(client.swap({.role = command.role, .model = target}));
      return fmt::format("{} is {} now", target, command.role);
    }
    default: return ask_cache(client, command);
  }
}

}  // namespace

std::string in_words(const Command& command) {
  switch (command.kind) {
    case Kind::kCancel: return "cancel " + command.target;
    case Kind::kLoad: return "load " + command.target;
    case Kind::kUnload: return "unload " + command.target;
    case Kind::kSwap: return fmt::format("swap {} to {}", command.role, command.target);
    case Kind::kPlan: return "plan " + command.target;
    case Kind::kListCache: return "list the prefixes on disk";
    case Kind::kRemovePrefix: return "remove prefix " + command.target;
    case Kind::kPinPrefix: return "pin prefix " + command.target;
    case Kind::kUnpinPrefix: return "unpin prefix " + command.target;
  }
  return "";
}

Actions::Actions(std::filesystem::path runtime_dir, std::filesystem::path hearth)
    : shared_(std::make_shared<Shared>()) {
  shared_->runtime_dir = std::move(runtime_dir);
  shared_->hearth = hearth.empty() ? find_hearth() : std::move(hearth);
}

Actions::~Actions() {
  shared_->stop = true;
  for (int waited = 0; shared_->under_way > 0 && waited < kLeaveMs; waited += 10) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Answer Actions::carry_out(const Shared& shared, const Command& command) {
  const bool plans = command.kind == Kind::kPlan;
  if (plans && shared.hearth.empty()) {
    return {command, false, "the program hearth is neither next to this program nor on PATH"};
  }
  const Result<std::string> text =
      plans ? output_of(shared.hearth, {"plan", "--json", "--", command.target}, kMaxOutput,
                        shared.stop)
            : ask_daemon(shared.runtime_dir, command);
  return {command, text.ok(), text.ok() ? *text : text.error().message};
}

void Actions::ask(const Command& command) {
  if (shared_->under_way >= kMaxAtOnce) {
    Answer busy{command, false, "too much is under way already"};
    (void)shared_->answers.try_post(busy);
    return;
  }
  ++shared_->under_way;
  std::thread([shared = shared_, command] {
    Answer answer = carry_out(*shared, command);
    (void)shared->answers.try_post(answer);
    --shared->under_way;
  }).detach();
}

std::vector<Answer> Actions::answers() { return shared_->answers.drain(); }

}  // namespace hearth::monitor
