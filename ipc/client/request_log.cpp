#include "ipc/client/request_log.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "ipc/wire/codec.h"
#include "ipc/wire/json.h"
#include "kernels/base/numbers.h"

namespace hearth::ipc {
namespace {

constexpr std::string_view kLogFormat = "hearth-requests";
constexpr uint64_t kLogVersion = 1;
constexpr size_t kLogHeaderBytes = 1024;
constexpr size_t kLogSamples = 16;
constexpr size_t kLogTexts = 2048;
constexpr int64_t kLogTokens = 16 << 20;  // of one request: all samples, or all texts
constexpr size_t kLogNameBytes = 4096;
constexpr double kMonthMs = 31.0 * 24 * 3600 * 1000;

Error log_error_of(const std::string& name) {
  return Error::io(fmt::format("{}: {}", name, std::strerror(errno)));
}

Result<void> check_range(std::string_view name, double met, double largest) {
  if (met >= 0 && met <= largest) return {};  // false for NaN
  return Error::invalid(fmt::format("{}: met {}, want 0 to {}", name, met, largest),
                        std::string(name));
}

Result<void> check_count(std::string_view name, size_t met, size_t most) {
  if (met <= most) return {};
  return Error::invalid(fmt::format("{}: met {} items, want at most {}", name, met, most),
                        std::string(name));
}

Result<void> check_usage(const Usage& usage) {
  const std::pair<const char*, int32_t> counts[] = {{"prompt_tokens", usage.prompt_tokens},
                                                    {"cached_tokens", usage.cached_tokens},
                                                    {"output_tokens", usage.output_tokens}};
  for (const auto& [name, count] : counts) HEARTH_TRY(check_range(name, count, kLogTokens));
  if (usage.cached_tokens > usage.prompt_tokens) {
    return Error::invalid(fmt::format("cached_tokens: met {}, want at most prompt_tokens, {}",
                                      usage.cached_tokens, usage.prompt_tokens),
                          "cached_tokens");
  }
  return {};
}

Result<void> check_timings(const Timings& timings) {
  const std::pair<const char*, double> times[] = {{"queue_ms", timings.queue_ms},
                                                  {"ttft_ms", timings.ttft_ms},
                                                  {"tpot_ms", timings.tpot_ms},
                                                  {"total_ms", timings.total_ms}};
  for (const auto& [name, ms] : times) HEARTH_TRY(check_range(name, ms, kMonthMs));
  return {};
}

bool is_digest(const std::string& text) {
  return text.size() == 16 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Result<void> check_lists(const RecordedEvent& record) {
  HEARTH_TRY(check_count("finish_reasons", record.finish_reasons.size(), kLogSamples));
  HEARTH_TRY(check_count("digests", record.digests.size(), kLogSamples));
  HEARTH_TRY(check_count("text_tokens", record.text_tokens.size(), kLogTexts));
  for (const std::string& reason : record.finish_reasons) {
    if (reason.size() > 64) {
      return Error::invalid("finish_reasons: met a text of more than 64 bytes", "finish_reasons");
    }
  }
  for (const std::string& digest : record.digests) {
    if (!is_digest(digest)) {
      return Error::invalid("digests: want 16 hexadecimal digits each", "digests");
    }
  }
  for (const int32_t tokens : record.text_tokens) {
    HEARTH_TRY(check_range("text_tokens", tokens, kLogTokens));
  }
  const int64_t all =
      std::accumulate(record.text_tokens.begin(), record.text_tokens.end(), int64_t{0});
  return check_range("text_tokens in all", as_double(all), kLogTokens);
}

Result<ClientRequest> request_of(const RecordedEvent& record) {
  HEARTH_ASSIGN_OR_RETURN(ClientRequest request, decode_request(record.request.text));
  if (std::holds_alternative<GenerateRequest>(request) ||
      std::holds_alternative<EmbedRequest>(request)) {
    return request;
  }
  return Error::invalid(
      fmt::format("request: met {}, want generate or embed", hearth::ipc::name(verb_of(request))),
      "request");
}

Result<RecordedEvent> recorded_of(std::string_view line) {
  HEARTH_ASSIGN_OR_RETURN(Event event, decode_event(line));
  if (auto* record = std::get_if<RecordedEvent>(&event)) return std::move(*record);
  return Error::invalid("event: want recorded", "event");
}

/// Reads lines of a bounded length.
class LineReader {
 public:
  explicit LineReader(std::FILE* file) : file_(file) {}

  /// Nothing: the file has ended; `cut` is then whether it ends within a line. kTooLarge: the line
  /// is too long.
  Result<std::optional<std::string_view>> next(size_t most, bool* cut) {
    begin_ = end_;
    for (size_t searched = begin_;;) {
      const size_t newline = buffer_.find('\n', searched);
      if ((newline == std::string::npos ? buffer_.size() : newline) - begin_ > most) {
        return Error::too_large(fmt::format("a line of more than {} bytes", most));
      }
      if (newline != std::string::npos) {
        end_ = newline + 1;
        return std::optional(std::string_view(buffer_).substr(begin_, newline - begin_));
      }
      buffer_.erase(0, begin_);
      dropped_ += std::exchange(begin_, 0);
      searched = buffer_.size();
      buffer_.resize(searched + kChunk);
      const size_t read = std::fread(buffer_.data() + searched, 1, kChunk, file_);
      buffer_.resize(searched + read);
      if (read > 0) continue;
      if (std::ferror(file_) != 0) return Error::io("cannot be read");
      *cut = !buffer_.empty();
      return std::optional<std::string_view>();
    }
  }
  /// Of the current line in the file.
  int64_t offset() const { return narrow<int64_t>(dropped_ + begin_); }

 private:
  static constexpr size_t kChunk = 64 << 10;
  std::FILE* file_;
  std::string buffer_;
  size_t begin_ = 0;    // of the current line in the buffer
  size_t end_ = 0;      // after its newline
  size_t dropped_ = 0;  // bytes of the file before the buffer
};

}  // namespace

// ---- Lines --------------------------------------------------------------------------------------

std::string encode_log_header(const RequestLogHeader& header) {
  return fmt::format(R"({{"format":"{}","version":{},"text":{},"began":{}}})", kLogFormat,
                     kLogVersion, header.text, json_quote(header.began));
}

Result<RequestLogHeader> decode_log_header(std::string_view line) {
  const Error none = Error::invalid("not a recording of requests: want a line of hearth record");
  const Result<Json> object =
      parse_json_object(line, {.max_bytes = kLogHeaderBytes, .max_depth = 2});
  if (!object.ok() || !object->contains("format") || (*object)["format"] != kLogFormat) return none;
  const auto version = object->find("version");
  if (version == object->end() || !version->is_number_unsigned()) return none;
  if (*version != kLogVersion) {
    return Error::unsupported(
        fmt::format("version: met {}, this build reads {}", version->get<uint64_t>(), kLogVersion),
        "version");
  }
  const auto text = object->find("text");
  if (text == object->end() || !text->is_boolean()) return none;
  const auto began = object->find("began");
  RequestLogHeader header{.text = text->get<bool>(), .began = {}};
  if (began != object->end() && began->is_string()) header.began = began->get<std::string>();
  return header;
}

Result<RecordedEvent> decode_record(std::string_view line) {
  HEARTH_ASSIGN_OR_RETURN(RecordedEvent record, recorded_of(line));
  HEARTH_TRY(check_range("arrival_us", as_double(record.arrival_us), RequestLogLimits::kSpanUs));
  HEARTH_TRY(check_usage(record.usage));
  HEARTH_TRY(check_timings(record.timings));
  HEARTH_TRY(check_lists(record));
  if (record.model.size() > kLogNameBytes || record.error.size() > 64) {
    return Error::invalid("model, error: too long");
  }
  HEARTH_TRY(request_of(record));
  return record;
}

// ---- Writing ------------------------------------------------------------------------------------

Result<RequestLogWriter> RequestLogWriter::create(const std::filesystem::path& file,
                                                  const RequestLogHeader& header,
                                                  uint64_t max_bytes) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_APPEND, 0600);
  if (fd < 0 && errno == EEXIST) {
    return Error::invalid(fmt::format("{}: exists already; name a new file", file.string()));
  }
  if (fd < 0) return log_error_of(file.string());
  RequestLogWriter writer(fd, max_bytes);
  HEARTH_ASSIGN_OR_RETURN(const bool fits, writer.write_line(encode_log_header(header)));
  if (!fits) return Error::invalid(fmt::format("want more than {} bytes of room", max_bytes));
  return writer;
}

RequestLogWriter::RequestLogWriter(RequestLogWriter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_), max_bytes_(other.max_bytes_) {}

RequestLogWriter::~RequestLogWriter() {
  if (fd_ >= 0) ::close(fd_);
}

Result<bool> RequestLogWriter::add(const RecordedEvent& event) {
  return write_line(encode_event(event));
}

Result<bool> RequestLogWriter::write_line(std::string line) {
  line += '\n';
  if (line.size() > max_bytes_ - bytes_) return false;
  // One call, repeated only where the kernel took less, as it does when the disk is full.
  for (size_t done = 0; done < line.size();) {
    const ssize_t wrote = ::write(fd_, line.data() + done, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return log_error_of("the recording");
    done += narrow<size_t>(wrote);
  }
  bytes_ += line.size();
  return true;
}

// ---- Reading ------------------------------------------------------------------------------------

Result<RequestLog> RequestLog::open(const std::filesystem::path& file) {
  RequestLog log;
  log.name_ = file.string();
  // A named pipe would wait here; its lines could not be read twice either.
  std::error_code problem;
  if (!std::filesystem::is_regular_file(file, problem)) {
    return Error::not_found(fmt::format("{}: no such file", log.name_));
  }
  log.file_ = File(std::fopen(file.c_str(), "rbe"));
  if (log.file_ == nullptr) return log_error_of(log.name_);
  HEARTH_TRY(log.read_all());
  log.sort_by_arrival();
  return log;
}

Result<void> RequestLog::read_all() {
  LineReader reader(file_.get());
  for (size_t number = 1;; ++number) {
    const auto wrong = [&](Error error) {
      error.message = fmt::format("{}:{}: {}", name_, number, error.message);
      return error;
    };
    const size_t most = number == 1 ? kLogHeaderBytes : RequestLogLimits::kLineBytes;
    Result<std::optional<std::string_view>> line = reader.next(most, &cut_);
    if (!line.ok()) return wrong(line.take_error());
    if (!*line) {
      if (number == 1) return wrong(Error::invalid("not a recording of requests: no header line"));
      return {};
    }
    if (number == 1) {
      Result<RequestLogHeader> header = decode_log_header(**line);
      if (!header.ok()) return wrong(header.take_error());
      header_ = *std::move(header);
      continue;
    }
    if (records_.size() >= RequestLogLimits::kRecords) {
      return wrong(
          Error::too_large(fmt::format("more than {} requests", RequestLogLimits::kRecords)));
    }
    Result<RecordedEvent> record = decode_record(**line);
    if (!record.ok()) return wrong(record.take_error());
    std::string().swap(record->request.text);
    records_.push_back(*std::move(record));
    lines_.push_back({reader.offset(), (*line)->size()});
  }
}

void RequestLog::sort_by_arrival() {
  std::vector<size_t> order(records_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [this](size_t i) { return records_[i].arrival_us; });
  std::vector<RecordedEvent> records;
  std::vector<Line> lines;
  for (const size_t i : order) {
    records.push_back(std::move(records_[i]));
    lines.push_back(lines_[i]);
  }
  records_ = std::move(records);
  lines_ = std::move(lines);
}

Result<ClientRequest> RequestLog::request(size_t index) const {
  const Line& line = lines_[index];
  std::string text(line.bytes, '\0');
  if (::fseeko(file_.get(), line.offset, SEEK_SET) != 0 ||
      std::fread(text.data(), 1, text.size(), file_.get()) != text.size()) {
    return Error::io(fmt::format("{}: was changed while it was read", name_));
  }
  HEARTH_ASSIGN_OR_RETURN(const RecordedEvent record, decode_record(text));
  return request_of(record);
}

}  // namespace hearth::ipc
