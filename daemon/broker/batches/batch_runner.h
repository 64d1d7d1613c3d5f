#pragma once
// Keeps the files and batches of users, and runs the batches: each line is a request over HTTP that
// the daemon makes to itself as the batch's owner, of class batch. Owned by the io thread, which
// never waits for the disk.
//
// Owners take turns, by the requests that each has in progress. A request that is refused because
// the daemon is busy is made again later. What is in progress when the daemon stops is asked again
// after it has started: a line is answered at least once, and its result is written once.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "daemon/broker/batches/batch_store.h"
#include "daemon/broker/batches/inner_request.h"
#include "daemon/broker/process/side_thread.h"
#include "daemon/http/batch.h"
#include "kernels/base/result.h"

namespace hearth::broker {

struct BatchRunnerConfig {
  BatchStoreConfig store;
  size_t requests = 1;      ///< in progress at once
  size_t answer_bytes = 0;  ///< of one answer; a longer one fails its line
};

class BatchRunner {
 public:
  /// A connection to the HTTP front door as a user; -1: there is none.
  using Connect = std::function<int(uint32_t owner)>;
  explicit BatchRunner(boost::asio::io_context& io);
  ~BatchRunner();

  /// Without it, none are kept.
  void start(BatchRunnerConfig config, Connect connect);
  /// Removes what an earlier run has kept in `file`.
  void discard(std::filesystem::path file);

  bool enabled() const { return store_ != nullptr; }
  /// Answers as BatchStore::ask(), from the loop. kUnavailable: the store cannot be used.
  void ask(uint32_t owner, http::BatchQuery query,
           std::function<void(Result<http::BatchReply>)> then);
  void tick(int64_t now_us);
  /// Makes no further requests, and ends those in progress.
  void stop();

  /// The store has nothing to do.
  bool idle() const { return jobs_ == 0; }
  http::BatchStats stats() const;
  /// Why the store could not be used at last; "": it could.
  const std::string& problem() const { return problem_; }
  /// For the bytes that wait.
  const SideThread& thread() const { return thread_; }

 private:
  struct Running;
  struct Waiting {
    InputLine line;
    int tries = 0;
  };
  template <class T>
  void run(uint32_t owner, size_t bytes, std::function<Result<T>()> work,
           std::function<void(Result<T>)> then);
  template <class T>
  void run_for(const std::shared_ptr<Running>& batch, std::function<Result<T>()> work,
               std::function<void(T)> then);
  void refresh();
  void take_over(const std::vector<LiveBatch>& live);
  void pump();
  bool advance(const std::shared_ptr<Running>& batch);
  void end(const std::shared_ptr<Running>& batch);
  void write(const std::shared_ptr<Running>& batch);
  std::shared_ptr<Running> next_to_ask() const;
  void ask_line(const std::shared_ptr<Running>& batch);
  void on_answer(const std::shared_ptr<Running>& batch, Waiting& waiting,
                 Result<InnerAnswer> answer);
  void cancel_requests(Running& batch);
  size_t in_progress() const;

  boost::asio::io_context& io_;
  std::unique_ptr<BatchStore> store_;  // used by the thread alone
  BatchRunnerConfig config_;
  Connect connect_;
  SideThread thread_;                                    // joined before the store goes
  std::map<int64_t, std::shared_ptr<Running>> running_;  // by row
  size_t jobs_ = 0;
  bool known_ = true;  // the live batches could be read
  bool stopped_ = false;
  bool pumping_ = false;
  int64_t files_ = 0;
  int64_t bytes_ = 0;
  uint64_t lines_ = 0;
  std::string problem_;
  int64_t now_us_ = 0;
  int64_t swept_us_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace hearth::broker
