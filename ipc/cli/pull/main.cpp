// hearth-pull: fetches a model file. `hearth pull` becomes this program: the HTTP client brings
// thirty libraries along, which no other verb shall wait for.

#include <curl/curl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <deque>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "ipc/cli/exit_code.h"
#include "ipc/cli/pull/pull_file.h"
#include "ipc/cli/pull/source.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/files/paths.h"
#include "ipc/schema/version.h"
#include "ipc/text/wrap_lines.h"
#include "kernels/base/clock.h"
#include "kernels/base/numbers.h"
#include "kernels/base/split_name.h"

namespace hearth::cli {
namespace {

namespace fs = std::filesystem;

struct PullOptions {
  std::string source;
  std::vector<std::string> mirrors;  ///< other sources of the same content
  std::string dir;
  std::string name;
  std::vector<std::string> sha256;  ///< of each part
  bool allow_http = false;
  bool force = false;
};

int fail(const Error& error) {
  complain(fmt::format("{} [{}]", error.message, name(error.code)));
  return error.code == ErrorCode::kCancelled ? kInterrupted : kFailed;
}

/// The first model directory that the caller may write; those of a user are made.
Result<fs::path> find_directory(const PullOptions& options) {
  std::vector<fs::path> candidates = {options.dir};
  if (options.dir.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const ipc::Paths paths,
                            ipc::resolve_paths(ipc::Environment::of_process()));
    candidates = paths.model_dirs;
  }
  std::string tried;
  for (const fs::path& dir : candidates) {
    std::error_code ignored;
    fs::create_directories(dir, ignored);
    if (fs::is_directory(dir, ignored) && ::access(dir.c_str(), W_OK | X_OK) == 0) return dir;
    tried += " " + dir.string();
  }
  return Error::forbidden(
      fmt::format("no model directory that you may write:{} (--dir)", ipc::one_line(tried, 0)),
      "dir");
}

/// Bytes per second over the last few seconds.
class RecentRate {
 public:
  double add(int64_t now_us, uint64_t bytes) {
    seen_.push_back({now_us, bytes});
    while (seen_.size() > 2 && now_us - seen_.front().now_us > 5'000'000) seen_.pop_front();
    const int64_t us = now_us - seen_.front().now_us;
    if (us <= 0 || bytes < seen_.front().bytes) return 0;
    return as_double(bytes - seen_.front().bytes) * 1e6 / as_double(us);
  }

 private:
  struct Seen {
    int64_t now_us;
    uint64_t bytes;
  };
  std::deque<Seen> seen_;
};

class Progress {
 public:
  bool show(const DownloadProgress& at) {
    if (interrupted()) return false;
    const int64_t now_us = clock_.now_us();
    if (now_us - shown_us_ < 100'000) return true;
    shown_us_ = now_us;
    const double rate = rate_.add(now_us, at.bytes_done);
    std::string line = label_ + human_bytes(at.bytes_done);
    if (at.bytes_total > 0) {
      line = label_ + fmt::format("{:.1f} % of {}",
                                  100.0 * as_double(at.bytes_done) / as_double(at.bytes_total),
                                  human_bytes(at.bytes_total));
    }
    if (!at.trouble.empty()) {
      line += ", trying again: " + ipc::one_line(at.trouble, 80);
    } else if (rate > 0) {
      line += fmt::format(", {}/s", human_bytes(static_cast<uint64_t>(rate)));
      if (at.bytes_total > at.bytes_done) {
        const double left = as_double(at.bytes_total - at.bytes_done) / rate;
        line += fmt::format(", {} left", human_duration(static_cast<int64_t>(left * 1e3)));
      }
    }
    status_.show(line);
    return true;
  }
  void clear() { status_.clear(); }
  /// Begins a file; `label` is put before its progress.
  void begin(std::string label) {
    label_ = std::move(label);
    rate_ = RecentRate();
  }

 private:
  SteadyClock clock_;
  std::string label_;
  RecentRate rate_;
  StatusLine status_;
  int64_t shown_us_ = 0;
};

std::string variable_or(const char* name, const std::string& fallback) {
  std::string value = ipc::Environment::of_process().variable(name);
  return value.empty() ? fallback : value;
}

/// The files of a source: all parts of a split model, under the names that they get.
Result<std::vector<PullSource>> files_of(const PullOptions& options, const std::string& source) {
  HEARTH_ASSIGN_OR_RETURN(PullSource first,
                          parse_source(source, variable_or("HF_ENDPOINT", "https://huggingface.co"),
                                       options.allow_http));
  std::vector<PullSource> files = parts_of_source(first);
  if (options.name.empty()) return files;
  std::string wanted = options.name;
  if (!wanted.ends_with(".gguf")) wanted += ".gguf";
  HEARTH_ASSIGN_OR_RETURN(const std::string file_name, file_name_of(wanted));
  const std::string base = model_stem(fs::path(file_name).stem().string());
  for (PullSource& file : files) {
    const auto split = parse_split_name(fs::path(file.file_name).stem().string());
    file.file_name = split && split->parts > 1
                         ? SplitName{base, split->part, split->parts}.stem_of(split->part) + ".gguf"
                         : file_name;
  }
  return files;
}

/// What is downloaded: for each file its sources.
Result<std::vector<FilePull>> plan(const PullOptions& options, const fs::path& dir) {
  std::vector<std::string> names = options.mirrors;
  names.insert(names.begin(), options.source);
  std::vector<FilePull> out;
  for (const std::string& name : names) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<PullSource> files, files_of(options, name));
    if (out.empty()) out.resize(files.size());
    if (files.size() != out.size()) {
      return Error::invalid(fmt::format("--mirror {}: {} files, want {}", ipc::one_line(name, 200),
                                        files.size(), out.size()),
                            "mirror");
    }
    for (size_t i = 0; i < files.size(); ++i) {
      DownloadOptions& source = out[i].sources.emplace_back();
      source.url = files[i].url;
      source.target =
          out[i].sources.size() > 1 ? out[i].sources.front().target : dir / files[i].file_name;
      if (i < options.sha256.size()) source.sha256 = options.sha256[i];
      source.hash_in_tag = files[i].hash_in_tag;
      if (source.hash_in_tag) source.token = variable_or("HF_TOKEN", "");
      source.allow_http = options.allow_http;
      out[i].force = options.force;
      out[i].part_of_set = files.size() > 1;
    }
  }
  if (!options.sha256.empty() && options.sha256.size() != out.size()) {
    return Error::invalid(fmt::format("--sha256: {} hashes, want one for each of {} files",
                                      options.sha256.size(), out.size()),
                          "sha256");
  }
  return out;
}

Result<void> pull(const PullOptions& options) {
  HEARTH_TRY(files_of(options, options.source));  // wrong words before a directory is made
  HEARTH_ASSIGN_OR_RETURN(const fs::path dir, find_directory(options));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<FilePull> files, plan(options, dir));
  Progress progress;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string label =
        files.size() > 1 ? fmt::format("part {} of {}: ", i + 1, files.size()) : "";
    progress.begin(label);
    const auto done = pull_file(
        files[i], [&](const DownloadProgress& at) { return progress.show(at); },
        [&](const std::string& trouble) {
          progress.clear();
          complain(trouble);
        });
    progress.clear();
    if (!done.ok()) return done.error();
    write_stdout(fmt::format("{}\n", files[i].sources.front().target.string()));
    const Downloaded& file = done->file;
    const std::string how =
        done->was_there       ? " (there already)"
        : file.bytes_kept > 0 ? fmt::format(" ({} of it from before)", human_bytes(file.bytes_kept))
                              : "";
    const std::string hash = file.sha256.empty() ? "" : fmt::format(", SHA-256 {}", file.sha256);
    write_stderr(fmt::format("{}{}{}{}{}\n", label, human_bytes(file.bytes), how, hash,
                             file.verified ? ", as wanted" : ", not verified by anyone"));
  }
  return {};
}

int main_of(int argc, char** argv) {
  CLI::App app("Fetches a model file into the first model directory that you may write",
               "hearth pull");
  app.set_version_flag("--version", "hearth " + std::string(ipc::version()));
  PullOptions options;
  app.add_option("SOURCE", options.source, "https://..., or hf:OWNER/REPO/FILE")->required();
  app.add_option("--mirror", options.mirrors,
                 "another source of the same content, tried next; needs --sha256; repeatable")
      ->type_name("SOURCE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--name", options.name, "of the model; default: the file's");
  app.add_option("--dir", options.dir, "where it goes")->type_name("DIRECTORY");
  app.add_option("--sha256", options.sha256,
                 "that the content must have; of a split model once for each part, in order")
      ->type_name("HEX")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--force", options.force, "write over a model of that name");
  app.add_flag("--allow-http", options.allow_http, "from other machines without TLS too");
  app.footer(
      "\nWith the first part of a split model (NAME-00001-of-0000N.gguf) come the\n"
      "others. A file that is there already with the wanted hash is kept. An\n"
      "interrupted pull continues where it stopped when it is repeated. Proxies are\n"
      "those of https_proxy, http_proxy and no_proxy; HF_TOKEN is sent only to the hub\n"
      "of hf:.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return write_stdout(ipc::wrap_lines(app.help(), 80)) ? 0 : 1;
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? kOk : kUsage;
  }
  catch_interrupts();
  curl_global_init(CURL_GLOBAL_DEFAULT);
  const Result<void> done = pull(options);
  curl_global_cleanup();
  return done.ok() ? kOk : fail(done.error());
}

}  // namespace
}  // namespace hearth::cli

int main(int argc, char** argv) { return hearth::cli::main_of(argc, argv); }
