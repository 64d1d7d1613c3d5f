#pragma once
// A daemon before an attack, to compare with it afterwards: its resident memory, and the tokens of
// one request.

#include "tests/e2e/daemon.h"

namespace hearth::e2e {

class Baseline {
 public:
  explicit Baseline(const Daemon& daemon);

  /// By how much the daemon's resident memory has grown, without what AddressSanitizer adds to live
  /// memory and keeps of freed memory.
  size_t grown_bytes() const;
  /// The same request over the same connection again has the same tokens.
  bool same_tokens();

 private:
  const Daemon& daemon_;
  ipc::Client client_;
  Answer answer_;
  size_t resident_bytes_;
};

}  // namespace hearth::e2e
