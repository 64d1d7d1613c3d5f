#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hearth::cli {

struct ChatOptions {
  std::string model;               ///< empty: the resumed conversation's model, or default
  std::vector<std::string> words;  ///< the first question
  bool resume = false;
  std::string name;  ///< of the conversation; empty with `resume`: the latest one
  std::string system;
  bool list = false;
  bool hide_reasoning = false;
  bool no_start = false;
  bool allow_root = false;
  /// Fields of the requests, as in RunOptions.
  std::vector<std::pair<std::string, std::string>> fields;
};

}  // namespace hearth::cli
