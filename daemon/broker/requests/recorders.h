#pragma once
// Connections that record their user's own requests (`record`). Each generate or embed request that
// arrived after the recording began is sent to it when it ends: its content or its shape, and the
// counts and timings of its end.
//
// A recorder sees requests of the user that the kernel reports for its connection, whether that
// user is an administrator or not. One that does not read loses records and is sent their number;
// it delays no request. Its memory is bounded by the connection's output buffer, and by one record
// that is being written for it on the side thread. Owned by the io thread.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/broker/process/side_thread.h"
#include "daemon/broker/requests/dispatcher.h"
#include "daemon/broker/transport/output_buffer.h"
#include "ipc/schema/messages.h"
#include "kernels/base/clock.h"
#include "kernels/base/result.h"

namespace hearth::broker {

class Recorders final : public RequestObserver {
 public:
  static constexpr size_t kPerOwner = 2;
  static constexpr size_t kAll = 8;

  /// `bytes_max`: of records that wait for one connection. Without a side thread, long records are
  /// written on the io thread.
  Recorders(const Clock& clock, Dispatcher& dispatcher, OutputBuffer& output, size_t bytes_max,
            SideThread* side)
      : clock_(clock),
        dispatcher_(dispatcher),
        output_(output),
        bytes_max_(bytes_max),
        side_(side) {
    dispatcher.set_observer(*this);
  }

  /// Answers the record message `id` with a RecordingEvent or an error: kForbidden over TCP, kBusy.
  void start(const Caller& caller, const std::string& id, const ipc::RecordRequest& request);
  size_t size() const { return recorders_.size(); }

  void on_end(const LiveRequest& request, const RequestEnd& end) override;
  void on_connection_gone(const PeerId& peer) override;
  /// Reports losses to recorders that read again.
  void on_tick() override;
  void on_fail_all(const Error& error) override;

 private:
  struct Recorder {
    uint64_t number = 0;
    PeerId peer;
    std::string id;  ///< of the record message
    uint32_t owner = 0;
    bool text = false;
    int64_t began_us = 0;
    uint64_t lost = 0;
    uint64_t reported_lost = 0;
    size_t writing_bytes = 0;  ///< of records on the side thread
  };

  Result<void> check(const Caller& caller, const std::string& id) const;
  void add(Recorder& recorder, const LiveRequest& request, const RequestEnd& end);
  bool has_room(const Recorder& recorder, size_t bytes) const;
  void on_written(uint64_t number, size_t bytes, const std::string& json);
  void send_record(Recorder& recorder, const std::string& json);
  OutputBuffer::Outcome push(const Recorder& recorder, const std::string& json, bool must_fit);

  const Clock& clock_;
  Dispatcher& dispatcher_;
  OutputBuffer& output_;
  const size_t bytes_max_;
  SideThread* const side_;
  std::vector<Recorder> recorders_;
  uint64_t last_number_ = 0;
};

}  // namespace hearth::broker
