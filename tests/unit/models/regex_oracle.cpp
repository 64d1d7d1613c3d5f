#include "tests/unit/models/regex_oracle.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <doctest/doctest.h>
#include <pcre2.h>

namespace hearth::models {

struct RegexOracle::Compiled {
  pcre2_code* code = nullptr;
  pcre2_match_data* data = nullptr;

  // [begin, end) of the first match at or after `from`; both are the text's size if there is none.
  std::pair<size_t, size_t> find(std::string_view text, size_t from) const {
    const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                               PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data, nullptr);
    REQUIRE_MESSAGE((rc > 0 || rc == PCRE2_ERROR_NOMATCH), "pcre2: " << rc);
    if (rc < 0) return {text.size(), text.size()};
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data);
    return {found[0], found[1]};
  }
};

RegexOracle::RegexOracle(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    int error = 0;
    PCRE2_SIZE where = 0;
    Compiled compiled;
    compiled.code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &where, nullptr);
    REQUIRE_MESSAGE(compiled.code != nullptr, pattern << ": error " << error << " at " << where);
    pcre2_jit_compile(compiled.code, PCRE2_JIT_COMPLETE);
    compiled.data = pcre2_match_data_create_from_pattern(compiled.code, nullptr);
    compiled_.push_back(compiled);
  }
}

RegexOracle::~RegexOracle() {
  for (const Compiled& compiled : compiled_) {
    pcre2_match_data_free(compiled.data);
    pcre2_code_free(compiled.code);
  }
}

std::vector<size_t> RegexOracle::ends(std::string_view text) const {
  std::vector<size_t> ends;
  split_from(0, text, 0, &ends);
  return ends;
}

std::vector<size_t> RegexOracle::matches(std::string_view text) const {
  std::vector<size_t> found;
  for (size_t at = 0; at < text.size();) {
    const auto [begin, end] = compiled_[0].find(text, at);
    if (end > begin) found.insert(found.end(), {begin, end});
    at = end;
  }
  return found;
}

void RegexOracle::split_from(size_t stage, std::string_view text, size_t offset,
                             std::vector<size_t>* ends) const {
  if (stage == compiled_.size()) {
    ends->push_back(offset + text.size());
    return;
  }
  for (size_t at = 0; at < text.size();) {
    const auto [begin, end] = compiled_[stage].find(text, at);
    if (begin > at) split_from(stage + 1, text.substr(at, begin - at), offset + at, ends);
    if (end > begin) split_from(stage + 1, text.substr(begin, end - begin), offset + begin, ends);
    at = end;
  }
}

}  // namespace hearth::models
