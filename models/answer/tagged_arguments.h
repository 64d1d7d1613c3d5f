#pragma once
// Reads arguments of which each has marks around its name and its value (CallStyle::kTagged):
//   <parameter=city>
//   Paris
//   </parameter>
//   </function>

#include <string>
#include <string_view>

#include "models/answer/argument_reader.h"

namespace hearth::models {

class TaggedArguments final : public ArgumentReader {
 public:
  /// Both outlive it.
  TaggedArguments(const ArgumentTags& tags, const OfferedFunction& function)
      : tags_(tags), function_(function) {}

  Step push(char c, std::string* json) override;
  std::string held() const override { return held_; }
  void finish(std::string* json) override;

 private:
  enum class State { kBetween, kKey, kValueBegin, kFirstByte, kValue };

  Step between(char c, std::string* json);
  Step key(char c, std::string* json);
  Step value_begin(char c, std::string* json);
  void value(char c, std::string* json);
  void begin_value(std::string_view mark, std::string* json);
  void end_value(std::string* json);
  Step wrong(std::string* json);

  const ArgumentTags& tags_;
  const OfferedFunction& function_;
  State state_ = State::kBetween;
  bool begun_ = false;     // the object is open in the output
  bool pairs_ = false;     // and has a pair
  std::string held_;       // read, and not in the output
  size_t mark_begin_ = 0;  // in held_: where the mark that is expected begins
  std::string value_;      // of a value that is not always a string
  bool string_ = false;    // the value is a string, and passed on as it arrives
};

}  // namespace hearth::models
