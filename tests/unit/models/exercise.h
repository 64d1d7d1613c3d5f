#pragma once
// Reads everything that a parsed file returns, and loads from it what can be loaded. Whatever the
// bytes are, this neither crashes nor reads outside them; the sanitizers check the second.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/ops.h"
#include "models/gguf/gguf_file.h"
#include "models/model.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/unit/models/tiny_model.h"

namespace hearth::models {

/// A sum over every byte, so that no read is left out.
inline uint64_t read_everything(const GgufFile& file) {
  uint64_t sum = 0;
  const auto add = [&sum](std::string_view text) {
    for (const char c : text) sum += static_cast<uint8_t>(c);
  };
  for (const GgufEntry& entry : file.metadata()) {
    add(entry.key);
    add(as_text(entry.payload));
    if (const auto strings = file.get<GgufStrings>(entry.key)) {
      for (const std::string_view text : strings.value()) add(text);
    }
    if (const auto numbers = file.get<GgufNumbers<int32_t>>(entry.key)) {
      for (size_t i = 0; i < numbers.value().size(); ++i) {
        sum += static_cast<uint32_t>(numbers.value()[i]);
      }
    }
    sum += file.get<GgufNumbers<float>>(entry.key).ok();
    sum += file.get<uint64_t>(entry.key).ok();
    sum += file.get<int32_t>(entry.key).ok();
    sum += file.get<bool>(entry.key).ok();
    sum += file.get<std::string_view>(entry.key).ok();
    sum += file.get<float>(entry.key).ok();
  }
  for (const GgufTensor& tensor : file.tensors()) {
    add(tensor.name);
    add(tensor.shape());
    add(as_text(tensor.bytes));
  }
  return sum;
}

/// Adds the file to a small model as an adapter, and removes it. False: it was refused.
inline bool exercise_adapter(const GgufFile& file) {
  static const std::vector<std::byte> bytes = [] {
    GgufWriter writer;
    writer.set_string("general.architecture", "llama");
    set_llama_metadata(&writer);
    add_llama_tensors(&writer, 16);
    return writer.bytes();
  }();
  static const std::unique_ptr<Model> model = [] {
    auto loaded =
        load_model(GgufFile::parse(bytes, "tiny").value(), kernels::reference_ops(), nullptr);
    std::unique_ptr<Model> out = std::move(loaded).value();
    (void)out->reserve(8, 1);
    return out;
  }();
  const auto adapter = model->add_adapter(file);
  if (adapter.ok()) model->remove_adapter(*adapter);
  return adapter.ok();
}

/// True if there is a file.
inline bool exercise(const Result<GgufFile>& file, std::string_view text) {
  if (!file.ok()) return false;
  read_everything(file.value());
  if (const auto tokenizer = load_tokenizer(file.value())) {
    StreamingDetokenizer detokenizer(*tokenizer.value(), true);
    for (const bool special : {false, true}) {
      const auto ids = tokenizer.value()->encode(text, {.add_bos = true, .parse_special = special});
      for (const int32_t id : ids) detokenizer.push(id);
    }
    detokenizer.finish();
  }
  (void)check_heads(file.value(), kernels::reference_ops());
  exercise_adapter(file.value());
  if (const auto model = load_model(file.value(), kernels::reference_ops(), nullptr)) {
    model.value()->activation_bytes(8, 1);
  }
  return true;
}
inline bool exercise(std::span<const std::byte> bytes, std::string_view text) {
  return exercise(GgufFile::parse(bytes, "hostile"), text);
}

}  // namespace hearth::models
