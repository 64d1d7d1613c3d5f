#pragma once
// The last output of a process that ends itself.

#include <functional>
#include <string>

namespace hearth::tests {

/// The output on stderr of a child process that runs `body` and aborts.
std::string last_words(const std::function<void()>& body);

}  // namespace hearth::tests
