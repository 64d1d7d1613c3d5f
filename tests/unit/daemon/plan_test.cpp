// A plan compared with the engine's allocations, and with figures computed by hand.

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "daemon/worker/tools/bench/bench_model.h"
#include "daemon/worker/tools/plan/quantity.h"
#include "daemon/worker/tools/plan/serving_plan.h"
#include "engine/engine.h"
#include "kernels/base/clock.h"
#include "kernels/ops/elastic_memory.h"
#include "tests/golden/family_model.h"
#include "tests/paths.h"
#include "tests/temp_dir.h"

namespace hearth::worker {
namespace {

BenchModel shaped(const char* name, kernels::DType type) {
  auto random = models::RandomModel::create(models::find_shape(name).value(), type, 1);
  REQUIRE(random.ok());
  auto model = BenchModel::make(std::move(random).value());
  REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
  return std::move(model).value();
}

BenchModel bundled() {
  auto model = BenchModel::open(hearth::tests::source_path("models/demo/tales.gguf"));
  REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
  return std::move(model).value();
}

// An op table's functions have no state for a count.
uint64_t g_allocated = 0;
decltype(kernels::OpTable::allocate) g_allocate = nullptr;
kernels::ElasticMemory g_elastic, g_counting;

kernels::OpTable counting_ops() {
  kernels::OpTable ops = kernels::cpu_ops({.num_threads = 1, .variant = ""}).value();
  g_allocate = ops.allocate;
  g_allocated = 0;
  ops.allocate = [](void* state, size_t bytes) {
    g_allocated += bytes;
    return g_allocate(state, bytes);
  };
  g_elastic = g_counting = *ops.elastic;
  g_counting.reserve = [](void* state, size_t bytes) {
    g_allocated += bytes;
    return g_elastic.reserve(state, bytes);
  };
  ops.elastic = &g_counting;
  return ops;
}

void check_against_engine(const BenchModel& source, const engine::EngineConfig& config) {
  kernels::OpTable ops = counting_ops();
  ops.device.memory_free_bytes = 1u << 26;  // pools that are quick to clear
  PlanQuestion question;
  question.engine = config;
  question.memory_bytes = ops.device.memory_free_bytes;
  question.context = 64;
  const PlanModel planned{&source.measured(), &source.work()};
  const auto plan = make_plan(planned, nullptr, question);
  REQUIRE_MESSAGE(plan.ok(), (plan.ok() ? "" : plan.error().message));
  REQUIRE(plan->refusal == "");

  auto model = source.load(ops, nullptr);
  REQUIRE(model.ok());
  CHECK(plan->weight_bytes == model.value()->info().weight_bytes);
  CHECK(g_allocated == 0);
  const SteadyClock clock;
  const auto engine = engine::Engine::create(config, ops, std::move(model).value(), clock);
  REQUIRE_MESSAGE(engine.ok(), (engine.ok() ? "" : engine.error().message));
  CHECK(plan->memory.total_bytes() == g_allocated);
  CHECK(plan->memory.kv_bytes == engine.value()->kv_bytes());
}

TEST_CASE("the engine allocates and reserves what was planned, to the byte") {
  using enum kernels::DType;
  struct Setting {
    kernels::KvTypes kv_type;
    int32_t seqs, step_tokens, context;
    uint64_t kv_bytes;
    std::array<kernels::DType, 2> weights;
  };
  const Setting settings[] = {
      {kF16, 64, 512, 0, 0, {kQ8_0, kQ4_K}},
      {kF32, 5, 100, 300, 0, {kF32, kQ6_K}},
      {kQ8_0, 1, 512, 0, 5'000'000, {kBF16, kQ4_0}},
      {kernels::KvType::kFp8, 3, 64, 200, 0, {kQ8_0, kF32}},
      {kQ4_0, 4, 512, 0, 4'000'000, {kQ8_0, kF16}},
      {{kernels::KvType::kQ8_0, kernels::KvType::kQ4_0}, 2, 100, 0, 0, {kQ8_0, kF16}}};
  for (const Setting& each : settings) {
    CAPTURE(each.seqs);
    engine::EngineConfig config;
    config.kv_type = each.kv_type;
    config.scheduler.max_seqs = each.seqs;
    config.scheduler.max_step_tokens = each.step_tokens;
    config.context_length = each.context;
    config.kv_bytes = each.kv_bytes;
    check_against_engine(bundled(), config);
    for (const kernels::DType type : each.weights) {
      CAPTURE(kernels::info(type).name);
      check_against_engine(shaped("tiny", type), config);
    }
  }
}

TEST_CASE("layers that share KV take none: planned, allocated and loaded to the byte") {
  struct Case {
    const char* name;
    int32_t sharing;
  };
  for (const Case& each : {Case{"gemma3n", 2}, Case{"gemma4", 3}}) {
    CAPTURE(std::string(each.name));
    const tests::TempDir dir;
    const auto path = dir.path() / "shared.gguf";
    std::ofstream out(path, std::ios::binary);
    const auto bytes = golden::read_family(each.name).file_bytes(kernels::DType::kF32);
    out.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    out.close();
    const auto source = BenchModel::open(path);
    REQUIRE_MESSAGE(source.ok(), (source.ok() ? "" : source.error().message));
    const models::ModelInfo& info = source->measured().info();
    int32_t storing = 0;
    int32_t sharing = 0;
    for (const models::LayerGroup& group : info.groups) {
      storing += group.num_layers;
      sharing += group.num_sharing;
    }
    CHECK(sharing == each.sharing);
    CHECK(storing == info.num_layers - each.sharing);
    engine::EngineConfig config;
    config.kv_type = kernels::DType::kF16;
    config.scheduler.max_seqs = 3;
    config.scheduler.max_step_tokens = 64;
    check_against_engine(*source, config);
  }
}

TEST_CASE("states take what was planned, to the byte") {
  int families = 0;
  for (const std::string& name : golden::family_names()) {
    CAPTURE(name);
    const tests::TempDir dir;
    const auto path = dir.path() / "states.gguf";
    std::ofstream out(path, std::ios::binary);
    const auto bytes = golden::read_family(name).file_bytes(kernels::DType::kF32);
    out.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    out.close();
    const auto source = BenchModel::open(path);
    REQUIRE_MESSAGE(source.ok(), (source.ok() ? "" : source.error().message));
    const models::LayerGroup& last = source->measured().info().groups.back();
    if (last.kind != models::LayerGroup::Kind::kRecurrent) continue;
    ++families;
    engine::EngineConfig config;
    config.scheduler.max_seqs = 3;
    config.scheduler.max_step_tokens = 64;
    check_against_engine(*source, config);
  }
  CHECK(families >= 17);
}

ServingPlan plan_13b(double bandwidth, double ops) {
  const BenchModel source = shaped("13B", kernels::DType::kBF16);
  CHECK(source.measured().info().num_parameters == 13'015'864'320);
  PlanQuestion question;
  question.memory_bytes = 80'000'000'000;
  question.context = 1024;
  question.ceilings = {.read_bytes_per_s = bandwidth, .f32_ops_per_s = ops, .int8_ops_per_s = 0};
  const auto plan = make_plan({&source.measured(), &source.work()}, nullptr, question);
  REQUIRE(plan.ok());
  return plan.value();
}

double rounded(double value, double unit) { return std::round(value / unit) * unit; }

TEST_CASE("Llama 2 13B in bf16, 1024 tokens, 3.35 TB/s") {
  const ServingPlan plan = plan_13b(3.35e12, 0);
  const DecodeForecast& one = plan.decode.at(0);
  const DecodeForecast& many = plan.decode.at(6);
  const DecodeForecast& most = plan.decode.at(8);
  CHECK(one.sequences == 1);
  CHECK(rounded(one.step.seconds * 1e3, 0.01) == doctest::Approx(8.02));
  CHECK(many.sequences == 64);
  CHECK(rounded(many.step.bytes / 1e9, 0.1) == doctest::Approx(79.7));
  CHECK(std::round(many.step.rate()) == 2689);
  CHECK(many.step.bound == "read");
  CHECK(most.sequences == 256);
  CHECK(rounded(most.step.bytes / 1e9, 0.1) == doctest::Approx(240.8));
  CHECK_FALSE(most.fits);
  // 40 layers, K and V of 5120 values of two bytes.
  CHECK(plan.contexts.at(0).sequence_bytes == 1024ull * 40 * 2 * 5120 * 2);
  // Norms are F32 and there are 64 frequencies; all else is two bytes a parameter.
  CHECK(plan.weight_bytes == 13'015'864'320ull * 2 + 81 * 5120 * 2 + 64 * 4);
  CHECK(plan.ridge == 0);
}

TEST_CASE("the ridge separates the cases bound by reading from those bound by computing") {
  const ServingPlan plan = plan_13b(1e12, 16e12);
  CHECK(plan.ridge == 16);
  bool computing = false;
  for (const DecodeForecast& each : plan.decode) {
    CHECK(each.step.bound == (each.step.intensity() < plan.ridge ? "read" : "f32"));
    CHECK(each.with_q8_kv.bytes < each.step.bytes);
    computing = computing || each.step.bound == "f32";
  }
  CHECK(computing);
  CHECK(plan.decode[0].step.bound == "read");
  CHECK(plan.prefill.bound == "f32");
  CHECK(plan.prefill.ops > 1024 * 2.0 * 12'600'000'000);
  CHECK(plan.prefill.seconds == doctest::Approx(plan.prefill.ops / 16e12));
}

TEST_CASE("drafts: tokens per step by the chance of a right one, with the draft's time added") {
  const BenchModel target = shaped("S", kernels::DType::kQ8_0), draft = bundled();
  const PlanModel small{&draft.measured(), &draft.work()};
  PlanQuestion question;
  question.memory_bytes = 4'000'000'000;
  question.ceilings = {.read_bytes_per_s = 1e9, .f32_ops_per_s = 0, .int8_ops_per_s = 0};
  question.draft_width = 3;
  question.acceptance = 0.5;
  const PlanModel planned{&target.measured(), &target.work()};
  const auto plan = make_plan(planned, &small, question);
  REQUIRE(plan.ok());
  CHECK(plan->drafts.tokens_per_step == 1.875);
  REQUIRE(plan->drafts.draft.has_value());
  const double one = static_cast<double>(draft.measured().info().weight_bytes) + 1024.0 * 2048;
  CHECK(plan->drafts.draft->seconds ==
        doctest::Approx(plan->drafts.lookup.seconds + 3 * one / 1e9));
  CHECK(plan->draft_weight_bytes == draft.measured().info().weight_bytes);
  question.acceptance = 1;
  CHECK(make_plan(planned, nullptr, question)->drafts.tokens_per_step == 4);
}

TEST_CASE("too little memory is reported, an invalid setting refused") {
  const BenchModel source = shaped("tiny", kernels::DType::kQ8_0);
  const PlanModel planned{&source.measured(), &source.work()};
  PlanQuestion question;
  question.memory_bytes = 1000;
  question.context = 64;
  const auto plan = make_plan(planned, nullptr, question);
  REQUIRE(plan.ok());
  CHECK_FALSE(plan->fits);
  CHECK(plan->refusal.find("KV blocks") != std::string::npos);
  CHECK(plan->contexts.back().sequences == 0);
  const auto report = nlohmann::json::parse(as_json(*plan, {"tiny", "none"}, planned, question));
  CHECK(report["memory"]["fits"] == false);
  CHECK(report["decode"][0].contains("seconds") == false);  // no rate is known
  CHECK(as_text(*plan, {"tiny", "none"}, planned, question).find("?") != std::string::npos);
  question.engine.block_size = 7;
  CHECK(make_plan(planned, nullptr, question).error().field == "block_size");
}

TEST_CASE("quantities") {
  CHECK(parse_quantity("x", "80GB").value() == 80e9);
  CHECK(parse_quantity("x", "16 GiB").value() == 16.0 * (1u << 30));
  CHECK(parse_quantity("x", "3.35TB/s").value() == doctest::Approx(3.35e12));
  CHECK(parse_quantity("x", "989T").value() == 989e12);
  CHECK(parse_quantity("x", "2k").value() == 2000);
  CHECK(parse_quantity("x", "123").value() == 123);
  for (const char* text : {"", "GB", "-1GB", "0", "1XB", "nan", "inf", "1e300", "1GBs", "1 2"}) {
    CAPTURE(text);
    const auto parsed = parse_quantity("memory", text);
    REQUIRE_FALSE(parsed.ok());
    CHECK(parsed.error().field == "memory");
  }
}

TEST_CASE("a plan shows what stays in the file and what the disk allows") {
  const BenchModel tales = bundled();
  const PlanModel model{&tales.measured(), &tales.work()};
  const uint64_t all = model.model->info().weight_bytes;
  PlanQuestion question;
  question.memory_bytes = 1 << 30;
  CHECK_FALSE(make_plan(model, nullptr, question)->file.has_value());
  question.most_weight_bytes = all / 4;
  const auto unknown = make_plan(model, nullptr, question);
  REQUIRE(unknown.ok());
  CHECK(unknown->weight_bytes == all / 4);
  REQUIRE(unknown->file.has_value());
  CHECK(unknown->file->bytes == all - all / 4);
  CHECK(unknown->file->least_step_seconds == 0);
  const PlanTitle title{"tales", "here"};
  CHECK(as_text(*unknown, title, model, question).find("how fast the disk is, is unknown") !=
        std::string::npos);

  question.disk_bytes_per_s = 1e6;
  const auto known = make_plan(model, nullptr, question);
  REQUIRE(known.ok());
  // A dense model: a step reads all of it.
  CHECK(known->file->step_bytes == doctest::Approx(static_cast<double>(all - all / 4)));
  CHECK(known->file->least_step_seconds == doctest::Approx((all - all / 4) / 1e6));
  CHECK(as_text(*known, title, model, question).find("GB/s of the disk at most") !=
        std::string::npos);
  const auto json = nlohmann::json::parse(as_json(*known, title, model, question));
  CHECK(json["memory"]["in_file"]["bytes"] == all - all / 4);
  CHECK(json["memory"]["in_file"]["steps_per_s"].get<double>() > 0);
}

}  // namespace
}  // namespace hearth::worker
