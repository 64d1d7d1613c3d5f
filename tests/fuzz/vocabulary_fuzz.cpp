// Any metadata of a tokenizer, of every kind: a small vocabulary, what the input adds to it, and
// keys that the input omits or gives another type. If it loads, texts are encoded with it.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "models/gguf/gguf_file.h"
#include "tests/fuzz/check_text.h"
#include "tests/fuzz/input.h"
#include "tests/unit/models/bpe_vocab.h"
#include "tests/unit/models/test_vocab.h"

namespace {

using namespace hearth;
using namespace hearth::models;
using fuzz::Input;

constexpr std::string_view kPrefix = "tokenizer.ggml.";

/// Sets keys, except for those that the input damages.
class Metadata {
 public:
  explicit Metadata(Input* input) : input_(input) {}

  template <typename Set>
  void set(std::string_view name, const Set& right) {
    const std::string key = std::string(kPrefix) + std::string(name);
    if (!input_->rarely()) return right(&writer_, key);
    switch (input_->number(0, 7)) {
      case 0: return;
      case 1: return writer_.set_u32(key, 7);
      case 2: return writer_.set_string(key, input_->text(8));
      case 3: return writer_.set_bool(key, true);
      case 4: return writer_.set_f32(key, 1.5f);
      case 5: return writer_.set_strings(key, std::vector<std::string>(3, "a"));
      case 6: return writer_.set_i32s(key, std::vector<int32_t>{input_->number(-300, 300), 1});
      default: return writer_.set_f32s(key, std::vector<float>{HUGE_VALF});
    }
  }
  void string(std::string_view name, const std::string& value) {
    set(name, [&](GgufWriter* w, const std::string& key) { w->set_string(key, value); });
  }
  void strings(std::string_view name, const std::vector<std::string>& values) {
    set(name, [&](GgufWriter* w, const std::string& key) { w->set_strings(key, values); });
  }
  void i32s(std::string_view name, const std::vector<int32_t>& values) {
    set(name, [&](GgufWriter* w, const std::string& key) { w->set_i32s(key, values); });
  }
  void f32s(std::string_view name, const std::vector<float>& values) {
    set(name, [&](GgufWriter* w, const std::string& key) { w->set_f32s(key, values); });
  }
  void u32(std::string_view name, uint32_t value) {
    set(name, [&](GgufWriter* w, const std::string& key) { w->set_u32(key, value); });
  }
  /// Omitted, false or true.
  void maybe(std::string_view name) {
    const int choice = input_->number(0, 2);
    if (choice == 0) return;
    set(name, [&](GgufWriter* w, const std::string& key) { w->set_bool(key, choice == 2); });
  }
  const GgufWriter& writer() const { return writer_; }

 private:
  Input* input_;
  GgufWriter writer_;
};

constexpr std::string_view kEntries[] = {"<|eot_id|>",   "<|im_end|>", "<|endoftext|>", "</s>",
                                         "<0x41>",       "<0xfF>",     "<0xG1>",        "",
                                         "\xE2\x96\x81", "##ab",       "[UNK]",         "\xC3"};

std::string entry(Input* input) {
  if (input->number(0, 3) == 0) return std::string(input->pick<std::string_view>(kEntries));
  if (input->rarely()) return std::string(static_cast<size_t>(input->number(4090, 4100)), 'x');
  std::string out;
  for (const char c : input->text(9)) {
    if (c == ' ') {
      out += "\xE2\x96\x81";
    } else {
      out.push_back(c);
    }
  }
  return out;
}

void special_ids(Input* input, Metadata* out) {
  for (const char* role : {"bos", "eos", "eot", "eom", "unknown"}) {
    if (!input->flag()) continue;
    out->u32(std::string(role) + "_token_id", static_cast<uint32_t>(input->number(0, 350)));
  }
  out->maybe("add_space_prefix");
  out->maybe("add_bos_token");
  out->maybe("add_eos_token");
}

/// Kinds with scores: the unit tests' vocabulary, or a few words.
TestVocab scored(Input* input) {
  TestVocab v;
  if (input->number(0, 3) != 0) {
    v = small_vocab();
  } else {
    v.add("[UNK]", 0, input->number(1, 3));
    v.add("[CLS]", 0, 3);
    v.add("[SEP]", 0, 3);
    for (const char* word : {"\xE2\x96\x81the",
                             "\xE2\x96\x81"
                             "ab",
                             "c", "bc"})
      v.add(word, -1, 1);
  }
  for (int i = input->number(0, 30); i > 0; --i) {
    const std::string added = entry(input);
    const auto score = static_cast<float>(input->number(-128, 127));
    v.add(added, input->rarely() ? HUGE_VALF : score, input->rarely() ? 9 : input->number(0, 5));
  }
  if (input->rarely()) v.types.pop_back();
  if (input->rarely()) v.scores.pop_back();
  if (input->rarely()) v = {};
  if (input->rarely()) std::fill(v.types.begin(), v.types.end(), 1);  // no bytes, no unknown token
  return v;
}

void write_scored(Input* input, const TestVocab& v, Metadata* out) {
  out->strings("tokens", v.tokens);
  out->f32s("scores", v.scores);
  if (input->number(0, 3) != 0) out->i32s("token_type", v.types);
  special_ids(input, out);
}

/// Merges in the order of their ranks, most of tokens whose join is one too.
void write_listed(Input* input, Metadata* out) {
  TestVocab v = scored(input);
  std::vector<std::string> merges;
  for (int i = input->number(0, 20); i > 0; --i) {
    if (v.tokens.empty() || input->rarely()) {
      merges.push_back(input->text(8));
      continue;
    }
    const auto token = [&] {
      return v.tokens[static_cast<size_t>(input->number(0, static_cast<int>(v.tokens.size()) - 1))];
    };
    const std::string left = token(), right = token();
    merges.push_back(left + " " + right);
    if (!input->rarely()) v.add(left + right, 0, 1);
  }
  out->strings("merges", merges);
  write_scored(input, v, out);
}

void write_bpe(Input* input, Metadata* out) {
  constexpr std::string_view kRules[] = {
      "default", "gpt-2",  "llama-bpe", "starcoder",    "falcon",         "qwen2",
      "qwen35",  "tekken", "gpt-4o",    "deepseek-llm", "deepseek-coder", "deepseek-v3",
      "bloom",   "viking", "nonesuch",  "mpt",          "kimi-k2"};
  TestBpeVocab v = small_bpe_vocab();
  for (int i = input->number(0, 20); i > 0; --i) {
    switch (input->number(0, 3)) {
      case 0: v.add(entry(input), input->rarely() ? 9 : input->number(0, 5)); break;
      case 1: v.merges.push_back(input->text(8)); break;
      case 2: v.tokens[static_cast<size_t>(input->number(0, 255))] = entry(input); break;
      default: {
        const auto token = [&] {
          return v
              .tokens[static_cast<size_t>(input->number(0, static_cast<int>(v.tokens.size()) - 1))];
        };
        const std::string left = token();
        v.merge(left, token());
      }
    }
  }
  out->string("pre", std::string(input->pick<std::string_view>(kRules)));
  out->strings("tokens", v.tokens);
  out->i32s("token_type", v.types);
  out->strings("merges", v.merges);
  special_ids(input, out);
}

/// A valid one: 'a' becomes the text at an offset of the input's choice. A unit is an offset (from
/// bit 10, by XOR with its place), bit 8 for a value that follows, and a label.
std::vector<int32_t> one_key_charsmap(Input* input) {
  std::vector<uint32_t> units(256, 0);
  units[0] = 1u << 10;                          // children of the root are at 1 ^ label
  units[1 ^ 'a'] = 128u << 10 | 1u << 8 | 'a';  // its value is at that place ^ 128
  units[1 ^ 'a' ^ 128] = 1u << 31 | static_cast<uint32_t>(input->number(0, 12));
  std::vector<int32_t> out;
  const auto put = [&out](uint32_t unit) {
    for (int i = 0; i < 4; ++i) out.push_back(static_cast<int32_t>(unit >> (8 * i) & 0xFF));
  };
  put(static_cast<uint32_t>(units.size() * 4));
  for (const uint32_t unit : units) put(unit);
  for (const char c : std::string_view("b\0 \0\xC3\xA9\0", 7))
    out.push_back(static_cast<uint8_t>(c));
  return out;
}

/// An index of the input's choice followed by texts, or bytes that are not a charsmap.
std::vector<int32_t> charsmap(Input* input) {
  std::vector<int32_t> out;
  if (input->number(0, 3) == 0) return one_key_charsmap(input);
  const std::string index = input->text(400);
  const size_t whole = input->rarely() ? index.size() : index.size() / 4 * 4;
  if (input->flag()) {
    for (int i = 0; i < 4; ++i) out.push_back(static_cast<int32_t>(whole >> (8 * i) & 0xFF));
  }
  for (const char c : index.substr(0, whole)) out.push_back(static_cast<uint8_t>(c));
  for (const char c : std::string_view("ab\0 \0\xC3\xA9\0", 8)) {
    out.push_back(static_cast<uint8_t>(c));
  }
  if (input->rarely()) out.insert(out.end() - 1, 300, 'x');
  if (input->rarely()) out.push_back(input->number(-300, 300));
  return out;
}

/// Entries with escapes, whole and broken.
void write_world(Input* input, Metadata* out) {
  constexpr std::string_view kParts[] = {"\\n",  "\\x41", "\\xe4", "\\xZ1",
                                         "\\\\", "\\",    "\\'",   "ab"};
  TestVocab v = scored(input);
  for (int i = input->number(0, 10); i > 0; --i) {
    std::string entry;
    for (int n = input->number(0, 4); n > 0; --n) {
      const auto part = input->pick<std::string_view>(kParts);
      const bool broken = part == "\\" || part == "\\xZ1";
      if (!broken || input->rarely()) entry += part;
    }
    v.add(entry, 0, input->number(0, 5));
  }
  write_scored(input, v, out);
}

GgufWriter vocabulary(Input* input) {
  Metadata out(input);
  // A new kind takes a free number, so that inputs found before keep their kind.
  switch (input->number(0, 9)) {
    case 0:
      out.string("model", input->rarely() ? "nonesuch" : "llama");
      write_scored(input, scored(input), &out);
      break;
    case 1:
      out.string("model", "gpt2");
      write_bpe(input, &out);
      break;
    case 2:
      out.string("model", "bert");
      out.maybe("normalizer.lowercase");
      out.maybe("normalizer.strip_accents");
      write_scored(input, scored(input), &out);
      break;
    case 3:
      out.string("model", "plamo2");
      write_scored(input, scored(input), &out);
      break;
    case 4:
      out.string("model", "gemma4");
      write_listed(input, &out);
      break;
    case 5:
      out.string("model", "rwkv");
      write_world(input, &out);
      break;
    default:
      out.string("model", "t5");
      out.maybe("remove_extra_whitespaces");
      if (input->flag()) out.i32s("precompiled_charsmap", charsmap(input));
      write_scored(input, scored(input), &out);
  }
  return out.writer();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const std::vector<std::byte> bytes = vocabulary(&input).bytes();
  const auto file = GgufFile::parse(bytes, "fuzz");
  HEARTH_CHECK(file.ok(), "{}", file.error().message);  // the writer writes what the reader reads
  const auto tokenizer = load_tokenizer(file.value());
  if (!tokenizer.ok()) return 0;
  for (const std::string_view text :
       {input.rest(),
        std::string_view("the abc  <|end|>x <tool>\n\tTHE \xC3\xA9t\xC3\xA9 e\xCC\x81 "
                         "\xE2\x82\xAC\xF0\x9F\x98\x80 12,3.\xFF\xE4\xB8\xAD\xEF\xBC"
                         "\xA1\x01 abcabc don't</s>")}) {
    fuzz::check_text(*tokenizer.value(), text, false);
    fuzz::check_text(*tokenizer.value(), text, true);
  }
  return 0;
}
