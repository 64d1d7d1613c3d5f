#pragma once
// A file of recorded requests, which `hearth record` writes and `hearth replay` reads: JSON lines,
// readable by its owner alone.
//
//   {"format":"hearth-requests","version":1,"text":false,"began":"2026-11-27T09:30:00Z"}
//   {"event":"recorded","arrival_us":1500000,...}     one line per request, in order of their ends
//
// A line is written whole by one system call, so a recorder that is killed leaves whole lines. A
// last line without its newline (the disk was full, the machine went down) is left out when the
// file is read.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/schema/messages.h"
#include "kernels/base/result.h"

namespace hearth::ipc {

struct RequestLogLimits {
  static constexpr size_t kLineBytes = kMaxRequestBytes + (1u << 20);
  static constexpr size_t kRecords = 1'000'000;
  static constexpr int64_t kSpanUs = int64_t{31} * 24 * 3600 * 1'000'000;  ///< a recording's length
};

struct RequestLogHeader {
  bool text = false;  ///< requests are whole
  std::string began;  ///< the date and time, UTC; for people
  bool operator==(const RequestLogHeader&) const = default;
};

class RequestLogWriter {
 public:
  /// kInvalidArgument: the file exists already. `max_bytes`: of the file.
  static Result<RequestLogWriter> create(const std::filesystem::path& file,
                                         const RequestLogHeader& header, uint64_t max_bytes);
  ~RequestLogWriter();
  RequestLogWriter(RequestLogWriter&& other) noexcept;
  RequestLogWriter& operator=(RequestLogWriter&&) = delete;

  /// False: the file would pass its bound; nothing was written. kIo: such as a full disk.
  Result<bool> add(const RecordedEvent& event);
  uint64_t bytes() const { return bytes_; }

 private:
  RequestLogWriter(int fd, uint64_t max_bytes) : fd_(fd), max_bytes_(max_bytes) {}
  Result<bool> write_line(std::string line);

  int fd_ = -1;
  uint64_t bytes_ = 0;
  uint64_t max_bytes_ = 0;
};

/// A file that was read and checked, line by line. The requests stay in the file until they are
/// asked for.
class RequestLog {
 public:
  /// kInvalidArgument and kTooLarge name the file, the line, and what is wrong in it.
  static Result<RequestLog> open(const std::filesystem::path& file);

  const RequestLogHeader& header() const { return header_; }
  /// By arrival. `request` is empty in them.
  const std::vector<RecordedEvent>& records() const { return records_; }
  /// The request of records()[index]: generate or embed.
  Result<ClientRequest> request(size_t index) const;
  /// The file ends within a line, which was left out.
  bool cut() const { return cut_; }

 private:
  struct Line {
    int64_t offset = 0;
    size_t bytes = 0;
  };
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;

  Result<void> read_all();
  void sort_by_arrival();

  std::string name_;
  File file_;
  RequestLogHeader header_;
  std::vector<RecordedEvent> records_;
  std::vector<Line> lines_;  // of records_
  bool cut_ = false;
};

std::string encode_log_header(const RequestLogHeader& header);
/// kUnsupported: another version. kInvalidArgument: not such a line.
Result<RequestLogHeader> decode_log_header(std::string_view line);
/// A record and its request, with every value in its range.
Result<RecordedEvent> decode_record(std::string_view line);

}  // namespace hearth::ipc
