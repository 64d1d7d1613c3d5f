#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "daemon/worker/load/inspection.h"
#include "daemon/worker/tools/inspect/metadata_value.h"
#include "ipc/text/shown_text.h"
#include "models/pooling_in_use.h"

namespace hearth::worker {
namespace {

using ipc::human_bytes;
using ipc::human_count;
using ipc::one_line;

constexpr size_t kShownChars = 100;  // of one text

class Table {
 public:
  void head(std::string_view title) { out_ += fmt::format("\n{}\n", title); }
  void line(std::string_view label, std::string_view value) {
    out_ += fmt::format("  {:<18} {}\n", label, value);
  }
  void raw(std::string_view text) { out_ += text; }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

void write_element(std::string* out, bool value, size_t) { *out += value ? "true" : "false"; }
void write_element(std::string* out, int64_t value, size_t) { *out += fmt::format("{}", value); }
void write_element(std::string* out, uint64_t value, size_t) { *out += fmt::format("{}", value); }
void write_element(std::string* out, double value, size_t) { *out += fmt::format("{:.9g}", value); }
void write_element(std::string* out, std::string_view value, size_t most_chars) {
  *out += '"' + one_line(value, most_chars) + '"';
}

std::string value_text(const models::GgufEntry& entry, bool all) {
  const bool array = entry.type == models::GgufType::kArray;
  const size_t chars = all ? 0 : array ? kShownChars / 4 : kShownChars;
  const uint64_t most = all ? std::numeric_limits<uint64_t>::max() : uint64_t{kShownElements};
  std::string values;
  const uint64_t shown = each_element(entry, most, [&](const auto& value) {
    if (!values.empty()) values += ", ";
    write_element(&values, value, chars);
  });
  if (!array) return values;
  if (entry.element_type == models::GgufType::kArray) return fmt::format("{} arrays", entry.count);
  return fmt::format("[{}{}] {} x {}", values, shown < entry.count ? ", \xE2\x80\xA6" : "",
                     entry.count, name(entry.element_type));
}

void summary(Table& out, const Inspection& in) {
  const size_t files = in.gguf->parts().size();
  out.raw(one_line(in.file, 0) + "\n");
  out.line("file",
           fmt::format("{}{} (GGUF {}), {} of it tensors", human_bytes(in.gguf->file_bytes()),
                       files > 1 ? fmt::format(" in {} files", files) : "", in.gguf->version(),
                       human_bytes(in.tensor_bytes)));
  out.line("architecture",
           in.architecture.empty() ? "unknown" : one_line(in.architecture, kShownChars));
  if (!in.title.empty()) out.line("title", one_line(in.title, kShownChars));
  out.line("parameters", fmt::format("{} ({})", human_count(in.parameters), in.parameters));
  for (const TypeShare& share : in.types) {
    out.line(share.type, fmt::format("{} tensors, {} parameters, {}", share.tensors,
                                     human_count(share.parameters), human_bytes(share.bytes)));
  }
  out.line("runs here", in.refused.empty() ? "yes" : "no: " + one_line(in.refused, 0));
}

void model(Table& out, const models::ModelInfo& info) {
  out.head("Model");
  out.line("context", fmt::format("{} tokens", info.context_length));
  out.line("layers",
           fmt::format("{} of width {}, {} heads", info.num_layers, info.width, info.num_heads));
  if (info.drafts) {
    out.line("draft layer",
             fmt::format("{}, drafts among {} tokens; its KV and state are counted below",
                         human_bytes(info.draft_weight_bytes), info.draft_vocab));
  }
  int64_t total = 0;
  for (const models::LayerGroup& group : info.groups) {
    if (group.recurrent()) {
      out.line("state", fmt::format("{}: {} bytes per sequence, and per snapshot", layers_of(group),
                                    state_bytes(group)));
      continue;
    }
    const int64_t bytes = kv_bytes_per_token(group, kernels::DType::kF16);
    total += bytes;
    out.line("KV " + describe(group), fmt::format("{}, {}: {} bytes per token as f16, {} as f32",
                                                  layers_of(group), describe(group.kv), bytes,
                                                  kv_bytes_per_token(group, kernels::DType::kF32)));
  }
  const models::Pooling pooling = models::pooling_in_use(info.pooling);
  if (info.denoises()) {
    out.line("canvas", fmt::format("mask token {}; K and V as f32, for one pass at a time",
                                   info.canvas.mask_token));
  } else if (pooling == models::Pooling::kRank) {
    out.line("scores", "of pairs of texts (embed with query)");
  } else {
    out.line("embeddings",
             fmt::format("{} of the rows, {}", name(pooling),
                         info.pooling == pooling ? "as the file has it"
                                                 : "because the file gives no pooling"));
  }
  out.line("KV in all", fmt::format("{} bytes per token as f16", total));
}

void tokenizer(Table& out, const TokenizerSummary& in) {
  out.head("Tokenizer");
  if (in.kind.empty()) {
    out.line("kind", "none");
    return;
  }
  out.line("kind", one_line(in.kind, kShownChars) +
                       (in.pre.empty() ? "" : ", splits as " + one_line(in.pre, kShownChars)));
  if (!in.problem.empty()) out.line("cannot be used", one_line(in.problem, 0));
  out.line(
      "tokens",
      fmt::format("{}{}{}", in.size, in.merges > 0 ? fmt::format(", {} merges", in.merges) : "",
                  in.problem.empty() ? fmt::format(", {} control", in.control) : ""));
  if (in.problem.empty()) out.line("adds BOS", in.adds_bos ? "yes" : "no");
  for (const SpecialToken& token : in.special) {
    out.line(one_line(token.role, 18),
             fmt::format("{} {}", token.id, one_line(token.entry, kShownChars)));
  }
}

void templates(Table& out, const Inspection& in, bool all) {
  out.head("Chat template");
  if (in.templates.empty()) out.line("none", "a model for plain text");
  for (const ChatTemplate& chat : in.templates) {
    out.line(
        chat.name.empty() ? "main" : one_line(chat.name, kShownChars),
        fmt::format("{} bytes, mentions {}", chat.text.size(),
                    chat.mentions.empty() ? std::string("none of system, tools, thinking")
                                          : fmt::format("{}", fmt::join(chat.mentions, ", "))));
    out.line("", one_line(chat.text, all ? 0 : kShownChars));
  }
}

}  // namespace

std::string as_text(const Inspection& in, const InspectionFormat& format) {
  Table out;
  summary(out, in);
  if (in.model) model(out, *in.model);
  tokenizer(out, in.tokenizer);
  templates(out, in, format.all);
  out.head(fmt::format("Metadata ({} keys)", in.gguf->metadata().size()));
  for (const models::GgufEntry& entry : in.gguf->metadata()) {
    out.raw(fmt::format("  {:<42} {}\n", one_line(entry.key, kShownChars),
                        value_text(entry, format.all)));
  }
  out.head(fmt::format("Tensors ({}{})", in.gguf->tensors().size(),
                       format.tensors || format.all ? "" : "; --tensors lists them"));
  if (format.tensors || format.all) {
    for (const models::GgufTensor& tensor : in.gguf->tensors()) {
      out.raw(fmt::format("  {:<34} {:<6} {:>10}  {}\n", one_line(tensor.name, kShownChars),
                          tensor.type_name(), human_bytes(tensor.bytes.size()), tensor.shape()));
    }
  }
  return out.take();
}

}  // namespace hearth::worker
