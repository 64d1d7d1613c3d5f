// Any template over any conversation: soon an answer in UTF-8, or an error with a message.
//
// Input: a template, the byte 0x1E, a conversation in JSON; without the byte, one of our own.

#include <algorithm>
#include <string>
#include <string_view>

#include "ipc/text/utf8.h"
#include "kernels/base/check.h"
#include "models/template/json.h"
#include "models/template/parser.h"
#include "models/template/renderer.h"
#include "tests/fuzz/input.h"

namespace {

using namespace hearth;
using namespace hearth::models;

constexpr std::string_view kConversation =
    R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null}],"k":1.5})";

/// The data of a text are ascending, separate parts of it.
void check_spans(const TracedText& text) {
  size_t end = 0;
  for (const ByteSpan& span : text.data) {
    HEARTH_CHECK(span.begin < span.end && (end == 0 || span.begin > end));
    end = span.end;
  }
  HEARTH_CHECK(end <= text.text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all = fuzz::Input(data, size).rest();
  const size_t gap = std::min(all.find('\x1E'), all.size());
  const std::string_view source = all.substr(0, gap);
  const auto body = jinja::parse_template(source);
  // Small limits: many inputs per second.
  const jinja::Limits limits{
      .max_steps = 20'000, .max_bytes = 4u << 20, .max_output_bytes = 1u << 20, .max_depth = 200};
  jinja::Renderer renderer(limits, std::tm{});
  const auto input =
      jinja::parse_json(renderer.arena(), gap == all.size() ? kConversation : all.substr(gap + 1));
  if (!input.ok()) HEARTH_CHECK(!input.error().message.empty());
  if (!body.ok()) {
    HEARTH_CHECK(body.error().message.starts_with("chat template"));
    return 0;
  }
  if (input.ok() && input->is_dict()) {
    for (const auto& [key, value] : input->dict().entries()) {
      renderer.set_global(key.text(), value);
    }
  }
  const auto out = renderer.render(*body);
  if (out.ok()) {
    HEARTH_CHECK(ipc::is_valid_utf8(out->text));
    check_spans(*out);
  } else {
    HEARTH_CHECK(out.error().message.starts_with("chat template, line "));
  }
  return 0;
}
