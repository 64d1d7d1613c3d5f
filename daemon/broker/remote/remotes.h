#pragma once
// The remotes of roles: endpoints of OpenAI's API that may answer requests in place of a worker.
// A call is one request at a remote. It is sent the request's body, the configured key and nothing
// else. Owned by the io thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/broker/config/remote_config.h"
#include "daemon/broker/remote/remote_answer.h"
#include "daemon/broker/remote/remote_request.h"
#include "ipc/schema/events.h"
#include "kernels/base/result.h"

namespace hearth::broker {

/// Receives the answers of remotes, on the io thread. `number`: the request's.
class RemoteSink {
 public:
  virtual ~RemoteSink() = default;
  /// `model`: as the remote names it.
  virtual void on_remote_text(uint64_t number, const std::string& model,
                              const RemoteText& text) = 0;
  /// The answer is complete. The last call for this request.
  virtual void on_remote_done(uint64_t number, const std::string& model,
                              const std::vector<std::string>& reasons, const ipc::Usage& usage) = 0;
  /// The last call, too: the error names the remote, and what of its answer was received.
  virtual void on_remote_failed(uint64_t number, Error error) = 0;
};

/// A role's remote, as the dispatcher sees it.
struct Remote {
  std::string host;   ///< its name in answers and reports
  std::string model;  ///< that it is asked for
  RemoteRule rule;
};

class Remotes {
 public:
  /// Calls at a time, of all roles; further requests stay here.
  static constexpr size_t kMaxCalls = 64;

  virtual ~Remotes() = default;
  /// Null: the role has none.
  virtual const Remote* find(const std::string& role) const = 0;
  virtual std::vector<std::string> roles() const = 0;
  virtual bool has_room() const = 0;
  /// Sends a request to a role's remote; the sink is called later. The role has one, and room.
  virtual void start(uint64_t number, const std::string& role, RemoteRequest request) = 0;
  /// Closes the connection of a call; the sink is not called for it any more. Nothing happens if
  /// there is none of that number.
  virtual void cancel(uint64_t number) = 0;
};

}  // namespace hearth::broker
