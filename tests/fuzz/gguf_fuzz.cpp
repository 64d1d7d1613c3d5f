// Any bytes as a model file: parsed, read to the last byte, loaded as tokenizer and as model.
// Seeds: fuzz_seeds writes whole small files; start from those.

#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/unit/models/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hearth::models::exercise(std::as_bytes(std::span(data, size)),
                           "the abc <|end|>\n \xE2\x82\xAC\xFF<tool>  ");
  return 0;
}
