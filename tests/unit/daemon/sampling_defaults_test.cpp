// Default sampling: the file's own values, else the configuration's, else hearth's.

#include "daemon/worker/load/sampling_defaults.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "models/gguf/gguf_writer.h"
#include "tests/unit/models/parsed_file.h"

namespace hearth::worker {
namespace {

TEST_CASE("a file's own sampling overrides the configuration's, which overrides hearth's") {
  models::GgufWriter w;
  w.set_f32("general.sampling.temp", 0.25f);
  w.set_u32("general.sampling.top_k", 64);
  w.set_f32("general.sampling.penalty_repeat", 1.125f);
  const models::ParsedFile parsed(w);
  const ipc::SamplingSettings configured{.temperature = 1.5f, .top_p = 0.5f, .min_p = 0.125f};
  const ipc::SamplingDefaults met = sampling_defaults(parsed.file, configured);
  CHECK(met.temperature == 0.25f);
  CHECK(met.top_k == 64);
  CHECK(met.top_p == 0.5f);
  CHECK(met.min_p == 0.125f);
  CHECK(met.repetition_penalty == 1.125f);
  CHECK(met.penalty_window == 256);
  const models::ParsedFile plain{models::GgufWriter()};
  const ipc::SamplingDefaults own = sampling_defaults(plain.file, {});
  CHECK(own == ipc::SamplingDefaults());
  CHECK(own.temperature == 0.8f);
  CHECK(own.top_p == 0.95f);
  CHECK(own.top_k == 40);
  // A model that denoises has its own, which both go before.
  const models::CanvasModel canvas{.mask_token = 7, .temperature = 0.25f, .top_p = 0.75f};
  const ipc::SamplingDefaults denoising = sampling_defaults(plain.file, {}, canvas);
  CHECK(denoising.temperature == 0.25f);
  CHECK(denoising.top_p == 0.75f);
  CHECK(denoising.top_k == 0);
  CHECK(sampling_defaults(plain.file, configured, canvas).temperature == 1.5f);
  CHECK(sampling_defaults(parsed.file, configured, canvas).top_k == 64);
}

TEST_CASE("a file's value outside the range of a request is ignored") {
  models::GgufWriter w;
  w.set_f32("general.sampling.temp", -1);
  w.set_f32("general.sampling.top_p", std::numeric_limits<float>::quiet_NaN());
  w.set_string("general.sampling.min_p", "0.1");
  w.set_f32("general.sampling.top_k", 4.5f);
  const models::ParsedFile parsed(w);
  CHECK(sampling_of_file(parsed.file) == ipc::SamplingSettings());
}

TEST_CASE("a sampling setting has the range of a request's field") {
  ipc::SamplingSettings settings;
  CHECK(ipc::set_sampling("penalty_window", -1, &settings));
  CHECK(settings.penalty_window == -1);
  const ipc::SamplingSettings before = settings;
  CHECK_FALSE(ipc::set_sampling("temperature", 11, &settings));
  CHECK_FALSE(ipc::set_sampling("temperature", std::nan(""), &settings));
  CHECK_FALSE(ipc::set_sampling("top_k", 1.5, &settings));
  CHECK_FALSE(ipc::set_sampling("max_tokens", 1, &settings));
  CHECK_FALSE(ipc::set_sampling("heat", 1, &settings));
  CHECK(settings == before);
}

}  // namespace
}  // namespace hearth::worker
