#include "ipc/wire/logprob_texts.h"

#include "ipc/text/utf8.h"
#include "ipc/wire/json_text.h"

namespace hearth::ipc {
namespace {

class PackedReader {
 public:
  explicit PackedReader(std::string_view json) : rest_(json) {}

  bool ended() const { return rest_.empty(); }
  bool take(std::string_view literal) {
    if (!rest_.starts_with(literal)) return false;
    rest_.remove_prefix(literal.size());
    return true;
  }
  bool number(std::string_view* out) {
    return piece(rest_.starts_with("null") ? 4 : number_bytes(rest_), out);
  }
  bool quoted(std::string_view* out) { return piece(quoted_bytes(rest_), out); }

 private:
  bool piece(size_t bytes, std::string_view* out) {
    *out = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return bytes > 0;
  }
  std::string_view rest_;
};

bool read_top(PackedReader& reader, std::vector<LogprobText>* out) {
  if (reader.take("]")) return true;
  do {
    LogprobText& top = out->emplace_back();
    std::string_view id;
    if (!reader.take(R"({"token":)") || !reader.number(&id) || !reader.take(R"(,"logprob":)") ||
        !reader.number(&top.logprob) || !reader.take(R"(,"text":)") || !reader.quoted(&top.text) ||
        !reader.take("}")) {
      return false;
    }
  } while (reader.take(","));
  return reader.take("]");
}

}  // namespace

bool read_logprobs(std::string_view frame, LogprobTexts* out) {
  out->tokens.clear();
  out->top.clear();
  if (!is_valid_utf8(frame)) return false;
  PackedReader reader(frame);
  if (!reader.take("[")) return false;
  if (reader.take("]")) return reader.ended();
  do {
    LogprobTexts::Token& token = out->tokens.emplace_back();
    token.top_begin = out->top.size();
    if (!reader.take(R"({"logprob":)") || !reader.number(&token.own.logprob) ||
        !reader.take(R"(,"top":[)") || !read_top(reader, &out->top) ||
        !reader.take(R"(,"text":)") || !reader.quoted(&token.own.text) || !reader.take("}")) {
      return false;
    }
    token.top_end = out->top.size();
  } while (reader.take(","));
  return reader.take("]") && reader.ended();
}

}  // namespace hearth::ipc
