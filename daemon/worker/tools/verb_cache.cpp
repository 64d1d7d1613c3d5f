// hearth cache ls|stats|rm|pin|unpin|verify|compact: manages the prefixes kept on disk. It works on
// the files, whether or not a worker has them open; any user that may read the directory may manage
// it. The broker also runs it, with --owner, for clients of a service.

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>

#include "daemon/worker/text/stored_text.h"
#include "daemon/worker/tools/cache_tree.h"
#include "daemon/worker/tools/command_line.h"
#include "daemon/worker/tools/verbs.h"
#include "engine/store/store_admin.h"
#include "ipc/files/paths.h"
#include "ipc/text/shown_text.h"
#include "kernels/base/numbers.h"
#include "kernels/base/wall_clock.h"

namespace hearth::worker {
namespace fs = std::filesystem;
namespace {

using engine::StoreAdmin;
using engine::StoredEntry;

struct CacheVerb {
  std::string state_dir;
  std::string model;  ///< only this model's databases
  std::string owner;
  std::vector<std::string> names;
  std::vector<std::string> model_dirs;  ///< --show-text: models with the tokenizers
  int64_t ttl_s = 3600;
  uint64_t pinned_bytes = 2ull << 30;
  bool show_text = false;
  bool all = false;
  bool wipe = false;
  bool json = false;
};

std::string age(int64_t since_s) {
  const int64_t s = std::max<int64_t>(0, seconds_since_1970() - since_s);
  if (s < 120) return fmt::format("{} s", s);
  if (s < 7200) return fmt::format("{} min", s / 60);
  if (s < 172'800) return fmt::format("{} h", s / 3600);
  return fmt::format("{} days", s / 86'400);
}

std::string size_text(uint64_t bytes) {
  if (bytes < 10 << 10) return fmt::format("{} B", bytes);
  if (bytes < 10 << 20) return fmt::format("{:.1f} KiB", as_double(bytes) / 1024);
  return fmt::format("{:.1f} MiB", as_double(bytes) / (1 << 20));
}

struct Shown {
  const Tree& tree;
  StoreAdmin& admin;
  StoredText* text;  ///< null: show no text
};

Result<void> print_run(const Shown& shown, size_t at, int depth, std::string& out) {
  constexpr int kMaxIndent = 20;
  const engine::KvLayout& layout = shown.admin.layout();
  const Run& run = shown.tree.runs[at];
  const StoredEntry& tip = *run.chunks.back();
  out += fmt::format(
      "  {:{}}{}  {} {}  {}  {} hits  used {} ago  {}{}", "", 2 * std::min(depth, kMaxIndent),
      run.name(), tip.state ? "state at token" : "to token",
      run.end_block(layout) * layout.block_size, size_text(run.bytes()), tip.hits, age(tip.used_s),
      ipc::one_line(tip.owner, 0), tip.pinned_until_s > seconds_since_1970() ? "  pinned" : "");
  if (shown.text != nullptr) {
    constexpr size_t kTokens = 16;
    HEARTH_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                            shown.admin.first_tokens(run.chunks.front()->row, kTokens));
    out += fmt::format("  \"{}\"", shown.text->of(layout.model, tokens));
  }
  out += "\n";
  return {};
}

Result<void> print_tree(const Shown& shown, std::string& out) {
  struct Line {
    size_t run;
    int depth;
  };
  std::vector<Line> lines;  // a stack: the next one is last
  for (const size_t root : std::views::reverse(shown.tree.roots)) lines.push_back({root, 0});
  while (!lines.empty()) {
    const Line line = lines.back();
    lines.pop_back();
    HEARTH_TRY(print_run(shown, line.run, line.depth, out));
    for (const size_t next : std::views::reverse(shown.tree.runs[line.run].next)) {
      lines.push_back({next, line.depth + 1});
    }
  }
  return {};
}

using Entries = std::vector<StoredEntry>;

Result<fs::path> folder_of(const CacheVerb& options) {
  if (!options.state_dir.empty()) return fs::path(options.state_dir) / "prefix";
  HEARTH_ASSIGN_OR_RETURN(const ipc::Paths paths,
                          ipc::resolve_paths(ipc::Environment::of_process()));
  return paths.state / "prefix";
}

/// Calls fn(admin) for each selected database; one that cannot be opened is reported and skipped.
template <typename Fn>
Result<bool> for_each_store(const CacheVerb& options, const Fn& fn) {
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

/// Calls fn(admin, entries) for each selected database, with the entries of the selected owner.
template <typename Fn>
Result<bool> for_each_listing(const CacheVerb& options, const Fn& fn) {
  return for_each_store(options, [&](StoreAdmin& admin) -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(Entries entries, admin.entries());
    if (!options.owner.empty()) {
      std::erase_if(entries,
                    [&](const StoredEntry& entry) { return entry.owner != options.owner; });
    }
    return fn(admin, entries);
  });
}

Result<bool> list(const CacheVerb& options) {
  StoredText text(options.model_dirs);
  nlohmann::json all = nlohmann::json::array();
  std::string out;
  HEARTH_ASSIGN_OR_RETURN(
      const bool good,
      for_each_listing(options, [&](StoreAdmin& admin, const Entries& entries) -> Result<void> {
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
                           {"state", entry.state},
                           {"hits", entry.hits},
                           {"used_s", entry.used_s},
                           {"pinned_until_s", entry.pinned_until_s}});
          }
          return {};
        }
        out +=
            fmt::format("{}: {} chunks\n", ipc::one_line(admin.layout().model, 0), entries.size());
        const Tree tree = tree_of(entries);
        return print_tree({tree, admin, options.show_text ? &text : nullptr}, out);
      }));
  write_stdout(options.json ? all.dump() + "\n" : out);
  return good;
}

Result<bool> stats(const CacheVerb& options) {
  nlohmann::json all = nlohmann::json::array();
  std::string out;
  HEARTH_ASSIGN_OR_RETURN(
      const bool good,
      for_each_listing(options, [&](StoreAdmin& admin, const Entries& entries) -> Result<void> {
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

std::vector<int64_t> once_each(std::vector<int64_t> rows) {
  std::ranges::sort(rows);
  rows.erase(std::ranges::unique(rows).begin(), rows.end());
  return rows;
}

/// Calls fn(admin, rows) for each database. `rows` are the rows of the named runs, or of all if no
/// name is given, extended by `take` to everything before or after them. kNotFound gives a name
/// that matches nothing.
template <typename Fn>
Result<bool> for_each_named(const CacheVerb& options,
                            void (*take)(const Tree&, size_t, std::vector<int64_t>&),
                            const Fn& fn) {
  std::set<std::string> unknown(options.names.begin(), options.names.end());
  HEARTH_ASSIGN_OR_RETURN(
      const bool good,
      for_each_listing(options, [&](StoreAdmin& admin, const Entries& entries) -> Result<void> {
        const Tree tree = tree_of(entries);
        std::vector<size_t> runs;
        if (options.names.empty()) runs = tree.roots;
        for (const std::string& wanted : options.names) {
          const std::vector<size_t> found = runs_named(tree, wanted);
          if (!found.empty()) unknown.erase(wanted);
          runs.insert(runs.end(), found.begin(), found.end());
        }
        std::vector<int64_t> rows;
        for (const size_t run : runs) take(tree, run, rows);
        return fn(admin, once_each(std::move(rows)));
      }));
  if (unknown.empty()) return good;
  return Error::not_found(
      fmt::format("{}: nothing of that name", ipc::one_line(*unknown.begin(), 0)));
}

Result<bool> remove(const CacheVerb& options) {
  const bool everything = options.all || !options.owner.empty() || !options.model.empty();
  if (options.names.empty() ? !everything : options.all) {
    return Error::invalid("rm: want names as ls shows them, or --all, --model or --owner");
  }
  uint64_t removed = 0;
  HEARTH_ASSIGN_OR_RETURN(
      const bool good,
      for_each_named(options, take_behind,
                     [&](StoreAdmin& admin, const std::vector<int64_t>& rows) -> Result<void> {
                       removed += rows.size();
                       if (rows.empty() && !options.wipe) return {};
                       return admin.remove(rows, options.wipe);
                     }));
  write_stdout(fmt::format("removed {} chunks{}\n", removed, options.wipe ? ", and wiped" : ""));
  return good;
}

/// A prefix is only useful with everything before it, so that is pinned too.
Result<bool> set_pins(const CacheVerb& options, bool pin) {
  uint64_t chunks = 0;
  uint64_t left_out = 0;
  HEARTH_ASSIGN_OR_RETURN(
      const bool good,
      for_each_named(options, take_in_front,
                     [&](StoreAdmin& admin, const std::vector<int64_t>& rows) -> Result<void> {
                       if (rows.empty()) return {};
                       HEARTH_ASSIGN_OR_RETURN(
                           const uint64_t refused,
                           admin.pin(rows, pin ? seconds_since_1970() + options.ttl_s : 0,
                                     seconds_since_1970(), options.pinned_bytes));
                       chunks += rows.size() - refused;
                       left_out += refused;
                       return {};
                     }));
  write_stdout(pin ? fmt::format("pinned {} chunks for {} s\n", chunks, options.ttl_s)
                   : fmt::format("unpinned {} chunks\n", chunks));
  if (left_out == 0) return good;
  return Error::too_large(fmt::format("{} chunks are not pinned: their owner's pins may take {}",
                                      left_out, size_text(options.pinned_bytes)));
}

Result<bool> pin(const CacheVerb& options) { return set_pins(options, true); }
Result<bool> unpin(const CacheVerb& options) { return set_pins(options, false); }

Result<bool> verify(const CacheVerb& options) {
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

Result<bool> compact(const CacheVerb& options) {
  return for_each_store(options, [&](StoreAdmin& admin) -> Result<void> {
    const uint64_t before = admin.file_bytes();
    HEARTH_TRY(admin.compact());
    write_stdout(fmt::format("{}: {} before, {} now\n", ipc::one_line(admin.layout().model, 0),
                             size_text(before), size_text(admin.file_bytes())));
    return {};
  });
}

}  // namespace

void add_cache(Verb program) {
  const auto options = std::make_shared<CacheVerb>();
  Verb verb = program.verb("cache", "Manage the prefixes on disk");
  verb.require_verb();
  const auto add = [&](const char* name, const char* meaning,
                       Result<bool> (*run)(const CacheVerb&)) {
    Verb sub = verb.verb(name, meaning);
    sub.option("--model", options->model, "only this model's prefixes");
    sub.option("--state-dir", options->state_dir, "hearthd's server.state_dir");
    sub.run([options, run] {
      const Result<bool> done = run(*options);
      return !done.ok() ? report_failure(done.error()) : *done ? 0 : kFailed;
    });
    return sub;
  };
  Verb ls = add("ls", "List prefixes: a line per run of tokens, branches below it", list);
  ls.option("--owner", options->owner, "only this owner's, e.g. \"uid:1000\"");
  ls.flag("--json", options->json, "as JSON, one object per chunk");
  ls.flag("--show-text", options->show_text, "also show the first words of each line");
  ls.option("--model-dir", options->model_dirs, "for --show-text: the folders of models");
  Verb sizes = add("stats", "Show sizes by model and owner", stats);
  sizes.flag("--json", options->json, "as JSON");
  sizes.option("--owner", options->owner, "only this owner's");
  Verb keep = add("pin", "Protect prefixes, and everything before them, from eviction", pin);
  keep.option("NAME", options->names, "as ls shows it").required();
  keep.option("--ttl-s,--ttl", options->ttl_s, "for this many seconds; default: an hour")
      .range(int64_t{1}, int64_t{30 * 24 * 3600});
  keep.option("--pinned-bytes", options->pinned_bytes, "limit of one owner's pins");
  keep.option("--owner", options->owner, "only this owner's");
  Verb let_go = add("unpin", "Allow eviction again", unpin);
  let_go.option("NAME", options->names, "as ls shows it").required();
  let_go.option("--owner", options->owner, "only this owner's");
  Verb rm = add("rm", "Remove prefixes, and all that continue them", remove);
  rm.option("NAME", options->names, "as ls shows it");
  rm.flag("--all", options->all, "everything");
  rm.option("--owner", options->owner, "only this owner's; without names: all of them");
  rm.flag("--wipe", options->wipe,
          "leave no byte of the prefixes in the files, which are rewritten; a running model keeps "
          "its copy in memory");
  add("verify", "Read everything and remove what is damaged", verify);
  add("compact", "Return freed space to the file system", compact);
}

}  // namespace hearth::worker
