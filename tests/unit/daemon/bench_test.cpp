// What bench computes with: bytes and operations of a step, shares, memory, the cases of a run.

#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "daemon/worker/tools/bench/bench_case.h"
#include "daemon/worker/tools/bench/bench_model.h"
#include "daemon/worker/tools/bench/bench_rig.h"
#include "kernels/ops.h"
#include "models/gguf/gguf_writer.h"
#include "tests/temp_dir.h"

namespace hearth::worker {
namespace {

BenchModel tiny(bool tied) {
  models::ModelShape shape = models::find_shape("tiny").value();
  shape.tied = tied;
  auto random = models::RandomModel::create(shape, kernels::DType::kQ8_0, 1);
  REQUIRE(random.ok());
  auto model = BenchModel::make(std::move(random).value());
  REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
  return std::move(model).value();
}

// Of the shape tiny, per layer: q, k, v, out, gate, up, down.
constexpr double kLayerParameters = 256.0 * 256 + 2 * 256.0 * 128 + 256.0 * 256 + 3 * 256.0 * 512;
constexpr double kHeadParameters = 512.0 * 256;
constexpr double kBytesPerParameter = 34.0 / 32;  // Q8_0
constexpr double kNormBytes = 4.0 * 256 * 5;

TEST_CASE("a token's work: the weights once, its KV, two operations per parameter") {
  for (const bool tied : {true, false}) {
    CAPTURE(tied);
    const ModelWork work = tiny(tied).work();
    CHECK(work.quantized);
    CHECK(work.body_bytes == 2 * kLayerParameters * kBytesPerParameter + kNormBytes);
    CHECK(work.head_bytes == kHeadParameters * kBytesPerParameter);
    CHECK(work.body_ops == 2 * 2 * kLayerParameters);
    CHECK(work.head_ops == 2 * kHeadParameters);
    const StepWork one = step_work(work, kernels::DType::kF16, 1, 1, 1, 100);
    CHECK(one.bytes == work.body_bytes + work.head_bytes + 100 * 2 * 2 * 2 * 128);
    CHECK(one.matmul_ops == work.body_ops + work.head_ops);
    CHECK(one.attention_ops == 100.0 * 4 * 4 * 64 * 2);
    const StepWork many = step_work(work, kernels::DType::kF16, 16, 16, 16, 100);
    CHECK(many.bytes == work.body_bytes + work.head_bytes + 16 * 100 * 2 * 2 * 2 * 128);
    CHECK(many.matmul_ops == 16 * one.matmul_ops);
  }
}

TEST_CASE("a file whose weights are not finite is refused") {
  const tests::TempDir temp;
  const auto file = temp.path() / "bad.gguf";
  const uint64_t dims[] = {32};
  std::vector<float> values(32, 0.5f);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  models::GgufWriter writer;
  writer.add_floats("a.weight", dims, kernels::DType::kF32, values);
  REQUIRE(writer.write(file).ok());
  const auto met = BenchModel::open(file);
  REQUIRE_FALSE(met.ok());
  CHECK(met.error().message.find("a.weight [32]: value 3 of 32 is nan") != std::string::npos);
}

TEST_CASE("a sliding group is read as far as its window") {
  ModelWork work;
  work.num_heads = 2;
  models::LayerGroup group;
  group.kind = models::LayerGroup::Kind::kSliding;
  group.window = 64;
  group.num_layers = 1;
  group.kv = kernels::KvShape::even(1, 32);
  work.groups = {group};
  CHECK(step_work(work, kernels::DType::kF16, 1, 1, 1, 1000).bytes == 64 * 2 * 2 * 32);
  CHECK(step_work(work, kernels::DType::kF16, 1, 1, 1, 10).bytes == 10 * 2 * 2 * 32);
}

TEST_CASE("experts: a token reads those it uses, many tokens at most all of them") {
  ModelWork work;
  work.expert_bytes = 800;
  work.experts_used = 0.25;
  CHECK(step_work(work, kernels::DType::kF16, 1, 1, 1, 0).bytes == 200);
  // Two tokens choose some of the same experts.
  CHECK(step_work(work, kernels::DType::kF16, 2, 1, 1, 0).bytes == 800 * (1 - 0.75 * 0.75));
  CHECK(step_work(work, kernels::DType::kF16, 1000, 1, 1, 0).bytes == doctest::Approx(800));
}

TEST_CASE("the least time is the longer of reading and computing") {
  const kernels::Ceilings ceilings{
      .read_bytes_per_s = 10, .f32_ops_per_s = 5, .int8_ops_per_s = 20};
  const StepWork work{.bytes = 100, .matmul_ops = 40, .attention_ops = 10};
  Bound bound = least_time(work, true, ceilings);
  CHECK(bound.seconds == 10);
  CHECK(std::string(bound.by) == "read");
  bound = least_time({.bytes = 1, .matmul_ops = 40, .attention_ops = 10}, true, ceilings);
  CHECK(bound.seconds == 4);  // 40 / 20 + 10 / 5
  CHECK(std::string(bound.by) == "int8");
  bound = least_time({.bytes = 1, .matmul_ops = 40, .attention_ops = 10}, false, ceilings);
  CHECK(bound.seconds == 10);
  CHECK(std::string(bound.by) == "f32");
  // Tensor cores compute what is not quantized, and attention.
  kernels::Ceilings gpu = ceilings;
  gpu.half_ops_per_s = 10;
  bound = least_time({.bytes = 1, .matmul_ops = 40, .attention_ops = 10}, false, gpu);
  CHECK(bound.seconds == 5);
  CHECK(std::string(bound.by) == "f16");
  bound = least_time({.bytes = 1, .matmul_ops = 40, .attention_ops = 10}, true, gpu);
  CHECK(bound.seconds == 3);
  CHECK(std::string(bound.by) == "int8");
}

TEST_CASE("cases beyond the model's context are left out") {
  CHECK(bench_cases(true, false, 8192).size() == 6);
  CHECK(bench_cases(false, false, 8192).size() == 9);
  CHECK(bench_cases(false, false, 4128).size() == 7);
  CHECK(bench_cases(true, false, 400).size() ==
        4);  // one, four and eight sequences; a short prompt
  CHECK(bench_cases(true, false, 32).empty());
  CHECK(bench_cases(true, false, 8192, 6000).back().name() == "decode at 6000");
  CHECK(bench_cases(true, false, 8192, 9000).size() == 6);
  CHECK(bench_cases(true, true, 8192).size() == 8);
  CHECK(bench_cases(true, true, 8192).back().name() == "prefill 4096");
}

TEST_CASE("too little memory is refused with the sizes") {
  CHECK(check_memory(100, 20, 3, 123).ok());
  const auto refused = check_memory(uint64_t{3} << 30, 1024, 0, uint64_t{1} << 30);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kOutOfMemory);
  CHECK(refused.error().message.find("weights 3.0 GiB") != std::string::npos);
  CHECK(refused.error().message.find("1.0 GiB free") != std::string::npos);
}

TEST_CASE("a report shows medians and shares") {
  BenchReport report;
  report.model = "m\x1b";
  report.type = "Q8_0";
  report.numerics = "bits/1";
  report.rounds = 3;
  report.ceilings = {.read_bytes_per_s = 100, .f32_ops_per_s = 100, .int8_ops_per_s = 1000};
  report.work.body_bytes = 50;
  report.work.body_ops = 100;
  report.work.quantized = true;
  report.cases.push_back({{BenchCase::Kind::kDecode, 1, 32, 32}, {9, 1, 2}});
  report.cases.push_back({{BenchCase::Kind::kPrefill, 1, 128, 1}, {25.6, 12.8, 64}});
  report.cases[0].gaps_us = {3, 1, 2};
  CHECK(report.cases[0].median_seconds() == 2);
  CHECK(report.cases[0].tokens_per_s() == 0.5);
  CHECK(report.cases[1].tokens_per_s() == 5);
  CHECK(share_of(report, report.cases[0]).of_ceiling == 0.25);  // 50 / 100 s of 2 s
  CHECK(share_of(report, report.cases[1]).of_ceiling == 0.5);   // 12 800 / 1000 s of 25.6 s
  const auto json = nlohmann::json::parse(as_json(report));
  CHECK(json["cases"][1]["share"] == 0.5);
  CHECK(json["cases"][1]["bound"] == "int8");
  const std::string text = as_text(report);
  CHECK(json["cases"][0]["idle_us_p50"] == 2);
  CHECK_FALSE(json["cases"][1].contains("idle_us_p50"));
  CHECK(text.find("decode: idle between two steps 2.0 us (p50), 3.0 us (p95), 3 gaps") !=
        std::string::npos);
  CHECK(json["numerics"] == "bits/1");
  CHECK(text.find("numerics bits/1") != std::string::npos);
  CHECK(text.find("25 % of read") != std::string::npos);
  CHECK(text.find("50 % of int8") != std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);
}

TEST_CASE("random weights are generated while they are packed, and run") {
  const BenchModel source = tiny(true);
  auto ops = kernels::cpu_ops({.num_threads = 2, .variant = ""});
  REQUIRE(ops.ok());
  auto model = source.load(*ops, nullptr);
  REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
  CHECK(model.value()->info().weight_bytes > 0);
  const std::vector<BenchCase> cases = {{BenchCase::Kind::kDecode, 2, 4, 4},
                                        {BenchCase::Kind::kPrefill, 1, 20, 1}};
  const auto config = bench_config(cases, source.measured().info(), kernels::DType::kF16);
  auto rig = BenchRig::create(config, *ops, std::move(model).value());
  REQUIRE_MESSAGE(rig.ok(), (rig.ok() ? "" : rig.error().message));
  for (const BenchCase& each : cases) {
    const auto seconds = rig.value()->measure(each);
    REQUIRE(seconds.ok());
    CHECK(seconds.value() > 0);
  }
}

}  // namespace
}  // namespace hearth::worker
