#include "ipc/cli/pull/download.h"

#include <curl/curl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "ipc/cli/pull/part_on_disk.h"
#include "ipc/cli/pull/source.h"
#include "ipc/schema/version.h"
#include "ipc/text/shown_text.h"

namespace hearth::cli {
namespace {

constexpr int kMaxRedirects = 8;
constexpr long kConnectSeconds = 15;
constexpr int64_t kMaxPauseMs = 15'000;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 46;

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value > kMaxFileBytes)
    return {};
  return value;
}

/// The digest that a tag is, quotes taken off; empty where it is something else.
std::string digest_of(std::string_view tag) {
  if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"') {
    tag = tag.substr(1, tag.size() - 2);
  }
  const bool digest = tag.size() == 64 && std::ranges::all_of(tag, [](unsigned char c) {
                        return std::isxdigit(c) != 0;
                      });
  return digest ? lower(tag) : "";
}

/// What one response's head contains.
struct Head {
  std::optional<uint64_t> length;       // Content-Length
  std::optional<uint64_t> range_start;  // Content-Range
  std::optional<uint64_t> range_total;
  std::string tag;
  std::optional<uint64_t> linked_length;  // X-Linked-Size, X-Linked-ETag: a hub's word on the
  std::optional<std::string> linked_tag;  // content; where it redirects to has tags of its own
};

/// "bytes 5-9/10", "bytes */10"
void read_content_range(std::string_view value, Head* head) {
  if (!value.starts_with("bytes ")) return;
  value.remove_prefix(6);
  const size_t slash = value.find('/'), dash = value.find('-');
  if (slash == value.npos) return;
  head->range_total = number(value.substr(slash + 1));
  if (dash < slash) head->range_start = number(value.substr(0, dash));
}

void read_header(std::string_view line, Head* head) {
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {  // of the next response
    *head = Head();
    return;
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) return;
  const std::string name = lower(line.substr(0, colon));
  std::string_view value = line.substr(colon + 1);
  while (value.starts_with(' ')) value.remove_prefix(1);
  if (name == "content-length") head->length = number(value);
  if (name == "content-range") read_content_range(value, head);
  if (name == "etag") head->tag = value;
  if (name == "x-linked-size") head->linked_length = number(value);
  if (name == "x-linked-etag") head->linked_tag = value;
}

/// Puts together what a hub's responses report about the content's hash, over all redirects.
class LinkedDigest {
 public:
  void add(const Head& head, bool first_hop) {
    if (head.linked_tag) {
      digest_ = digest_of(*head.linked_tag);
      linked_ = true;
    } else if (first_hop && !linked_ && !head.tag.empty()) {
      digest_ = digest_of(head.tag);
    }
  }
  const std::string& get() const { return digest_; }

 private:
  std::string digest_;
  bool linked_ = false;
};

/// Sets what all requests have in common. `error` has CURL_ERROR_SIZE bytes.
void set_request(CURL* easy, const std::string& url, char* error) {
  curl_easy_reset(easy);
  error[0] = 0;
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "https,http");  // which of them: check_address
  curl_easy_setopt(easy, CURLOPT_USERAGENT, ("hearth/" + std::string(ipc::version())).c_str());
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, error);
  // What runs on this machine is asked directly, whatever proxy leads outside.
  curl_easy_setopt(easy, CURLOPT_NOPROXY, nullptr);
  const std::string origin = origin_of(url);
  if (origin.starts_with("http://127.") || origin.starts_with("http://localhost:") ||
      origin.starts_with("http://[::1]")) {
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
  }
}

/// "" unless `url` is of the server that may have the token.
std::string authorization(const DownloadOptions& options, const std::string& url) {
  if (options.token.empty() || origin_of(url) != origin_of(options.url)) return "";
  return "Authorization: Bearer " + options.token;
}

long status_of(CURL* easy) {
  long value = 0;
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &value);
  return value;
}

using HeaderLines = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

/// Whether `url` now is where a redirect leads.
Result<bool> follow(CURL* easy, bool allow_http, std::string* url) {
  const long code = status_of(easy);
  if (code != 301 && code != 302 && code != 303 && code != 307 && code != 308) return false;
  char* to = nullptr;
  curl_easy_getinfo(easy, CURLINFO_REDIRECT_URL, &to);
  if (to == nullptr) return false;
  *url = to;
  HEARTH_TRY(check_address(*url, allow_http));
  return true;
}

/// The error of a status that no further try changes.
std::optional<Error> refusal_of(long status, bool with_token) {
  const std::string text = fmt::format("the server answers with status {}", status);
  if (status == 404 || status == 410) return Error::not_found(text, "source");
  if (status == 401 || status == 403) {
    return Error::forbidden(text + (with_token ? "" : "; HF_TOKEN may hold a token for a hub"),
                            "source");
  }
  return std::nullopt;
}

enum class Next { kDone, kAgain, kFailed };

class Download {
 public:
  Download(const DownloadOptions& options, const DownloadWatch& watch, PartOnDisk part)
      : options_(options),
        watch_(watch),
        part_(std::move(part)),
        asked_digest_(lower(options.sha256)),
        easy_(curl_easy_init(), &curl_easy_cleanup) {}

  Result<Downloaded> run();

 private:
  Result<Next> attempt();
  Result<Next> judge(CURLcode code, long status);
  void prepare(const std::string& url);
  bool begin_body();
  bool stopped();
  bool fail(Error error) {
    error_ = std::move(error);
    return false;
  }
  Result<Downloaded> finish();
  long status() const { return status_of(easy_.get()); }
  /// The hash wanted of the content; empty: not known.
  const std::string& digest() const {
    return asked_digest_.empty() ? linked_.get() : asked_digest_;
  }

  static size_t on_header(char* text, size_t, size_t count, void* self) {
    static_cast<Download*>(self)->header({text, count});
    return count;
  }
  static size_t on_body(char* bytes, size_t, size_t count, void* self) {
    return static_cast<Download*>(self)->body({bytes, count}) ? count : 0;
  }
  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Download*>(self)->stopped() ? 1 : 0;
  }
  void header(std::string_view line);
  bool body(std::string_view bytes);

  const DownloadOptions& options_;
  const DownloadWatch& watch_;
  PartOnDisk part_;
  std::string asked_digest_;  // by the caller
  LinkedDigest linked_;
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> easy_;
  HeaderLines request_headers_{nullptr, &curl_slist_free_all};
  Head head_;
  bool body_begun_ = false;
  int hop_ = 0;             // redirects followed in this attempt
  bool restarted_ = false;  // the body is not of the version that the file has: again, from nothing
  uint64_t total_ = 0;
  uint64_t kept_ = 0;
  std::optional<Error> error_;
  std::string trouble_;
  char curl_error_[CURL_ERROR_SIZE] = {};
};

bool Download::stopped() {
  if (!watch_ || watch_({part_.size_bytes(), total_, kept_, trouble_})) return false;
  error_ = Error::cancelled("interrupted; what came is kept for the next time");
  return true;
}

void Download::header(std::string_view line) {
  read_header(line, &head_);
  if (options_.hash_in_tag) linked_.add(head_, hop_ == 0);
}

/// Before the first byte of an answer that counts: whether it goes on from what is there.
bool Download::begin_body() {
  body_begun_ = true;
  const uint64_t have = part_.size_bytes();
  if (status() == 206) {
    if (head_.range_start != have) {
      return fail(Error::io("the server answers with another part than was asked for"));
    }
    const bool other = (head_.range_total && total_ > 0 && *head_.range_total != total_) ||
                       (!options_.any_source && !head_.tag.empty() && !part_.tag().empty() &&
                        head_.tag != part_.tag());
    if (other) {  // the file has changed meanwhile
      restarted_ = true;
      return false;
    }
    if (head_.range_total) total_ = *head_.range_total;
  } else {
    // The server does not do ranges, or has another version now.
    if (have > 0) {
      const Result<void> emptied = part_.restart();
      if (!emptied.ok()) return fail(emptied.error());
      kept_ = 0;
    }
    total_ = head_.length.value_or(0);
  }
  if (total_ > 0) {
    const Result<void> room = part_.check_room(total_ - std::min(total_, part_.size_bytes()));
    if (!room.ok()) return fail(room.error());
  }
  // A weak tag (W/...) does not promise equal bytes.
  const bool strong = head_.tag.starts_with('"');
  if (status() == 206 && !strong) return true;
  const Result<void> kept = part_.set_tag(strong ? head_.tag : "");
  return kept.ok() || fail(kept.error());
}

bool Download::body(std::string_view bytes) {
  const long code = status();
  if (code != 200 && code != 206) return true;  // of a redirect or an error: not used
  if (!body_begun_ && !begin_body()) return false;
  if (total_ > 0 && part_.size_bytes() + bytes.size() > total_) {
    return fail(
        Error::io(fmt::format("the server sends more than the {} bytes it announced", total_)));
  }
  trouble_.clear();
  const Result<void> written = part_.append(std::as_bytes(std::span(bytes)));
  return written.ok() || fail(written.error());
}

void Download::prepare(const std::string& url) {
  CURL* easy = easy_.get();
  set_request(easy, url, curl_error_);
  head_ = Head();
  body_begun_ = false;
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, long{options_.stall_s});
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &Download::on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Download::on_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, &Download::on_progress);
  curl_easy_setopt(easy, CURLOPT_XFERINFODATA, this);
  curl_slist* headers = nullptr;
  const auto add = [&headers](const std::string& line) {
    headers = curl_slist_append(headers, line.c_str());
  };
  if (part_.size_bytes() > 0) {
    add(fmt::format("Range: bytes={}-", part_.size_bytes()));
    if (!part_.tag().empty() && !options_.any_source) add("If-Range: " + part_.tag());
  }
  if (const std::string line = authorization(options_, url); !line.empty()) add(line);
  request_headers_.reset(headers);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
}

Result<Next> Download::attempt() {
  std::string url = options_.url;
  for (hop_ = 0; hop_ <= kMaxRedirects; ++hop_) {
    prepare(url);
    const CURLcode code = curl_easy_perform(easy_.get());
    if (error_) return *error_;
    if (code != CURLE_OK) return judge(code, status());
    HEARTH_ASSIGN_OR_RETURN(const bool followed, follow(easy_.get(), options_.allow_http, &url));
    if (!followed) return judge(code, status());
  }
  return Error::forbidden(fmt::format("more than {} redirects", kMaxRedirects));
}

Result<Next> Download::judge(CURLcode code, long http) {
  if (restarted_) {
    restarted_ = false;
    HEARTH_TRY(part_.restart());
    kept_ = 0;
    total_ = 0;
    trouble_ = "the file has changed at its source";
    return Next::kFailed;
  }
  if (code != CURLE_OK) {
    trouble_ = curl_error_[0] != 0 ? curl_error_ : curl_easy_strerror(code);
    const bool hopeless = code == CURLE_PEER_FAILED_VERIFICATION ||
                          code == CURLE_SSL_CACERT_BADFILE || code == CURLE_UNSUPPORTED_PROTOCOL ||
                          code == CURLE_URL_MALFORMAT || code == CURLE_OUT_OF_MEMORY;
    if (hopeless) return Error::io(trouble_);
    return Next::kFailed;
  }
  const std::string status_text = fmt::format("the server answers with status {}", http);
  if (http == 200 || http == 206) {
    if (!body_begun_) {  // no byte at all
      if (part_.size_bytes() > 0 || !begin_body()) {
        if (error_) return *error_;
        trouble_ = "the server sends nothing";
        return Next::kFailed;
      }
    }
    if (total_ == 0 || part_.size_bytes() == total_) return Next::kDone;
    return Next::kAgain;  // a part of what was asked for
  }
  if (http == 416) {
    // Nothing follows what is there: the file is complete if the sizes agree.
    if (head_.range_total == part_.size_bytes() && part_.size_bytes() > 0) return Next::kDone;
    HEARTH_TRY(part_.restart());
    kept_ = 0;
    trouble_ = status_text;
    return Next::kFailed;
  }
  if (const auto refused = refusal_of(http, !options_.token.empty())) return *refused;
  trouble_ = status_text;
  if (http >= 500 || http == 408 || http == 429) return Next::kFailed;
  return Error::io(status_text);
}

Result<Downloaded> Download::run() {
  if (easy_ == nullptr) return Error::internal("no HTTP client");
  // Bytes of an unknown version are worth nothing unless the result can be checked.
  if (part_.size_bytes() > 0 && part_.tag().empty() && digest().empty() && !options_.hash_in_tag) {
    HEARTH_TRY(part_.restart());
  }
  kept_ = part_.size_bytes();
  int failures = 0;
  int64_t pause_ms = options_.pause_ms;
  while (true) {
    const uint64_t before = part_.size_bytes();
    HEARTH_ASSIGN_OR_RETURN(const Next next, attempt());
    if (next == Next::kDone) return finish();
    if (part_.size_bytes() > before) {
      failures = 0;
      pause_ms = options_.pause_ms;
      if (next == Next::kAgain) continue;
    }
    if (++failures >= options_.max_failures) {
      return Error::io(fmt::format("{} ({} tries; what came is kept for the next time)",
                                   ipc::one_line(trouble_, 300), failures));
    }
    for (int64_t waited_ms = 0; waited_ms < pause_ms; waited_ms += 50) {
      if (stopped()) return *error_;
      std::this_thread::sleep_for(std::chrono::milliseconds(std::min<int64_t>(50, pause_ms)));
    }
    pause_ms = std::min(pause_ms * 2, kMaxPauseMs);
  }
}

Result<Downloaded> Download::finish() {
  Downloaded out;
  out.bytes = part_.size_bytes();
  out.bytes_kept = kept_;
  out.sha256 = part_.finish_hash();
  out.verified = !digest().empty();
  if (out.verified && out.sha256 != digest()) {
    part_.discard();
    return Error::corrupt(
        fmt::format("SHA-256 is {}, want {}; nothing was kept", out.sha256, digest()));
  }
  if (out.bytes < 4) {
    part_.discard();
    return Error::corrupt(fmt::format("{} bytes are not a GGUF file", out.bytes));
  }
  HEARTH_TRY(part_.commit());
  return out;
}

}  // namespace

Result<SourceFacts> look_at_source(const DownloadOptions& options) {
  char error[CURL_ERROR_SIZE] = {};
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> easy(curl_easy_init(),
                                                                 &curl_easy_cleanup);
  if (easy == nullptr) return Error::internal("no HTTP client");
  std::string url = options.url;
  SourceFacts out;
  LinkedDigest linked;
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    HEARTH_TRY(check_address(url, options.allow_http));
    set_request(easy.get(), url, error);
    Head head;
    HeaderLines lines(nullptr, &curl_slist_free_all);
    if (const std::string line = authorization(options, url); !line.empty()) {
      lines.reset(curl_slist_append(nullptr, line.c_str()));
      curl_easy_setopt(easy.get(), CURLOPT_HTTPHEADER, lines.get());
    }
    curl_easy_setopt(easy.get(), CURLOPT_NOBODY, 1L);
    curl_easy_setopt(easy.get(), CURLOPT_TIMEOUT, long{options.stall_s});
    const CURLcode code = curl_easy_perform(easy.get());
    if (code != CURLE_OK) return Error::io(error[0] != 0 ? error : curl_easy_strerror(code));
    for (const char* name : {"content-length", "etag", "x-linked-size", "x-linked-etag"}) {
      curl_header* line = nullptr;
      if (curl_easy_header(easy.get(), name, 0, CURLH_HEADER, -1, &line) != CURLHE_OK) continue;
      read_header(fmt::format("{}: {}", name, line->value), &head);
    }
    if (options.hash_in_tag) linked.add(head, hop == 0);
    if (head.linked_length && options.hash_in_tag) out.bytes = head.linked_length;
    HEARTH_ASSIGN_OR_RETURN(const bool followed, follow(easy.get(), options.allow_http, &url));
    if (followed) continue;
    const long status = status_of(easy.get());
    if (const auto refused = refusal_of(status, !options.token.empty())) return *refused;
    if (status != 200) {
      return Error::io(fmt::format("the server answers with status {}", status));
    }
    if (!out.bytes) out.bytes = head.length;
    out.sha256 = linked.get();
    return out;
  }
  return Error::forbidden(fmt::format("more than {} redirects", kMaxRedirects));
}

Result<Downloaded> download(const DownloadOptions& options, const DownloadWatch& watch) {
  if (!options.sha256.empty() && digest_of(options.sha256).empty()) {
    return Error::invalid("--sha256: want 64 hexadecimal digits", "sha256");
  }
  HEARTH_TRY(check_address(options.url, options.allow_http));
  HEARTH_ASSIGN_OR_RETURN(PartOnDisk part, PartOnDisk::open(options.target));
  return Download(options, watch, std::move(part)).run();
}

}  // namespace hearth::cli
