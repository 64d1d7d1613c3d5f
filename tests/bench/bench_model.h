#pragma once
// A model for a benchmark, from its file.

#include <filesystem>
#include <memory>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/ops.h"
#include "models/gguf/gguf_file.h"
#include "models/model.h"

namespace hearth::bench {

/// The model, whose file may go afterwards. A file that does not load stops the program.
inline std::unique_ptr<models::Model> bench_model(const std::filesystem::path& file,
                                                  const kernels::OpTable& ops) {
  auto parsed = models::GgufFile::open(file);
  HEARTH_CHECK(parsed.ok(), "{}", parsed.error().message);
  parsed->set_fingerprint("bench");
  auto model = models::load_model(*parsed, ops, {});
  HEARTH_CHECK(model.ok(), "{}", model.error().message);
  return std::move(model).value();
}

}  // namespace hearth::bench
