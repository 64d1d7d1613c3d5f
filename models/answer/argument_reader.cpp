#include "models/answer/argument_reader.h"

#include <fmt/core.h>

#include "models/answer/call_object.h"
#include "models/answer/quoted_arguments.h"
#include "models/answer/tagged_arguments.h"

namespace hearth::models {
namespace {

/// One JSON object, passed on as it is.
class JsonArguments final : public ArgumentReader {
 public:
  Step push(char c, std::string* json) override {
    held_ = c;
    if (!begun_ && c != '{') return Step::kWrong;
    begun_ = true;
    const ValueScanner::Step step = value_.push(c);
    if (step == ValueScanner::Step::kWrong || step == ValueScanner::Step::kPast) {
      return Step::kWrong;
    }
    *json += c;
    return step == ValueScanner::Step::kDone ? Step::kDone : Step::kMore;
  }
  std::string held() const override { return held_; }

 private:
  ValueScanner value_;
  bool begun_ = false;
  std::string held_;
};

}  // namespace

std::unique_ptr<ArgumentReader> make_argument_reader(const ToolFormat& format,
                                                     const OfferedFunction& function) {
  switch (format.style) {
    case CallStyle::kTagged: return std::make_unique<TaggedArguments>(format.tags, function);
    case CallStyle::kQuoted: return std::make_unique<QuotedArguments>(format.quote);
    default: return std::make_unique<JsonArguments>();
  }
}

void append_json_byte(std::string* json, char c) {
  switch (c) {
    case '"': *json += "\\\""; return;
    case '\\': *json += "\\\\"; return;
    case '\n': *json += "\\n"; return;
    case '\r': *json += "\\r"; return;
    case '\t': *json += "\\t"; return;
    default: break;
  }
  if (is_control_byte(c)) {
    *json += fmt::format("\\u{:04x}", int{c});
  } else {
    *json += c;
  }
}

}  // namespace hearth::models
