// hearth-tokenizer-bench [--smoke] [--text FILE] [VOCABULARY.gguf ...]: how fast text becomes
// tokens, and whether the time grows with the text and not faster.
//
//   text      MB/s over 1 to --most MiB (64) of the text, repeated as needed; linear if the last
//             column stays the same
//   one piece MB/s of 2 MiB that is one piece to the splitting rule
//
// Without a vocabulary: tiny ones of the unit tests. Without a text: seeded English-like words,
// code, digits and other scripts. --smoke: small sizes, for ctest. Prints; never judges.

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/check.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/unit/models/bpe_vocab.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::bench {
namespace {

using models::Tokenizer;

constexpr size_t kMiB = size_t{1} << 20;

/// Words with the frequencies of language: few are frequent and most are rare.
std::string synthetic_text(size_t bytes) {
  std::mt19937 random(1);
  std::vector<std::string> words;
  for (int i = 0; i < 20000; ++i) {
    std::string word;
    for (uint32_t length = 1 + random() % 4 + random() % 6; length > 0; --length)
      word.push_back("etaoinshrdlucmfwypvbgkjqxz"[random() % 13 + random() % 14]);
    words.push_back(word);
  }
  constexpr const char* kOthers[] = {"\n",
                                     "\n\n    ",
                                     " = ",
                                     "();\n",
                                     ", ",
                                     ". ",
                                     "'s",
                                     " 1984",
                                     " 3.14",
                                     " {\n        ",
                                     " \xD0\xBC\xD0\xB8\xD1\x80",
                                     " \xE4\xB8\xAD\xE6\x96\x87\xE5\xAD\x97",
                                     " \xF0\x9F\x98\x80"};
  std::string text;
  while (text.size() < bytes) {
    if (random() % 8 == 0) {
      text += kOthers[random() % std::size(kOthers)];
    } else {
      const double rank = static_cast<double>(random()) / static_cast<double>(random.max());
      text += " " + words[static_cast<size_t>(rank * rank * rank * 19999)];
    }
  }
  text.resize(bytes);
  return text;
}

/// CPU time of this thread: on a busy machine the wall clock would include other programs.
double cpu_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double encode_seconds(const Tokenizer& tokenizer, std::string_view text, size_t* num_tokens) {
  const double begin = cpu_seconds();
  *num_tokens = tokenizer.encode(text, {}).size();
  return cpu_seconds() - begin;
}

void report(const Tokenizer& tokenizer, std::string_view what, std::string_view text, int rounds) {
  double best = 1e9;
  size_t num_tokens = 0;
  for (int i = 0; i < rounds; ++i)
    best = std::min(best, encode_seconds(tokenizer, text, &num_tokens));
  const auto bytes = static_cast<double>(text.size());
  fmt::print("  {:<24}{:>8.2f} MiB {:>8.1f} MB/s {:>6.2f} bytes/token {:>8.1f} ns/byte\n", what,
             bytes / kMiB, bytes / best / 1e6, bytes / static_cast<double>(num_tokens),
             best / bytes * 1e9);
  std::fflush(stdout);
}

struct Options {
  bool smoke = false;
  size_t most_mib = 64;
  std::string text;
  std::vector<std::string> vocabularies;
};

void run(const std::string& name, const models::GgufFile& file, const Options& options) {
  const double begin = cpu_seconds();
  const auto loaded = models::load_tokenizer(file);
  HEARTH_CHECK(loaded.ok(), "{}: {}", name, loaded.error().message);
  const Tokenizer& tokenizer = **loaded;
  const double load_ms = (cpu_seconds() - begin) * 1e3;
  fmt::print("{} ({}, {} tokens, loaded in {:.0f} ms)\n", name, tokenizer.kind(),
             tokenizer.vocab_size(), load_ms);

  const size_t unit = options.smoke ? kMiB / 64 : kMiB;
  std::string text = options.text;
  while (text.size() < options.most_mib * unit)
    text += text.substr(0, std::min(text.size(), options.most_mib * unit - text.size()));
  for (size_t mib = 1; mib <= options.most_mib; mib *= 4)
    report(tokenizer, "text", std::string_view(text).substr(0, mib * unit), mib == 1 ? 3 : 1);

  const size_t piece_bytes = 2 * unit;
  std::string letters;
  std::mt19937 random(2);
  while (letters.size() < piece_bytes) letters.push_back(static_cast<char>('a' + random() % 26));
  std::string han;
  while (han.size() < piece_bytes) han += "\xE4\xB8\xAD";
  report(tokenizer, "one piece: blanks", std::string(piece_bytes, ' '), 1);
  report(tokenizer, "one piece: one letter", std::string(piece_bytes, 'a'), 1);
  report(tokenizer, "one piece: letters", letters, 1);
  report(tokenizer, "one piece: one Han", han, 1);
  report(tokenizer, "one piece: signs", std::string(piece_bytes, '='), 1);
  report(tokenizer, "one piece: no UTF-8", std::string(piece_bytes, '\xFF'), 1);
}

void run_bytes(const std::string& name, const models::GgufWriter& writer, const Options& options) {
  const std::vector<std::byte> bytes = writer.bytes();
  const auto file = models::GgufFile::parse(bytes, name);
  HEARTH_CHECK(file.ok(), "{}", file.error().message);
  run(name, *file, options);
}

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--smoke") {
      options.smoke = true;
      options.most_mib = 4;
    } else if (arg == "--most" && i + 1 < argc) {
      options.most_mib = std::strtoull(argv[++i], nullptr, 10);
    } else if (arg == "--text" && i + 1 < argc) {
      std::ostringstream content;
      content << std::ifstream(argv[++i], std::ios::binary).rdbuf();
      options.text = content.str();
    } else if (!arg.starts_with("--")) {
      options.vocabularies.emplace_back(arg);
    } else {
      fmt::print(stderr,
                 "usage: hearth-tokenizer-bench [--smoke] [--most MIB] [--text FILE] "
                 "[VOCABULARY.gguf ...]\n");
      return 2;
    }
  }
  if (options.text.empty()) options.text = synthetic_text(options.smoke ? kMiB / 16 : 16 * kMiB);
  for (const std::string& path : options.vocabularies) {
    const auto file = models::GgufFile::open(path);
    if (!file.ok()) {
      fmt::print(stderr, "{}\n", file.error().message);
      return 1;
    }
    run(path, *file, options);
  }
  if (options.vocabularies.empty()) {
    for (const char* pre : {"gpt-2", "llama-bpe", "gpt-4o", "deepseek-llm", "qwen2"})
      run_bytes(pre, vocab_file(models::small_bpe_vocab(), pre), options);
    run_bytes("llama", vocab_file(models::small_vocab()), options);
  }
  return 0;
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) { return hearth::bench::main(argc, argv); }
