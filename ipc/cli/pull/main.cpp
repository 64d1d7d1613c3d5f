// hearth-pull: fetches a model file. `hearth pull` becomes this program: the HTTP client brings
// thirty libraries along, which no other verb shall wait for.

#include <curl/curl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <deque>
#include <filesystem>
#include <string>

#include "ipc/cli/exit_code.h"
#include "ipc/cli/pull/download.h"
#include "ipc/cli/pull/source.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/files/paths.h"
#include "ipc/schema/version.h"
#include "ipc/text/wrap_lines.h"
#include "kernels/base/clock.h"
#include "kernels/base/numbers.h"

namespace hearth::cli {
namespace {

namespace fs = std::filesystem;

struct PullOptions {
  std::string source;
  std::string dir;
  std::string name;
  std::string sha256;
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
    std::string line = human_bytes(at.bytes_done);
    if (at.bytes_total > 0) {
      line = fmt::format("{:.1f} % of {}",
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

 private:
  SteadyClock clock_;
  RecentRate rate_;
  StatusLine status_;
  int64_t shown_us_ = 0;
};

std::string variable_or(const char* name, const std::string& fallback) {
  std::string value = ipc::Environment::of_process().variable(name);
  return value.empty() ? fallback : value;
}

Result<void> pull(const PullOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(
      PullSource source,
      parse_source(options.source, variable_or("HF_ENDPOINT", "https://huggingface.co"),
                   options.allow_http));
  if (!options.name.empty()) {
    std::string wanted = options.name;
    if (!wanted.ends_with(".gguf")) wanted += ".gguf";
    HEARTH_ASSIGN_OR_RETURN(source.file_name, file_name_of(wanted));
  }
  HEARTH_ASSIGN_OR_RETURN(const fs::path dir, find_directory(options));
  DownloadOptions download_options;
  download_options.url = source.url;
  download_options.target = dir / source.file_name;
  download_options.sha256 = options.sha256;
  download_options.hash_in_tag = source.hash_in_tag;
  if (source.hash_in_tag) download_options.token = variable_or("HF_TOKEN", "");
  download_options.allow_http = options.allow_http;
  std::error_code ignored;
  if (!options.force && fs::exists(download_options.target, ignored)) {
    return Error::invalid(fmt::format("{} is there already (--force, --name)",
                                      ipc::one_line(download_options.target.string(), 0)),
                          "name");
  }
  Progress progress;
  const auto done =
      download(download_options, [&](const DownloadProgress& at) { return progress.show(at); });
  progress.clear();
  if (!done.ok()) return done.error();
  write_stdout(fmt::format("{}\n", download_options.target.string()));
  write_stderr(fmt::format(
      "{}{}, SHA-256 {}{}\n", human_bytes(done->bytes),
      done->bytes_kept > 0 ? fmt::format(" ({} of it from before)", human_bytes(done->bytes_kept))
                           : "",
      done->sha256, done->verified ? ", as wanted" : ", not verified by anyone"));
  return {};
}

int main_of(int argc, char** argv) {
  CLI::App app("Fetches a model file into the first model directory that you may write",
               "hearth pull");
  app.set_version_flag("--version", "hearth " + std::string(ipc::version()));
  PullOptions options;
  app.add_option("SOURCE", options.source, "https://..., or hf:OWNER/REPO/FILE")->required();
  app.add_option("--name", options.name, "of the model; default: the file's");
  app.add_option("--dir", options.dir, "where it goes")->type_name("DIRECTORY");
  app.add_option("--sha256", options.sha256, "that the content must have")->type_name("HEX");
  app.add_flag("--force", options.force, "write over a model of that name");
  app.add_flag("--allow-http", options.allow_http, "from other machines without TLS too");
  app.footer(
      "\nAn interrupted pull continues where it stopped when it is repeated. Proxies are those of\n"
      "https_proxy, http_proxy and no_proxy; HF_TOKEN is sent only to the hub of hf:.");
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
