#pragma once
// Runs other programs and collects their output, bounded in number, time and bytes. Owned by the io
// thread.

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::broker {

class ProgramRuns {
 public:
  struct Bounds {
    size_t runs = 1;
    size_t output_bytes = 0;
    std::chrono::milliseconds time{0};
  };
  struct Ended {
    bool ok = false;     ///< exit status 0
    std::string output;  ///< stdout and stderr
  };
  /// kUnavailable: the run exceeded a bound and was killed.
  using Then = std::function<void(Result<Ended>)>;

  ProgramRuns(boost::asio::io_context& io, Bounds bounds);
  ~ProgramRuns();  // kills what still runs, without calling `then`

  /// Starts argv[0]; `then` is called once, after the program closed its output. If too many run
  /// already (kBusy) or it cannot be started (kIo), `then` is not called.
  Result<void> start(const std::vector<std::string>& argv, Then then);
  size_t running() const { return running_.size(); }

 private:
  struct Run;
  void read(uint64_t number);
  void end(uint64_t number, const char* problem);

  boost::asio::io_context& io_;
  const Bounds bounds_;
  std::map<uint64_t, std::unique_ptr<Run>> running_;
  uint64_t next_number_ = 1;
};

}  // namespace hearth::broker
