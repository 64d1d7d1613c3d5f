// The seeds of the target remote: two bytes that choose what the bytes after them are.

#include <string>
#include <vector>

#include "tests/fuzz/seeds.h"

namespace hearth::fuzz {
namespace {

std::string choice(const std::string& members) {
  return R"(data: {"model":"far","choices":[{"index":0,)" + members + "}]}\n\n";
}

}  // namespace

void remote_seeds(Folder out) {
  const std::string stop = choice(R"("delta":{},"finish_reason":"stop")"),
                    done = "data: [DONE]\n\n";
  const std::string usage =
      R"(data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}})"
      "\n\n";
  for (const std::string& stream : std::vector<std::string>{
           ": c\r\nevent: x\r\n" + choice(R"("delta":{"content":"a\u00fc"})") + stop + usage + done,
           choice(R"("delta":{"reasoning_content":"r","refusal":"n"})") + stop,
           choice(R"("delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f"}}]})") +
               choice(R"("delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]})") +
               stop + done,
           choice(R"("delta":{"content":"a"},"finish_reason":"length")") + done,
           "data: {\"choices\":\ndata: []}\n\n", "data: {\"error\":{\"message\":\"m\"}}\n\n",
           "<html>\n", choice(R"("delta":{"content":"half)").substr(0, 40)}) {
    out.add(std::string("\0\0", 2) + stream);
    out.add(std::string("\0\1", 2) + stream);
  }
  out.add(std::string("\1\1", 2) + choice(R"("text":"a","finish_reason":"stop")") +
          R"(data: {"choices":[{"index":1,"text":"b","finish_reason":"stop"}]})");
  out.add(
      std::string("\2\0", 2) +
      R"([{"type":"function","function":{"name":"f","parameters":{"properties":{"input":{"lark":1}}}}}])");
  out.add(
      std::string("\3\0", 2) +
      R"([{"role":"assistant","content":"a","reasoning_of":"x","reasoning_content":"y",)"
      R"("tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}],"cache_keep_s":1},{"x":1}])");
  for (const char* text : {"absent or queue_ms > 5", "https://a.example:8443/v1/", "http://[::1]:1",
                           "http://127.0.0.1/x?y", "https://u@a"}) {
    out.add(std::string("\4\0", 2) + text);
  }
}

}  // namespace hearth::fuzz
