#pragma once
// The SQLite handles that hearth uses, each with one owner, and errors as values. A connection and
// its statements belong to one thread.
//
// Error codes: kBusy (another connection holds the lock), kCorrupt (the file is damaged or not
// a database), kTooLarge (the disk is full), kForbidden (read-only), kIo for the rest; the message
// is SQLite's own, after the file's name.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

struct sqlite3;
struct sqlite3_stmt;
struct sqlite3_blob;

namespace hearth {

/// A prepared statement. Parameters and columns count from 0.
class Statement {
 public:
  Statement() = default;

  Statement& bind(int index, int64_t value);
  Statement& bind(int index, double value);
  Statement& bind(int index, std::string_view text);
  /// The bytes must live until the statement was reset.
  Statement& bind(int index, std::span<const std::byte> blob);

  /// True: a row is there. False: the statement has ended, and was reset.
  Result<bool> step();
  /// Steps to the end and ignores rows.
  Result<void> run();
  void reset();

  int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;
  /// Lives until the next step or reset.
  std::span<const std::byte> blob(int column) const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int bind_error_ = 0;
};

class Database {
 public:
  /// Creates the file (mode 0600) if it is absent. `vfs`: the name of a registered one; null: the
  /// platform's.
  static Result<Database> open(const std::filesystem::path& file, const char* vfs = nullptr);
  /// An existing file, for reading only.
  static Result<Database> open_read_only(const std::filesystem::path& file);

  /// One or several statements without parameters.
  Result<void> execute(const std::string& sql);
  Result<Statement> prepare(std::string_view sql);
  /// First column of the first row; kNotFound if there is none.
  Result<int64_t> query_integer(std::string_view sql);
  Result<std::string> query_text(std::string_view sql);

  /// Reads the file's first bytes through a mapping, without a copy into a page cache. The last
  /// `ready_bytes` of it are read at once, so that they cause no page fault later. See BusGuard for
  /// the risk; after a page could not be read, every call returns kIo.
  Result<void> map(int64_t bytes, int64_t ready_bytes);

  int64_t last_insert_id() const;
  int64_t changes() const;
  void set_busy_timeout(int ms);

 private:
  friend class Blob;
  friend class Transaction;
  struct Close {
    void operator()(sqlite3* database) const;
  };
  Error error(int code) const;

  std::unique_ptr<sqlite3, Close> database_;
  std::string name_;
};

/// A blob cell that is read in pieces. No other statement of the connection may write meanwhile.
class Blob {
 public:
  /// kNotFound if the row is gone.
  static Result<Blob> open(Database& database, const char* table, const char* column, int64_t row);
  size_t size() const;
  Result<void> read(size_t offset, std::span<std::byte> out);

 private:
  struct Close {
    void operator()(sqlite3_blob* blob) const;
  };
  explicit Blob(Database& database) : database_(&database) {}
  Database* database_;
  std::unique_ptr<sqlite3_blob, Close> blob_;
};

/// BEGIN IMMEDIATE; rolled back unless committed. The database outlives it.
class Transaction {
 public:
  static Result<Transaction> begin(Database& database);
  ~Transaction();
  Transaction(Transaction&& other) noexcept : database_(other.database_) {
    other.database_ = nullptr;
  }
  Transaction& operator=(Transaction&&) = delete;
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  Result<void> commit();

 private:
  explicit Transaction(Database* database) : database_(database) {}
  Database* database_;
};

}  // namespace hearth
