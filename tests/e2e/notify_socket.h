#pragma once
// The receiving end of sd_notify(), in place of a service manager, for daemons that a test starts.

#include <filesystem>
#include <string>

namespace hearth::e2e {

/// While one lives, started daemons have its path in NOTIFY_SOCKET.
class NotifySocket {
 public:
  explicit NotifySocket(const std::filesystem::path& folder);
  ~NotifySocket();
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  /// Waits until the messages contain `words`; false after kPatienceMs.
  bool hears(const std::string& words);
  /// All messages that hears() has received, a line each.
  const std::string& heard() const { return heard_; }

 private:
  int fd_ = -1;
  std::string heard_;
};

}  // namespace hearth::e2e
