#pragma once
// `cache` requests. Each runs the worker program over the databases in the state directory, as
// `hearth cache` does for a user's own, whether or not a model is resident; its output is the
// reply. Callers reach their own prefixes; administrators reach all.
//
// `why` is answered from the misses that workers reported when requests ended. Owned by the io
// thread.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/broker/process/program_runs.h"
#include "daemon/broker/requests/session.h"
#include "ipc/schema/messages.h"

namespace hearth::broker {

struct CachePaths {
  std::filesystem::path program;    ///< the worker program
  std::filesystem::path state_dir;  ///< empty: prefixes are not stored
  std::vector<std::filesystem::path> model_dirs;
  int64_t pinned_bytes = int64_t{2} << 30;  ///< bound on one owner's pinned prefixes per model
};

/// The worker program's command line for that request. kInvalidArgument and kForbidden name the
/// field: invalid prefix names, verbs for administrators.
Result<std::vector<std::string>> cache_arguments(const CachePaths& paths, const Caller& caller,
                                                 const ipc::CacheRequest& request);

/// The prefix misses of requests, the newest per owner.
class MissLog {
 public:
  void note(uint32_t owner, const std::string& id, const ipc::DoneEvent& done);
  /// Lines of the system prompt of a request, which has not ended, that its prompt lacks
  /// (http.volatile_lines).
  void note_left_out(uint32_t owner, const std::string& id, int32_t lines);
  /// A sentence; kNotFound if the request is not in the log.
  Result<std::string> why(uint32_t owner, const std::string& id) const;

 private:
  struct Entry {
    std::string id;
    std::string sentence{};  ///< "": it has not ended
    int32_t left_out = 0;    ///< lines
  };
  /// The request's, as the newest.
  Entry& entry(uint32_t owner, const std::string& id);
  static constexpr size_t kPerOwner = 64;
  static constexpr size_t kOwners = 256;
  std::map<uint32_t, std::deque<Entry>> of_owner_;
};

class CacheVerbs {
 public:
  using Answer = std::function<void(Result<ipc::CacheReply>)>;

  CacheVerbs(boost::asio::io_context& io, CachePaths paths);

  /// Answers once, now or when the program has ended. kBusy if too many run.
  void handle(const Caller& caller, const ipc::CacheRequest& request, const Answer& answer);
  MissLog& misses() { return misses_; }

 private:
  const CachePaths paths_;
  MissLog misses_;
  ProgramRuns runs_;
};

}  // namespace hearth::broker
