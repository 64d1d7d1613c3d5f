#pragma once
// Many short strings in one allocation, numbered in order of addition.

#include <cstddef>
#include <string_view>
#include <vector>

namespace hearth::models {

/// Views stay valid until the next add(), even if the pool is moved.
class StringPool {
 public:
  void reserve(size_t count) { ends_.reserve(count); }
  void add(std::string_view text) {
    text_.insert(text_.end(), text.begin(), text.end());
    ends_.push_back(text_.size());
  }

  size_t size() const { return ends_.size(); }
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return {text_.data() + begin, ends_[i] - begin};
  }

 private:
  std::vector<char> text_;
  std::vector<size_t> ends_;
};

}  // namespace hearth::models
