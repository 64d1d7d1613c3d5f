#include "kernels/base/result.h"

#include <array>

namespace hearth {
namespace {

struct CodeName {
  ErrorCode code;
  std::string_view name;
};

constexpr std::array kCodeNames = {
    CodeName{ErrorCode::kInvalidArgument, "invalid_argument"},
    CodeName{ErrorCode::kUnknownField, "unknown_field"},
    CodeName{ErrorCode::kProtocol, "protocol"},
    CodeName{ErrorCode::kNotFound, "not_found"},
    CodeName{ErrorCode::kForbidden, "forbidden"},
    CodeName{ErrorCode::kContextOverflow, "context_overflow"},
    CodeName{ErrorCode::kTooLarge, "too_large"},
    CodeName{ErrorCode::kBusy, "busy"},
    CodeName{ErrorCode::kUnavailable, "unavailable"},
    CodeName{ErrorCode::kDeadline, "deadline"},
    CodeName{ErrorCode::kCancelled, "cancelled"},
    CodeName{ErrorCode::kPoison, "poison"},
    CodeName{ErrorCode::kCorrupt, "corrupt"},
    CodeName{ErrorCode::kUnsupported, "unsupported"},
    CodeName{ErrorCode::kOutOfMemory, "out_of_memory"},
    CodeName{ErrorCode::kIo, "io"},
    CodeName{ErrorCode::kLost, "lost"},
    CodeName{ErrorCode::kInternal, "internal"},
};

}  // namespace

std::string_view name(ErrorCode code) {
  for (const CodeName& entry : kCodeNames) {
    if (entry.code == code) return entry.name;
  }
  return "internal";
}

std::optional<ErrorCode> error_code_from_name(std::string_view name) {
  for (const CodeName& entry : kCodeNames) {
    if (entry.name == name) return entry.code;
  }
  return std::nullopt;
}

}  // namespace hearth
