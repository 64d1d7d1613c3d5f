#pragma once
// `cache` requests: each is a run of the worker program over the databases below the state
// directory, as `hearth cache` is over a user's own, whether or not a model is resident; what it
// prints is the reply. A caller reaches the prefixes of his own; an admin may reach all.
//
// `why` is answered from what the workers said when requests ended. Owned by the io thread.

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
  std::filesystem::path program;    ///< the worker's
  std::filesystem::path state_dir;  ///< empty: nothing is kept
  std::vector<std::filesystem::path> model_dirs;
  int64_t pinned_bytes = int64_t{2} << 30;  ///< that one owner may pin of a model's
};

/// The worker program's command line for that request. kInvalidArgument and kForbidden name the
/// field: names that no prefix has, verbs for admins.
Result<std::vector<std::string>> cache_arguments(const CachePaths& paths, const Caller& caller,
                                                 const ipc::CacheRequest& request);

/// What requests missed, the newest of each owner.
class MissLog {
 public:
  void note(uint32_t owner, const std::string& id, const ipc::DoneEvent& done);
  /// A sentence; kNotFound where the request is not remembered.
  Result<std::string> why(uint32_t owner, const std::string& id) const;

 private:
  struct Entry {
    std::string id;
    std::string sentence;
  };
  static constexpr size_t kPerOwner = 64;
  static constexpr size_t kOwners = 256;
  std::map<uint32_t, std::deque<Entry>> of_owner_;
};

class CacheVerbs {
 public:
  using Answer = std::function<void(Result<ipc::CacheReply>)>;

  CacheVerbs(boost::asio::io_context& io, CachePaths paths);

  /// Answers once, now or when the program has ended. kBusy where too many run.
  void handle(const Caller& caller, const ipc::CacheRequest& request, Answer answer);
  MissLog& misses() { return misses_; }

 private:
  const CachePaths paths_;
  MissLog misses_;
  ProgramRuns runs_;
};

}  // namespace hearth::broker
