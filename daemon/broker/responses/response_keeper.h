#pragma once
// Keeps answers of the responses API: the store's thread, and the queue of what waits for it. Owned
// by the io thread, which never waits for the disk.
//
// Work of one owner runs in order, so an answer that was given to keep() is found by the next
// ask(). Answers that wait to be written are bounded in bytes per owner and over all; beyond it,
// and where the store fails, an answer is not kept, which is logged and counted.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/broker/process/side_thread.h"
#include "daemon/broker/responses/response_store.h"
#include "daemon/http/kept_response.h"
#include "kernels/base/result.h"

namespace hearth::broker {

struct ResponseQueueBounds {
  size_t owner_bytes = 0;
  size_t bytes = 0;
};

class ResponseKeeper {
 public:
  explicit ResponseKeeper(boost::asio::io_context& io);

  /// Without it, nothing is kept.
  void start(ResponseStoreConfig config, ResponseQueueBounds bounds);
  /// Removes what an earlier run has kept in `file`.
  void discard(std::filesystem::path file);

  bool enabled() const { return store_ != nullptr; }
  void keep(uint32_t owner, http::KeptResponse response);
  /// Answers as ResponseStore::ask(), from the loop. kUnavailable: the store cannot be read.
  void ask(uint32_t owner, http::KeptQuery query, std::function<void(Result<std::string>)> then);
  void tick(int64_t now_us);

  /// Nothing waits to be written or read.
  bool idle() const { return waiting_ == 0; }
  http::KeptStats stats() const;
  /// Why the last answer was not kept, or the last sweep failed; "": neither.
  const std::string& problem() const { return problem_; }
  /// For the bytes that wait.
  const SideThread& thread() const { return thread_; }

 private:
  struct Job;
  void run(uint32_t owner, size_t bytes, std::function<void(Job&)> work,
           std::function<void(Job&)> then);
  void lose(uint32_t owner, const Error& error);

  std::unique_ptr<ResponseStore> store_;  // used by the thread alone
  ResponseQueueBounds bounds_;
  SideThread thread_;  // joined before the store goes
  size_t waiting_ = 0;
  int64_t entries_ = 0;
  int64_t bytes_ = 0;
  uint64_t not_kept_ = 0;
  std::string problem_;
  int64_t now_us_ = 0;
  int64_t logged_us_ = 0;
  int64_t swept_us_ = 0;
};

}  // namespace hearth::broker
