#pragma once
// What a process says that ends itself.

#include <functional>
#include <string>

namespace hearth::tests {

/// What a child process that runs `body` writes to stderr before it is aborted.
std::string last_words(const std::function<void()>& body);

}  // namespace hearth::tests
