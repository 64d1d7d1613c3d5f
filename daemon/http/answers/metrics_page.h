#pragma once
// A page in Prometheus's text format 0.0.4, written metric by metric.

#include <fmt/core.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace hearth::http {

/// The text as it stands between the quotes of a label's value.
inline std::string label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

class MetricsPage {
 public:
  /// Begins a metric; its values follow. `type`: gauge, counter or histogram.
  void metric(std::string name, std::string_view type, std::string_view help) {
    name_ = std::move(name);
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name_, help, name_,
                   type);
  }
  /// `labels`: with braces, or empty. `suffix`: of the name, for a histogram's lines.
  template <class T>
  void value(T value, std::string_view labels = {}, std::string_view suffix = {}) {
    fmt::format_to(std::back_inserter(text_), "{}{}{} {}\n", name_, suffix, labels, value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  std::string name_;
};

}  // namespace hearth::http
