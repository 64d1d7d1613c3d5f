#include "models/weights/rope_frequencies.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"

namespace hearth::models {
namespace {

Result<RopeConfig> load(const GgufWriter& w, int32_t head_dim = 64) {
  const auto bytes = w.bytes();
  const auto file = GgufFile::parse(bytes, "rope");
  REQUIRE(file.ok());
  return RopeConfig::load(file.value(), "llama", head_dim);
}

void check_refused(const GgufWriter& w, ErrorCode code, const std::string& message) {
  const auto config = load(w);
  REQUIRE_FALSE(config.ok());
  CHECK(config.error().code == code);
  CHECK(config.error().message == message);
}

TEST_CASE("without metadata: base 10000 over the whole head, no scaling") {
  const auto config = load(GgufWriter());
  REQUIRE(config.ok());
  CHECK(config.value().dim == 64);
  const auto f = rope_frequencies(config.value(), {});
  REQUIRE(f.size() == 32);
  CHECK(f[0] == 1.0f);
  CHECK(f[16] == doctest::Approx(0.01).epsilon(1e-6));
  CHECK(rope_magnitude(config.value()) == 1.0f);
}

TEST_CASE("linear scaling divides every frequency, by any spelling of it") {
  const auto check_by_four = [](const GgufWriter& w) {
    const auto config = load(w);
    REQUIRE(config.ok());
    const auto f = rope_frequencies(config.value(), {});
    CHECK(f[0] == 0.25f);
    CHECK(f[16] == doctest::Approx(0.0025).epsilon(1e-6));
  };
  GgufWriter typed, untyped, old;
  typed.set_string("llama.rope.scaling.type", "linear");
  typed.set_f32("llama.rope.scaling.factor", 4);
  untyped.set_f32("llama.rope.scaling.factor", 4);
  old.set_f32("llama.rope.scale_linear", 4);
  for (const GgufWriter* w : {&typed, &untyped, &old}) check_by_four(*w);

  GgufWriter none;
  none.set_string("llama.rope.scaling.type", "none");
  none.set_f32("llama.rope.scaling.factor", 4);
  CHECK(rope_frequencies(load(none).value(), {})[0] == 1.0f);
}

TEST_CASE("stored divisors stretch frequencies pair by pair") {
  RopeConfig config;
  config.dim = 4;
  const std::vector<float> divisors = {1.0f, 8.0f};
  const auto f = rope_frequencies(config, divisors);
  CHECK(f[0] == 1.0f);
  CHECK(f[1] == doctest::Approx(0.01 / 8).epsilon(1e-6));
}

TEST_CASE("YaRN keeps fast pairs, scales slow ones, and mixes between") {
  GgufWriter w;
  w.set_string("llama.rope.scaling.type", "yarn");
  w.set_f32("llama.rope.scaling.factor", 16);
  w.set_u32("llama.rope.scaling.original_context_length", 4096);
  const auto config = load(w, 128);
  REQUIRE(config.ok());
  const auto f = rope_frequencies(config.value(), {});
  RopeConfig plain;
  plain.dim = 128;
  const auto unscaled = rope_frequencies(plain, {});
  REQUIRE(f.size() == 64);
  // Limits from equation 17: 32 turns at pair 20.9, one turn at pair 45.03; so 20 and 46.
  for (size_t i = 0; i <= 20; ++i) CHECK(f[i] == unscaled[i]);
  for (size_t i = 46; i < 64; ++i) {
    CHECK(f[i] == doctest::Approx(static_cast<double>(unscaled[i]) / 16).epsilon(1e-6));
  }
  // Half way: half kept, half scaled.
  CHECK(f[33] ==
        doctest::Approx(static_cast<double>(unscaled[33]) * (0.5 + 0.5 / 16)).epsilon(1e-6));
  CHECK(rope_magnitude(config.value()) == doctest::Approx(1 + 0.1 * std::log(16.0)));
}

TEST_CASE("YaRN without a rounded range blends by fractions of a pair") {
  RopeConfig config;
  config.dim = 64;
  config.base = 150000;
  config.scaling = RopeConfig::Scaling::kYarn;
  config.factor = 32;
  config.original_context = 4096;
  config.rounded_range = false;
  const auto f = rope_frequencies(config, {});
  // 32 turns at pair 8.0928, one turn at pair 17.3980.
  CHECK(f[8] == doctest::Approx(0.0508132748).epsilon(1e-6));
  CHECK(f[13] == doctest::Approx(0.00386035932).epsilon(1e-6));
  CHECK(f[18] == doctest::Approx(3.83088124e-05).epsilon(1e-6));
}

TEST_CASE("impossible settings are errors that name the key") {
  const auto with = [](const char* key, auto value) {
    GgufWriter w;
    if constexpr (std::is_same_v<decltype(value), float>) {
      w.set_f32(key, value);
    } else if constexpr (std::is_same_v<decltype(value), const char*>) {
      w.set_string(key, value);
    } else {
      w.set_u32(key, static_cast<uint32_t>(value));
    }
    return w;
  };
  for (const int dim : {0, 1, 3, 66}) {
    check_refused(with("llama.rope.dimension_count", dim), ErrorCode::kCorrupt,
                  "llama.rope.dimension_count: " + std::to_string(dim) +
                      ", want an even number from 2 to the head size 64");
  }
  check_refused(with("llama.rope.freq_base", 1.0f), ErrorCode::kCorrupt,
                "llama.rope.freq_base: 1, want more than 1");
  check_refused(with("llama.rope.scaling.factor", -2.0f), ErrorCode::kCorrupt,
                "llama.rope.scaling.factor: -2, want 1 to 1e6");
  check_refused(with("llama.rope.scaling.factor", INFINITY), ErrorCode::kCorrupt,
                "llama.rope.scaling.factor: inf, want a finite number");
  check_refused(with("llama.rope.scaling.type", "dynamic"), ErrorCode::kUnsupported,
                "llama.rope.scaling.type: \"dynamic\", this build knows none, linear, yarn, "
                "longrope");
  check_refused(with("llama.rope.scaling.attn_factor", 0.0f), ErrorCode::kCorrupt,
                "llama.rope.scaling.attn_factor: 0, want more than 0 and at most 1e6");
  check_refused(with("llama.rope.scaling.type", "yarn"), ErrorCode::kCorrupt,
                "llama.rope.scaling.original_context_length: missing");
}

}  // namespace
}  // namespace hearth::models
