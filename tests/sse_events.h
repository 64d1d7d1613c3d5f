#pragma once
// Server-sent events as tests compare them.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hearth::tests {

/// The data of each event, parsed; "[DONE]" as a string. Fails the test if an event is cut off, has
/// no data or more than one line of it, or has a name that is not its data's type.
inline std::vector<nlohmann::json> sse_events(const std::string& stream) {
  std::vector<nlohmann::json> out;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find("\n\n", at);
    REQUIRE(end != std::string::npos);
    const std::string event = stream.substr(at, end - at);
    at = end + 2;
    const size_t data = event.find("data: ");
    REQUIRE(data != std::string::npos);
    const std::string text = event.substr(data + 6);
    CHECK(text.find('\n') == std::string::npos);
    out.push_back(text == "[DONE]" ? nlohmann::json(text) : nlohmann::json::parse(text));
    if (data == 0) continue;
    CHECK(event.substr(0, data) == "event: " + out.back()["type"].get<std::string>() + "\n");
  }
  return out;
}

/// The same without "[DONE]".
inline std::vector<nlohmann::json> sse_objects(const std::string& stream) {
  std::vector<nlohmann::json> out = sse_events(stream);
  std::erase(out, "[DONE]");
  return out;
}

}  // namespace hearth::tests
