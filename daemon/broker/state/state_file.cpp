#include "daemon/broker/state/state_file.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <system_error>
#include <utility>

#include "kernels/base/log.h"
#include "kernels/database/bus_guard.h"

namespace hearth::broker {
namespace fs = std::filesystem;
namespace {

constexpr int kBusyMs = 250;
constexpr const char* kPragmas =
    "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
    "PRAGMA secure_delete=ON; PRAGMA cache_size=-2048; PRAGMA trusted_schema=OFF;"
    "PRAGMA cell_size_check=ON; PRAGMA temp_store=MEMORY;";

fs::path aside_name(const fs::path& file) { return file.string() + ".damaged"; }

Result<void> set_up(Database& db, const std::string& name, const StateFileFormat& format) {
  db.set_busy_timeout(kBusyMs);
  HEARTH_TRY(db.execute(kPragmas));
  HEARTH_ASSIGN_OR_RETURN(int64_t application, db.query_integer("PRAGMA application_id"));
  HEARTH_ASSIGN_OR_RETURN(const int64_t tables,
                          db.query_integer("SELECT count(*) FROM sqlite_schema"));
  if (application == 0 && tables == 0) {
    HEARTH_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(db));
    HEARTH_TRY(db.execute(format.schema));
    HEARTH_TRY(db.execute(fmt::format("PRAGMA user_version={}; PRAGMA application_id={};",
                                      format.version, format.application_id)));
    HEARTH_TRY(transaction.commit());
    application = format.application_id;
  }
  HEARTH_ASSIGN_OR_RETURN(const int64_t version, db.query_integer("PRAGMA user_version"));
  if (application != format.application_id || version != format.version) {
    return Error::corrupt(fmt::format("{}: application {:x} format {}, want {:x} format {}", name,
                                      application, version, format.application_id, format.version));
  }
  return {};
}

}  // namespace

StateFile::StateFile(fs::path file, const StateFileFormat& format, const char* vfs, Users users)
    : file_(std::move(file)), format_(format), vfs_(vfs), users_(std::move(users)) {}

StateFile::~StateFile() {
  BusGuard::turn_on();  // this thread may differ from the one that used it before
  if (database_) (void)forget_removed();
  close();
}

bool StateFile::remove(const fs::path& file) {
  std::error_code ignored;
  bool removed = false;
  for (const char* suffix : {"", "-wal", "-shm", "-journal", ".damaged"}) {
    removed |= fs::remove(file.string() + suffix, ignored);
  }
  return removed;
}

void StateFile::close() {
  users_.closing();
  database_.reset();
  BusGuard::clear();
}

Result<void> StateFile::open() {
  if (database_) return {};
  BusGuard::turn_on();  // the log's index is mapped
  std::error_code problem;
  fs::create_directories(file_.parent_path(), problem);
  const fs::file_type type = fs::symlink_status(file_, problem).type();
  if (type != fs::file_type::regular && type != fs::file_type::not_found) HEARTH_TRY(put_aside());
  HEARTH_ASSIGN_OR_RETURN(Database opened, Database::open(file_, vfs_));
  HEARTH_TRY(set_up(opened, file_.filename().string(), format_));
  database_.emplace(std::move(opened));
  return users_.opened(*database_);
}

Result<void> StateFile::put_aside_damaged(const Error& error) {
  log_warn("state_damaged", "what={} error=\"{}\"", format_.what, error.message);
  return put_aside();
}

Result<void> StateFile::put_aside() {
  close();
  const fs::path aside = aside_name(file_);
  std::error_code problem;
  fs::remove_all(aside, problem);
  fs::rename(file_, aside, problem);
  if (problem) {
    return Error::io(fmt::format("{}: is damaged and cannot be moved away: {}",
                                 file_.filename().string(), problem.message()));
  }
  // They belong to the file that has left.
  for (const char* suffix : {"-wal", "-shm", "-journal"}) {
    fs::remove(file_.string() + suffix, problem);
  }
  log_warn("state_put_aside", "file=\"{}\"", aside.string());
  return {};
}

// Removed rows are overwritten in the file, but the log may still have them.
Result<void> StateFile::forget_removed() {
  if (!removed_) return {};
  HEARTH_TRY(database_->execute("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)"));
  removed_ = false;
  return {};
}

void StateFile::forget_damaged(int64_t by_s) {
  const fs::path aside = aside_name(file_);
  struct stat info {};
  std::error_code ignored;
  if (::stat(aside.c_str(), &info) == 0 && info.st_mtim.tv_sec <= by_s) {
    fs::remove_all(aside, ignored);
  }
}

}  // namespace hearth::broker
