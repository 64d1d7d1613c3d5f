#pragma once
// Parameters that clients send and the daemon has no field for: those that cannot change the
// answer, which are accepted, and those of other servers, which are read as ours or refused with
// the name of ours. docs/http.md lists them.

#include <cstdint>
#include <span>
#include <string_view>

#include "daemon/http/requests/request_members.h"
#include "kernels/base/numbers.h"

namespace hearth::http {

/// Bit `1 << Api`; embeddings have a bit of their own.
using ApiSet = uint32_t;
constexpr ApiSet set_of(Api api) { return 1u << to_underlying(api); }
inline constexpr ApiSet kEmbeddingsApi = 1u << 7;

/// The values that are accepted.
enum class Accepts { kAny, kText, kFlag, kObject, kTrue, kFalse };

struct IgnoredField {
  std::string_view name;
  Accepts accepts = Accepts::kAny;
  ApiSet apis = 0;
  std::string_view why;  ///< it changes nothing
};
std::span<const IgnoredField> ignored_fields();
/// "a text", "false", ...
std::string_view accepted_values(Accepts accepts);

struct ForeignField {
  std::string_view theirs;
  std::string_view ours;  ///< a member of the same API, or a sentence if it is not read
  bool renamed = false;   ///< read as `ours`; else refused
  ApiSet apis = 0;
};
std::span<const ForeignField> foreign_fields();

/// Members of other parameters that change nothing. The code that takes them reports them.
struct NestedField {
  std::string_view name;  ///< "thinking.display"
  std::string_view why;
};
std::span<const NestedField> nested_fields();

/// Takes the parameters of `apis` that change nothing, and records their names.
void take_ignored(Members& in, ApiSet apis);
/// Renames the parameters of other servers that are read as ours. An error names two that mean the
/// same, or one that has another name here.
Result<void> rename_foreign(Json& body, ApiSet api);

}  // namespace hearth::http
