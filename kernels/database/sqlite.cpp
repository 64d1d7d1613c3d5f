#include "kernels/database/sqlite.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sqlite3.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "kernels/database/bus_guard.h"

namespace hearth {
namespace {

ErrorCode code_of(int sqlite_code) {
  switch (sqlite_code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return ErrorCode::kBusy;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return ErrorCode::kCorrupt;
    case SQLITE_FULL: return ErrorCode::kTooLarge;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH: return ErrorCode::kForbidden;
    default: return ErrorCode::kIo;
  }
}

/// A result computed from pages that could not be read is an error.
int believed(int code) { return BusGuard::tripped() ? SQLITE_IOERR_READ : code; }

}  // namespace

// ---- Statement ------------------------------------------------------------------------------

void Statement::Finalize::operator()(sqlite3_stmt* statement) const {
  ::sqlite3_finalize(statement);
}

Statement& Statement::bind(int index, int64_t value) {
  const int code = ::sqlite3_bind_int64(statement_.get(), index + 1, value);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

Statement& Statement::bind(int index, double value) {
  const int code = ::sqlite3_bind_double(statement_.get(), index + 1, value);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

Statement& Statement::bind(int index, std::string_view text) {
  const int code =
      ::sqlite3_bind_text(statement_.get(), index + 1, text.data() == nullptr ? "" : text.data(),
                          size32(text), SQLITE_TRANSIENT);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

Statement& Statement::bind(int index, std::span<const std::byte> blob) {
  // A null pointer would be the value NULL.
  const void* data = blob.empty() ? static_cast<const void*>("") : blob.data();
  const int code =
      ::sqlite3_bind_blob64(statement_.get(), index + 1, data, blob.size(), SQLITE_STATIC);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

Result<bool> Statement::step() {
  int code = std::exchange(bind_error_, 0);
  if (code == 0) code = believed(::sqlite3_step(statement_.get()));
  if (code == SQLITE_ROW) return true;
  const Error error{
      code_of(code),
      fmt::format("{} ({})", ::sqlite3_errmsg(::sqlite3_db_handle(statement_.get())), code), ""};
  reset();
  if (code == SQLITE_DONE) return false;
  return error;
}

Result<void> Statement::run() {
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool row, step());
    if (!row) return {};
  }
}

void Statement::reset() {
  ::sqlite3_reset(statement_.get());
  ::sqlite3_clear_bindings(statement_.get());
}

int64_t Statement::integer(int column) const {
  return ::sqlite3_column_int64(statement_.get(), column);
}
double Statement::real(int column) const { return sqlite3_column_double(statement_.get(), column); }

std::string Statement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(::sqlite3_column_text(statement_.get(), column));
  if (text == nullptr) return {};
  return std::string(text, ::sqlite3_column_bytes(statement_.get(), column));
}

std::span<const std::byte> Statement::blob(int column) const {
  const auto* data = static_cast<const std::byte*>(::sqlite3_column_blob(statement_.get(), column));
  if (data == nullptr) return {};
  return std::span(data, ::sqlite3_column_bytes(statement_.get(), column));
}

// ---- Database -------------------------------------------------------------------------------

void Database::Close::operator()(sqlite3* database) const { ::sqlite3_close_v2(database); }

Error Database::error(int code) const {
  return {code_of(code), fmt::format("{}: {} ({})", name_, ::sqlite3_errmsg(database_.get()), code),
          ""};
}

Result<Database> Database::open(const std::filesystem::path& file, const char* vfs) {
  // SQLite would make the file with the umask's mode; the journals take the mode of the file.
  const int fd = ::open(file.c_str(), O_CREAT | O_CLOEXEC | O_RDONLY | O_NOFOLLOW, 0600);
  if (fd >= 0) ::close(fd);
  Database out;
  out.name_ = file.filename().string();
  sqlite3* raw = nullptr;
  const int code = ::sqlite3_open_v2(
      file.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, vfs);
  out.database_.reset(raw);
  if (code != SQLITE_OK) return out.error(code);
  return out;
}

Result<Database> Database::open_read_only(const std::filesystem::path& file) {
  Database out;
  out.name_ = file.filename().string();
  sqlite3* raw = nullptr;
  const int code =
      ::sqlite3_open_v2(file.c_str(), &raw, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, nullptr);
  out.database_.reset(raw);
  if (code != SQLITE_OK) return out.error(code);
  return out;
}

Result<void> Database::execute(const std::string& sql) {
  const int code =
      believed(::sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr));
  if (code != SQLITE_OK) return error(code);
  return {};
}

Result<void> Database::map(int64_t bytes, int64_t ready_bytes) {
  BusGuard::turn_on();
  HEARTH_TRY(execute(fmt::format("PRAGMA mmap_size={}", bytes)));
#ifdef MADV_POPULATE_READ
  sqlite3_file* file = nullptr;
  ::sqlite3_file_control(database_.get(), "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (file == nullptr || file->pMethods == nullptr || file->pMethods->iVersion < 3) return {};
  sqlite3_int64 size = 0;
  if (file->pMethods->xFileSize(file, &size) != SQLITE_OK) return {};
  // SQLite gives no pointer to data that ends within 256 bytes of the mapping's end.
  constexpr int64_t kPage = 4096;
  const int64_t end = std::min<int64_t>(size, bytes) / kPage * kPage - kPage;
  const int64_t begin = std::max<int64_t>(0, end - ready_bytes);
  if (end <= begin) return {};
  void* memory = nullptr;
  if (file->pMethods->xFetch(file, begin, narrow<int>(end - begin), &memory) != SQLITE_OK ||
      memory == nullptr) {
    return {};
  }
  // If the kernel does not support it, or a page cannot be read, the pages are read later.
  ::madvise(memory, end - begin, MADV_POPULATE_READ);
  file->pMethods->xUnfetch(file, begin, memory);
#endif
  return {};
}

Result<Statement> Database::prepare(std::string_view sql) {
  sqlite3_stmt* raw = nullptr;
  const int code = ::sqlite3_prepare_v3(database_.get(), sql.data(), size32(sql),
                                        SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  Statement out;
  out.statement_.reset(raw);
  if (code == SQLITE_OK) return out;
  Error problem = error(code);
  // Our statements are fixed, so a table or column that they name is missing.
  if (code == SQLITE_ERROR) problem.code = ErrorCode::kCorrupt;
  return problem;
}

Result<int64_t> Database::query_integer(std::string_view sql) {
  HEARTH_ASSIGN_OR_RETURN(Statement statement, prepare(sql));
  HEARTH_ASSIGN_OR_RETURN(const bool row, statement.step());
  if (!row) return Error::not_found(name_ + ": no row");
  return statement.integer(0);
}

Result<std::string> Database::query_text(std::string_view sql) {
  HEARTH_ASSIGN_OR_RETURN(Statement statement, prepare(sql));
  HEARTH_ASSIGN_OR_RETURN(const bool row, statement.step());
  if (!row) return Error::not_found(name_ + ": no row");
  return statement.text(0);
}

int64_t Database::last_insert_id() const { return ::sqlite3_last_insert_rowid(database_.get()); }
int64_t Database::changes() const { return ::sqlite3_changes64(database_.get()); }
void Database::set_busy_timeout(int ms) { ::sqlite3_busy_timeout(database_.get(), ms); }

// ---- Blob -----------------------------------------------------------------------------------

void Blob::Close::operator()(sqlite3_blob* blob) const { ::sqlite3_blob_close(blob); }

Result<Blob> Blob::open(Database& database, const char* table, const char* column, int64_t row) {
  Blob out(database);
  sqlite3_blob* raw = nullptr;
  const int code =
      believed(::sqlite3_blob_open(database.database_.get(), "main", table, column, row, 0, &raw));
  out.blob_.reset(raw);
  // SQLITE_ERROR is also the result for a missing row or a value that is not a blob.
  if (code == SQLITE_ERROR) return Error::not_found(database.error(code).message);
  if (code != SQLITE_OK) return database.error(code);
  return out;
}

size_t Blob::size() const { return ::sqlite3_blob_bytes(blob_.get()); }

Result<void> Blob::read(size_t offset, std::span<std::byte> out) {
  const int code =
      believed(::sqlite3_blob_read(blob_.get(), out.data(), size32(out), narrow<int>(offset)));
  if (code != SQLITE_OK) return database_->error(code);
  return {};
}

// ---- Transaction ----------------------------------------------------------------------------

Result<Transaction> Transaction::begin(Database& database) {
  HEARTH_TRY(database.execute("BEGIN IMMEDIATE"));
  return Transaction(&database);
}

Transaction::~Transaction() {
  // Fails if SQLite has rolled back by itself (disk full, I/O error), which has the same effect.
  if (database_ != nullptr) (void)database_->execute("ROLLBACK");
}

Result<void> Transaction::commit() {
  // Nothing that was computed from such pages is written.
  if (BusGuard::tripped()) return database_->error(SQLITE_IOERR_READ);
  HEARTH_TRY(database_->execute("COMMIT"));
  database_ = nullptr;
  return {};
}

}  // namespace hearth
