// fuzz_seeds DIRECTORY: writes what gguf_fuzz starts from.

#include <cstdio>
#include <filesystem>

#include "tests/unit/models/bpe_vocab.h"
#include "tests/unit/models/tiny_model.h"

int main(int argc, char** argv) {
  using namespace hearth::models;
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds DIRECTORY\n");
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);
  GgufWriter no_vocabulary;
  no_vocabulary.set_string("general.architecture", "llama");
  set_llama_metadata(&no_vocabulary, {});
  add_llama_tensors(&no_vocabulary, {}, 16);
  const bool written =
      tiny_model().write(directory / "model.gguf").ok() &&
      no_vocabulary.write(directory / "no-vocabulary.gguf").ok() &&
      vocab_file(small_vocab()).write(directory / "llama-vocabulary.gguf").ok() &&
      vocab_file(small_bpe_vocab(), "llama-bpe").write(directory / "gpt2-vocabulary.gguf").ok();
  return written ? 0 : 1;
}
