#pragma once
// A server on 127.0.0.1, with or without TLS, that treats each connection as a script does: one
// thread, one connection at a time.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace hearth::tests {

/// One connection, as a script sees it. Blocks; every wait is bounded.
class ScriptedPeer {
 public:
  ScriptedPeer(int fd, void* tls) : fd_(fd), tls_(tls) {}
  /// The next request, header and body; "": the connection has ended.
  std::string read_request();
  /// False: the connection has ended.
  bool send(std::string_view bytes);
  /// Until the peer closes the connection. False: it does not.
  bool wait_for_close();

 private:
  bool more();

  int fd_;
  void* tls_;  // SSL; null: none
  std::string bytes_;
};

class ScriptedServer {
 public:
  using Script = std::function<void(ScriptedPeer&)>;
  explicit ScriptedServer(Script script) : ScriptedServer(std::move(script), {}, {}) {}
  /// With TLS; files in PEM.
  ScriptedServer(Script script, const std::filesystem::path& certificate,
                 const std::filesystem::path& key);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  uint16_t port() const { return port_; }
  int connections() const { return connections_; }
  int closed() const {
    return closed_;
  }  ///< for which wait_for_close() of the script returned true
  std::vector<std::string> requests() const;

 private:
  void serve();
  void serve_one(int fd);
  friend class ScriptedPeer;

  Script script_;
  void* context_ = nullptr;  // SSL_CTX; null: no TLS
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> connections_ = 0;
  std::atomic<int> closed_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;

  static thread_local ScriptedServer* current_;
};

/// The header of a response that lasts until its connection ends, and then `body`.
std::string open_response(std::string_view status, std::string_view type, std::string_view body);
/// A whole response.
std::string whole_response(std::string_view status, std::string_view type, std::string_view body);
/// A chunk of a chat's stream, as a server-sent event. `reason`: its finish_reason; "": null.
std::string chat_event(std::string_view text, std::string_view reason = {});
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";
/// The end of a stream: the usage of `prompt` and `output` tokens, and [DONE].
std::string usage_events(int prompt, int output);

}  // namespace hearth::tests
