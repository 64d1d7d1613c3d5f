#pragma once
// The published inputs and ids of real tokenizers (HEARTH_TEST_DATA/tokenizers).

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace hearth::models {

struct PublishedCase {
  std::string input;
  std::vector<int32_t> ids;  // without BOS
};

/// Inputs are between separator lines in MODEL.inp, ids on one line each in MODEL.out.
inline std::vector<PublishedCase> published_cases(const std::filesystem::path& model) {
  const auto slurp = [](const std::filesystem::path& path) {
    std::ostringstream out;
    out << std::ifstream(path, std::ios::binary).rdbuf();
    return out.str();
  };
  const std::string inputs = slurp(model.string() + ".inp");
  std::istringstream expected(slurp(model.string() + ".out"));
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<PublishedCase> cases;
  for (size_t begin = 0, end; (end = inputs.find(separator, begin)) != std::string::npos;
       begin = end + separator.size()) {
    std::string line;
    if (!std::getline(expected, line)) break;
    std::istringstream numbers(line);
    cases.push_back({inputs.substr(begin, end - begin),
                     {std::istream_iterator<int32_t>(numbers), std::istream_iterator<int32_t>()}});
  }
  return cases;
}

}  // namespace hearth::models
