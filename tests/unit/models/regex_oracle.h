#pragma once
// The splitting rules as regular expressions, run by PCRE2: the scanners are compared with them.

#include <string>
#include <string_view>
#include <vector>

namespace hearth::models {

/// A rule's expressions, one for each stage. Construction fails the test if one does not compile.
class RegexOracle {
 public:
  explicit RegexOracle(const std::vector<std::string>& patterns);
  ~RegexOracle();
  RegexOracle(const RegexOracle&) = delete;
  RegexOracle& operator=(const RegexOracle&) = delete;

  /// Byte offsets at which the pieces of `text`, valid UTF-8, end.
  std::vector<size_t> ends(std::string_view text) const;
  /// The matches of the first expression, as [begin, end) pairs.
  std::vector<size_t> matches(std::string_view text) const;

 private:
  void split_from(size_t stage, std::string_view text, size_t offset,
                  std::vector<size_t>* ends) const;

  struct Compiled;
  std::vector<Compiled> compiled_;
};

}  // namespace hearth::models
