#include "engine/store/writer_lease.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "engine/store/stored_row.h"
#include "kernels/base/numbers.h"
#include "kernels/base/random.h"

namespace hearth::engine {
namespace {

constexpr int64_t kRenewMs = 2'000;
constexpr int64_t kLapseMs = 15'000;

std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id;
}

std::string random_token() {
  Hash128 token;
  token.low = random_bits();
  token.high = random_bits();
  return to_hex(token);
}

bool process_is_gone(int64_t pid) { return ::kill(narrow<pid_t>(pid), 0) != 0 && errno == ESRCH; }

}  // namespace

WriterLease::WriterLease() : token_(random_token()) {}

Result<void> WriterLease::open(Database& database) {
  HEARTH_ASSIGN_OR_RETURN(renew_,
                          database.prepare("UPDATE lease SET heartbeat_ms = ? WHERE token = ?"));
  database_ = &database;
  held_ = false;
  renewed_ms_ = 0;
  return {};
}

void WriterLease::close() {
  renew_ = Statement();
  database_ = nullptr;
  held_ = false;
}

bool WriterLease::due(int64_t now_ms) const { return now_ms - renewed_ms_ >= kRenewMs; }

Result<bool> WriterLease::renew(int64_t now_ms) {
  HEARTH_TRY(renew_.bind(0, now_ms).bind(1, token_).run());
  held_ = database_->changes() > 0;
  return held_;
}

Result<bool> WriterLease::take(int64_t now_ms) {
  if (held_ && !due(now_ms)) return true;
  HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*database_));
  HEARTH_TRY(renew_.bind(0, now_ms).bind(1, token_).run());
  bool mine = database_->changes() > 0;
  if (!mine) {
    HEARTH_ASSIGN_OR_RETURN(Statement holder,
                            database_->prepare("SELECT pid, boot, heartbeat_ms FROM lease"));
    HEARTH_ASSIGN_OR_RETURN(const bool held, holder.step());
    const std::string boot = boot_id();
    bool lapsed = true;
    if (held) {
      const int64_t beat = holder.integer(2);
      // A beat from the future is of a clock that was set back.
      lapsed = holder.text(1) != boot || process_is_gone(holder.integer(0)) ||
               now_ms - beat > kLapseMs || beat - now_ms > kLapseMs;
      holder.reset();
    }
    if (lapsed) {
      HEARTH_ASSIGN_OR_RETURN(
          Statement take, database_->prepare("INSERT OR REPLACE INTO lease VALUES(1, ?, ?, ?, ?)"));
      HEARTH_TRY(
          take.bind(0, token_).bind(1, int64_t{::getpid()}).bind(2, boot).bind(3, now_ms).run());
      mine = true;
    }
  }
  HEARTH_TRY(transaction.commit());
  renewed_ms_ = now_ms;
  held_ = mine;
  return mine;
}

void WriterLease::give_back() {
  if (!held_ || database_ == nullptr) return;
  held_ = false;
  if (Result<Statement> gone = database_->prepare("DELETE FROM lease WHERE token = ?"); gone.ok()) {
    (void)gone->bind(0, token_).run();
  }
}

}  // namespace hearth::engine
