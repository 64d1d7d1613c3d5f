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
//                                                                   where they were asked for)
//
// A request id is 1 to 64 visible ASCII characters; it belongs to its owner (the uid the kernel
// names for the connection) and is unique among that owner's live requests. A request's answer is
// either one reply event ("reply", or "error"; load, unload and swap say loading* before it) or,
// for `generate`, the events queued* progress* started prompt_logprobs? delta* sample_done* and
// last `done` or `error`.
//
// What the broker and its workers say to each other is drawn in worker_pipe.h. The broker puts the
// client's frames in front of each of a worker's answers and sends it on; it keeps the ids frame of
// each delta (the token log, for resuming) and parses neither text nor JSON of a token.

#include <cstddef>
#include <string_view>

namespace hearth::ipc {

inline constexpr std::string_view kProtocol = "HEARTH/1";
inline constexpr size_t kMaxRequestIdBytes = 64;
inline constexpr size_t kMaxRequestBytes = 32u << 20;  ///< one JSON request

}  // namespace hearth::ipc
