#pragma once
// The protocol HEARTH/1 as plain data. Byte layout of its frames (ZeroMQ multipart, one per line):
//
//   client -> daemon                    daemon -> client
//   "HEARTH/1"                          "HEARTH/1"
//   request id, 1 to 64 bytes           request id, as the client wrote it
//   JSON request (UTF-8)                "event" | "delta"
//                                       event: JSON          delta: DeltaHeader + UTF-8 text,
//                                                                   or parts (see DeltaPart)
//                                                            delta: token ids, i32 little endian
//                                                            delta: JSON array of logprobs (only
//                                                                   if they were requested)
//
// A request id is 1 to 64 visible ASCII characters. It belongs to its owner (the uid that the
// kernel reports for the connection) and is unique among that owner's live requests. The answer to
// a request is either one reply event ("reply" or "error"; load, unload and swap send loading*
// first) or, for `generate`, the events queued* progress* started prompt_logprobs? delta*
// sample_done* and finally `done` or `error`.
//
// worker_pipe.h describes the messages between the broker and its workers. The broker puts the
// client's frames in front of each answer of a worker and passes it on. It keeps the ids frame of
// each delta (the token log, for resuming) and parses neither a token's text nor its JSON.

#include <cstddef>
#include <string_view>

namespace hearth::ipc {

inline constexpr std::string_view kProtocol = "HEARTH/1";
inline constexpr size_t kMaxRequestIdBytes = 64;
inline constexpr size_t kMaxRequestBytes = 32u << 20;  ///< one JSON request

}  // namespace hearth::ipc
