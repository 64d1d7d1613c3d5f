// hearth cache ls|stats|rm|verify|compact: the prefixes kept on disk. Works on the files, whether
// or not a worker has them open; who may read the folder may look after it.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "daemon/worker/verbs.h"
#include "engine/store/store_admin.h"
#include "ipc/paths.h"
#include "ipc/shown_text.h"

namespace hearth::worker {
namespace fs = std::filesystem;
namespace {

using engine::StoreAdmin;
using engine::StoredEntry;

struct Options {
  std::string state_dir;
  std::string model;  ///< only this one's databases
  std::string owner;
  std::vector<std::string> names;
  bool all = false;
  bool wipe = false;
  bool json = false;
};

int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string age(int64_t since_s) {
  const int64_t s = std::max<int64_t>(0, now_s() - since_s);
  if (s < 120) return fmt::format("{} s", s);
  if (s < 7200) return fmt::format("{} min", s / 60);
  if (s < 172'800) return fmt::format("{} h", s / 3600);
  return fmt::format("{} days", s / 86'400);
}

std::string size_text(uint64_t bytes) {
  if (bytes < 10 << 10) return fmt::format("{} B", bytes);
  if (bytes < 10 << 20) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

/// A run of chunks that nothing branches off: one line of the tree.
struct Run {
  std::vector<const StoredEntry*> chunks;
  std::vector<size_t> next;  ///< runs that continue it
  uint64_t bytes() const {
    uint64_t out = 0;
    for (const StoredEntry* chunk : chunks) out += chunk->bytes;
    return out;
  }
  /// What a person calls it: enough of the last block's name.
  std::string name() const { return engine::to_hex(chunks.back()->last).substr(0, 12); }
  int64_t end_block(const engine::KvLayout& layout) const {
    return int64_t{chunks.back()->index} * layout.chunk_blocks() + chunks.back()->num_blocks;
  }
};

struct Tree {
  std::vector<Run> runs;
  std::vector<size_t> roots;  ///< also those whose beginning is gone
};

Tree tree_of(const std::vector<StoredEntry>& entries) {
  std::map<std::string, std::vector<const StoredEntry*>> children;  // by the parent's name
  std::set<std::string> lasts;
  for (const StoredEntry& entry : entries) {
    children[engine::to_hex(entry.parent)].push_back(&entry);
    lasts.insert(engine::to_hex(entry.last));
  }
  Tree tree;
  // A row that names itself as its parent is crafted: each row is shown once.
  std::set<int64_t> seen;
  const auto grow = [&](const StoredEntry* first, const auto& self) -> size_t {
    Run run;
    const StoredEntry* chunk = first;
    std::vector<const StoredEntry*> more;
    while (true) {
      run.chunks.push_back(chunk);
      seen.insert(chunk->row);
      more.clear();
      for (const StoredEntry* child : children[engine::to_hex(chunk->last)]) {
        if (!seen.contains(child->row)) more.push_back(child);
      }
      if (more.size() != 1) break;
      chunk = more.front();
    }
    const size_t at = tree.runs.size();
    tree.runs.push_back(std::move(run));
    for (const StoredEntry* child : more) {
      if (seen.contains(child->row)) continue;
      const size_t next = self(child, self);
      tree.runs[at].next.push_back(next);
    }
    return at;
  };
  for (const StoredEntry& entry : entries) {
    if (seen.contains(entry.row) || lasts.contains(engine::to_hex(entry.parent))) continue;
    tree.roots.push_back(grow(&entry, grow));
  }
  return tree;
}

void print_run(const Tree& tree, size_t at, int depth, const engine::KvLayout& layout,
               std::string& out) {
  constexpr int kMaxIndent = 20;
  const Run& run = tree.runs[at];
  const StoredEntry& tip = *run.chunks.back();
  out += fmt::format("  {:{}}{}  to token {}  {}  {} hits  used {} ago  {}{}\n", "",
                     2 * std::min(depth, kMaxIndent), run.name(),
                     run.end_block(layout) * layout.block_size, size_text(run.bytes()), tip.hits,
                     age(tip.used_s), ipc::one_line(tip.owner, 0),
                     tip.pinned_until_s > now_s() ? "  pinned" : "");
  for (const size_t next : run.next) print_run(tree, next, depth + 1, layout, out);
}

std::vector<StoredEntry> of_owner(std::vector<StoredEntry> entries, const std::string& owner) {
  if (!owner.empty()) {
    std::erase_if(entries, [&](const StoredEntry& entry) { return entry.owner != owner; });
  }
  return entries;
}

Result<fs::path> folder_of(const Options& options) {
  if (!options.state_dir.empty()) return fs::path(options.state_dir) / "prefix";
  HEARTH_ASSIGN_OR_RETURN(const ipc::Paths paths,
                          ipc::resolve_paths(ipc::Environment::of_process()));
  return paths.state / "prefix";
}

/// Calls fn(admin) for each database asked for; what cannot be opened is named, and passed over.
template <typename Fn>
Result<bool> for_each_store(const Options& options, const Fn& fn) {
  HEARTH_ASSIGN_OR_RETURN(const fs::path folder, folder_of(options));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<fs::path> files, StoreAdmin::files(folder));
  bool good = true;
  for (const fs::path& file : files) {
    Result<StoreAdmin> admin = StoreAdmin::open(file);
    if (!admin.ok()) {
      report_failure(admin.error());
      good = false;
      continue;
    }
    if (!options.model.empty() && admin->layout().model != options.model) continue;
    HEARTH_TRY(fn(*admin));
  }
  return good;
}

Result<bool> list(const Options& options) {
  nlohmann::json all = nlohmann::json::array();
  std::string out;
  HEARTH_ASSIGN_OR_RETURN(
      const bool good, for_each_store(options, [&](StoreAdmin& admin) -> Result<void> {
        HEARTH_ASSIGN_OR_RETURN(std::vector<StoredEntry> entries, admin.entries());
        entries = of_owner(std::move(entries), options.owner);
        if (options.json) {
          for (const StoredEntry& entry : entries) {
            const int64_t first = int64_t{entry.index} * admin.layout().chunk_blocks();
            all.push_back({{"model", ipc::one_line(admin.layout().model, 0)},
                           {"name", engine::to_hex(entry.last)},
                           {"parent", engine::to_hex(entry.parent)},
                           {"owner", ipc::one_line(entry.owner, 0)},
                           {"first_token", first * admin.layout().block_size},
                           {"end_token", (first + entry.num_blocks) * admin.layout().block_size},
                           {"bytes", entry.bytes},
                           {"hits", entry.hits},
                           {"used_s", entry.used_s},
                           {"pinned_until_s", entry.pinned_until_s}});
          }
          return {};
        }
        out +=
            fmt::format("{}: {} chunks\n", ipc::one_line(admin.layout().model, 0), entries.size());
        const Tree tree = tree_of(entries);
        for (const size_t root : tree.roots) print_run(tree, root, 0, admin.layout(), out);
        return {};
      }));
  write_stdout(options.json ? all.dump() + "\n" : out);
  return good;
}

Result<bool> stats(const Options& options) {
  nlohmann::json all = nlohmann::json::array();
  std::string out;
  HEARTH_ASSIGN_OR_RETURN(
      const bool good, for_each_store(options, [&](StoreAdmin& admin) -> Result<void> {
        HEARTH_ASSIGN_OR_RETURN(const std::vector<StoredEntry> entries, admin.entries());
        uint64_t bytes = 0;
        int64_t hits = 0;
        std::map<std::string, uint64_t> owners;
        for (const StoredEntry& entry : entries) {
          bytes += entry.bytes;
          hits += entry.hits;
          owners[ipc::one_line(entry.owner, 0)] += entry.bytes;
        }
        if (options.json) {
          all.push_back({{"model", ipc::one_line(admin.layout().model, 0)},
                         {"file", admin.file().filename().string()},
                         {"chunks", entries.size()},
                         {"bytes", bytes},
                         {"file_bytes", admin.file_bytes()},
                         {"hits", hits},
                         {"owners", owners}});
          return {};
        }
        out += fmt::format("{}: {} chunks, {} of KV, {} on disk, {} hits\n",
                           ipc::one_line(admin.layout().model, 0), entries.size(), size_text(bytes),
                           size_text(admin.file_bytes()), hits);
        for (const auto& [owner, of_owner_bytes] : owners) {
          out += fmt::format("  {}  {}\n", owner, size_text(of_owner_bytes));
        }
        return {};
      }));
  write_stdout(options.json ? all.dump() + "\n" : out);
  return good;
}

/// A name stands for its line of `ls`, and for all that continues it.
void take_run(const Tree& tree, size_t at, std::vector<int64_t>& rows) {
  for (const StoredEntry* chunk : tree.runs[at].chunks) rows.push_back(chunk->row);
  for (const size_t next : tree.runs[at].next) take_run(tree, next, rows);
}

Result<bool> remove(const Options& options) {
  const bool everything = options.all || !options.owner.empty() || !options.model.empty();
  if (options.names.empty() == !everything) {
    return Error{ErrorCode::kInvalidArgument,
                 "rm: want names as ls shows them, or --all, --model or --owner", ""};
  }
  std::set<std::string> unknown(options.names.begin(), options.names.end());
  uint64_t removed = 0;
  HEARTH_ASSIGN_OR_RETURN(
      const bool good, for_each_store(options, [&](StoreAdmin& admin) -> Result<void> {
        HEARTH_ASSIGN_OR_RETURN(std::vector<StoredEntry> entries, admin.entries());
        entries = of_owner(std::move(entries), options.owner);
        std::vector<int64_t> rows;
        if (options.names.empty()) {
          for (const StoredEntry& entry : entries) rows.push_back(entry.row);
        }
        const Tree tree = tree_of(entries);
        for (size_t run = 0; run < tree.runs.size(); ++run) {
          const std::string name = engine::to_hex(tree.runs[run].chunks.back()->last);
          for (const std::string& wanted : options.names) {
            constexpr size_t kFewest = 4;
            if (wanted.size() < kFewest || !name.starts_with(wanted)) continue;
            unknown.erase(wanted);
            take_run(tree, run, rows);
          }
        }
        std::ranges::sort(rows);
        rows.erase(std::ranges::unique(rows).begin(), rows.end());
        removed += rows.size();
        if (rows.empty() && !options.wipe) return {};
        return admin.remove(rows, options.wipe);
      }));
  if (!unknown.empty()) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: nothing of that name", *unknown.begin()),
                 ""};
  }
  write_stdout(fmt::format("removed {} chunks{}\n", removed, options.wipe ? ", and wiped" : ""));
  return good;
}

Result<bool> verify(const Options& options) {
  uint64_t bad = 0;
  HEARTH_ASSIGN_OR_RETURN(
      const bool good, for_each_store(options, [&](StoreAdmin& admin) -> Result<void> {
        HEARTH_ASSIGN_OR_RETURN(const engine::VerifyReport report, admin.verify());
        bad += report.bad;
        write_stdout(
            fmt::format("{}: {} chunks agree with their checksums, {} did not and were "
                        "removed\n",
                        ipc::one_line(admin.layout().model, 0), report.good, report.bad));
        return {};
      }));
  return good && bad == 0;
}

Result<bool> compact(const Options& options) {
  return for_each_store(options, [&](StoreAdmin& admin) -> Result<void> {
    const uint64_t before = admin.file_bytes();
    HEARTH_TRY(admin.compact());
    write_stdout(fmt::format("{}: {} before, {} now\n", ipc::one_line(admin.layout().model, 0),
                             size_text(before), size_text(admin.file_bytes())));
    return {};
  });
}

}  // namespace

void add_cache(CLI::App& app, int* status) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("cache", "The prefixes kept on disk");
  verb->require_subcommand(1);
  const auto add = [&](const char* name, const char* meaning, Result<bool> (*run)(const Options&)) {
    CLI::App* sub = verb->add_subcommand(name, meaning);
    sub->add_option("--model", options->model, "only this model's");
    sub->add_option("--state-dir", options->state_dir, "hearthd's server.state_dir");
    sub->callback([options, status, run] {
      const Result<bool> done = run(*options);
      *status = !done.ok() ? report_failure(done.error()) : *done ? 0 : kFailed;
    });
    return sub;
  };
  CLI::App* ls = add("ls", "What is kept: a line per run of tokens, branches below it", list);
  ls->add_option("--owner", options->owner, "only this one's, as \"uid:1000\"");
  ls->add_flag("--json", options->json, "as JSON, a chunk each");
  add("stats", "Sizes by model and owner", stats)->add_flag("--json", options->json, "as JSON");
  CLI::App* rm = add("rm", "Removes what is named, and all that continues it", remove);
  rm->add_option("NAME", options->names, "as ls shows it");
  rm->add_flag("--all", options->all, "everything");
  rm->add_option("--owner", options->owner, "all of this owner");
  rm->add_flag(
      "--wipe", options->wipe,
      "leave no byte of it in the files: they are written anew. What a running model holds "
      "in memory stays there");
  add("verify", "Reads everything, and removes what is damaged", verify);
  add("compact", "Gives back freed space", compact);
}

}  // namespace hearth::worker
