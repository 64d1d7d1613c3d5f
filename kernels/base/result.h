#pragma once
// Errors as values. Every failure of a request ends as a code and a sentence on the wire, after
// crossing a thread and a process, so it is data from the start. Our own code throws nothing;
// exceptions of a library are caught in the one file that wraps it.

#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace hearth {

/// The table of error codes; `name(code)` is the form on the wire.
enum class ErrorCode {
  kInvalidArgument,  ///< a field has a value outside its range; the message names the field
  kUnknownField,     ///< a field that the protocol does not define
  kProtocol,         ///< a frame or envelope that violates the protocol
  kNotFound,         ///< no such model, request, file
  kForbidden,        ///< owned by another user, or outside the model directories
  kContextOverflow,  ///< prompt and output do not fit the context; both numbers in the message
  kTooLarge,         ///< over a bound (message bytes, prompt bytes, ...)
  kBusy,             ///< a bounded queue is full; retry_ms says when to try again
  kUnavailable,      ///< the daemon is draining, or no worker could be started
  kDeadline,         ///< the request's own deadline has passed
  kCancelled,        ///< cancelled by its owner
  kPoison,           ///< was running at two worker deaths; not tried a third time
  kCorrupt,          ///< a file or database whose content contradicts itself
  kUnsupported,      ///< well-formed but not supported by this build; the message names it
  kOutOfMemory,      ///< does not fit; the message holds the numbers
  kIo,               ///< the operating system refused
  kLost,             ///< the daemon or worker went away
  kInternal,         ///< a bug of ours
};

/// Name on the wire, e.g. "context_overflow".
std::string_view name(ErrorCode code);
/// The code with that wire name; empty for an unknown name.
std::optional<ErrorCode> error_code_from_name(std::string_view name);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  ///< a sentence: the value met and the value wanted
  std::string field;    ///< the request field at fault, or empty

  // One helper per code, in its order; see ErrorCode for what each means.
  static Error invalid(std::string message, std::string field = {}) {
    return {ErrorCode::kInvalidArgument, std::move(message), std::move(field)};
  }
  static Error unknown_field(std::string message, std::string field = {}) {
    return {ErrorCode::kUnknownField, std::move(message), std::move(field)};
  }
  static Error protocol(std::string message, std::string field = {}) {
    return {ErrorCode::kProtocol, std::move(message), std::move(field)};
  }
  static Error not_found(std::string message, std::string field = {}) {
    return {ErrorCode::kNotFound, std::move(message), std::move(field)};
  }
  static Error forbidden(std::string message, std::string field = {}) {
    return {ErrorCode::kForbidden, std::move(message), std::move(field)};
  }
  static Error context_overflow(std::string message, std::string field = {}) {
    return {ErrorCode::kContextOverflow, std::move(message), std::move(field)};
  }
  static Error too_large(std::string message, std::string field = {}) {
    return {ErrorCode::kTooLarge, std::move(message), std::move(field)};
  }
  static Error busy(std::string message, std::string field = {}) {
    return {ErrorCode::kBusy, std::move(message), std::move(field)};
  }
  static Error unavailable(std::string message, std::string field = {}) {
    return {ErrorCode::kUnavailable, std::move(message), std::move(field)};
  }
  static Error deadline(std::string message) {
    return {ErrorCode::kDeadline, std::move(message), {}};
  }
  static Error cancelled(std::string message) {
    return {ErrorCode::kCancelled, std::move(message), {}};
  }
  static Error poison(std::string message) { return {ErrorCode::kPoison, std::move(message), {}}; }
  static Error corrupt(std::string message, std::string field = {}) {
    return {ErrorCode::kCorrupt, std::move(message), std::move(field)};
  }
  static Error unsupported(std::string message, std::string field = {}) {
    return {ErrorCode::kUnsupported, std::move(message), std::move(field)};
  }
  static Error out_of_memory(std::string message, std::string field = {}) {
    return {ErrorCode::kOutOfMemory, std::move(message), std::move(field)};
  }
  static Error io(std::string message, std::string field = {}) {
    return {ErrorCode::kIo, std::move(message), std::move(field)};
  }
  static Error lost(std::string message) { return {ErrorCode::kLost, std::move(message), {}}; }
  static Error internal(std::string message) {
    return {ErrorCode::kInternal, std::move(message), {}};
  }
};

/// A value or an Error. `Result<void>` is success or an Error. The union is hand-written because
/// std::variant, in a header that every file includes, took a tenth of the compile time.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : ok_(true) { ::new (&value_) T(std::move(value)); }           // NOLINT(implicit)
  Result(Error error) : ok_(false) { ::new (&error_) Error(std::move(error)); }  // NOLINT(implicit)
  Result(Result&& other) noexcept : ok_(other.ok_) {
    if (ok_) {
      ::new (&value_) T(std::move(other.value_));
    } else {
      ::new (&error_) Error(std::move(other.error_));
    }
  }
  Result(const Result& other) requires std::is_copy_constructible_v<T> : ok_(other.ok_) {
    if (ok_) {
      ::new (&value_) T(other.value_);
    } else {
      ::new (&error_) Error(other.error_);
    }
  }
  Result& operator=(Result other) noexcept {
    this->~Result();
    ::new (this) Result(std::move(other));
    return *this;
  }
  ~Result() {
    if (ok_) {
      value_.~T();
    } else {
      error_.~Error();
    }
  }

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  T& value() & { return value_; }
  const T& value() const& { return value_; }
  T&& value() && { return std::move(value_); }
  T& operator*() & { return value_; }
  const T& operator*() const& { return value_; }
  T* operator->() { return &value_; }
  const T* operator->() const { return &value_; }
  const Error& error() const { return error_; }
  Error take_error() { return std::move(error_); }

 private:
  union {
    T value_;
    Error error_;
  };
  bool ok_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(implicit)
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }
  Error take_error() { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

}  // namespace hearth

#define HEARTH_CONCAT_INNER(a, b) a##b
#define HEARTH_CONCAT(a, b) HEARTH_CONCAT_INNER(a, b)

/// Returns the error of `expr` from the enclosing function, if it has one.
#define HEARTH_TRY(expr)                                \
  do {                                                  \
    if (auto hearth_try_ = (expr); !hearth_try_.ok()) { \
      return hearth_try_.take_error();                  \
    }                                                   \
  } while (false)

/// `HEARTH_ASSIGN_OR_RETURN(auto x, f())`: x is the value, or the function returns the error.
#define HEARTH_ASSIGN_OR_RETURN(decl, expr) \
  HEARTH_ASSIGN_OR_RETURN_INNER(HEARTH_CONCAT(hearth_result_, __LINE__), decl, expr)
#define HEARTH_ASSIGN_OR_RETURN_INNER(tmp, decl, expr) \
  auto tmp = (expr);                                   \
  if (!tmp.ok()) return tmp.take_error();              \
  decl = std::move(tmp).value()
