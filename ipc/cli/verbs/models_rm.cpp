// hearth models rm: removes a model's files.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/input.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"
#include "ipc/files/paths.h"
#include "ipc/files/removal.h"

namespace hearth::cli {
namespace {

namespace fs = std::filesystem;

/// The directories in which models may be removed: not those that were installed with hearth.
Result<std::vector<fs::path>> removable_folders(const RemoveOptions& options) {
  if (!options.dir.empty()) return std::vector<fs::path>{options.dir};
  ipc::Environment environment = ipc::Environment::of_process();
  environment.program.clear();
  HEARTH_ASSIGN_OR_RETURN(ipc::Paths paths, ipc::resolve_paths(environment));
  return std::move(paths.model_dirs);
}

std::string counted(size_t n, const char* noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

/// A daemon that has the model in memory.
class Holder {
 public:
  /// kBusy while requests use the model.
  Result<void> find(const ipc::Removal& removal) {
    Result<ipc::Client> client = ipc::Client::connect();
    if (!client.ok()) return {};
    HEARTH_ASSIGN_OR_RETURN(const ipc::ModelsReply models, client->models());
    const bool searches_it = std::ranges::any_of(models.folders, [&](const std::string& folder) {
      std::error_code ignored;
      return fs::equivalent(folder, removal.folder, ignored);
    });
    const auto entry = std::ranges::find(models.models, removal.model, &ipc::ModelEntry::name);
    if (!searches_it || entry == models.models.end()) return {};
    if (entry->state == "found" || entry->state == "parked" || entry->state == "failed") return {};
    HEARTH_ASSIGN_OR_RETURN(const ipc::PsReply ps, client->ps());
    const auto users = std::ranges::count(ps.requests, removal.model, &ipc::PsEntry::model);
    if (users > 0) {
      return Error::busy(
          fmt::format("{} is in use by {}; end them (hearth ps, hearth cancel) or "
                      "wait for them",
                      removal.model, counted(users, "request")));
    }
    client_ = std::move(client).value();
    return {};
  }
  /// Nothing happens if no daemon has the model in memory.
  Result<void> unload(const std::string& model) {
    if (!client_) return {};
    HEARTH_TRY(client_->unload({.model = model}));
    return {};
  }

 private:
  std::optional<ipc::Client> client_;
};

bool answered_yes() {
  char line[16] = {};
  if (std::fgets(line, sizeof line, stdin) == nullptr) return false;
  return line[0] == 'y' || line[0] == 'Y';
}

}  // namespace

int remove_model(const RemoveOptions& options) {
  const auto folders = removable_folders(options);
  if (!folders.ok()) return fail(folders.error());
  const Result<ipc::Removal> removal = ipc::find_removal(options.model, *folders);
  if (!removal.ok()) return fail(removal.error());
  Holder holder;
  if (const Result<void> free = holder.find(*removal); !free.ok()) return fail(free.error());
  const std::string what = terminal_safe(
      fmt::format("{}: {}, {}, in {}", removal->model, counted(removal->files.size(), "file"),
                  human_bytes(removal->bytes), removal->folder.string()));
  if (!options.yes) {
    if (!stdin_is_terminal()) {
      complain("models rm: standard input is not a terminal; --yes removes without asking");
      return kUsage;
    }
    write_stderr(fmt::format("Remove {}? [y/N] ", what));
    if (!answered_yes()) return kFailed;
  }
  if (const Result<void> gone = holder.unload(removal->model); !gone.ok())
    return fail(gone.error());
  if (const Result<void> done = ipc::remove_files(*removal); !done.ok()) return fail(done.error());
  write_stdout(fmt::format("removed {}\n", what));
  if (!removal->remaining.empty()) {
    write_stdout(terminal_safe(fmt::format("{} now means {}", removal->model,
                                           removal->remaining.front().string())) +
                 "\n");
  }
  return kOk;
}

}  // namespace hearth::cli
