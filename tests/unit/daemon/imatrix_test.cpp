// What a model's matrices receive over a text: recorded without changing what is computed.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "daemon/worker/tools/imatrix/record_text.h"
#include "daemon/worker/tools/imatrix/recording_ops.h"
#include "models/gguf/gguf_file.h"
#include "models/quantize/quantize_file.h"
#include "models/random_model.h"
#include "tests/paths.h"
#include "tests/temp_dir.h"

namespace hearth::worker {
namespace {

std::unique_ptr<LogitsRunner> runner(const models::GgufFile& file, const kernels::OpTable& ops) {
  auto model = models::load_model(file, ops, nullptr);
  REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
  auto out = LogitsRunner::create(std::move(model).value(), ops, kernels::DType::kF16, 256);
  REQUIRE(out.ok());
  return std::move(out).value();
}

std::map<std::string, models::InputSums> by_name(const InputRecorder& recorder) {
  std::map<std::string, models::InputSums> out;
  for (models::InputSums& sums : recorder.sums()) out[sums.name] = std::move(sums);
  return out;
}

kernels::OpTable cpu() { return kernels::cpu_ops({.num_threads = 2, .variant = ""}).value(); }

TEST_CASE("the inputs after a norm have its weight's size, and joined matrices the same") {
  const models::GgufFile file =
      models::GgufFile::open(hearth::tests::source_path("models/demo/tales.gguf")).value();
  const auto tokenizer = models::load_tokenizer(file).value();
  InputRecorder recorder;
  const auto model = runner(file, recorder.record(cpu()));
  std::string text;
  for (int i = 0; i < 20; ++i) text += "Once upon a time there was a poor woodcutter. ";
  const auto source = record_text(*model, *tokenizer, text, {.context = 64}, nullptr);
  REQUIRE(source.ok());
  CHECK(source->window_tokens == 64);
  const auto ids = tokenizer->encode(text, {.add_bos = false, .parse_special = false});
  const auto bos = std::ssize(tokenizer->encode("", {}));
  const int64_t windows = (std::ssize(ids) + 64 - bos - 1) / (64 - bos);
  CHECK(source->num_windows == windows);

  const auto sums = by_name(recorder);
  const models::InputSums& q = sums.at("blk.0.attn_q.weight");
  CHECK(q.counts == std::vector<int64_t>{std::ssize(ids) + windows * bos});
  CHECK(sums.at("blk.0.attn_k.weight").squares == q.squares);
  CHECK(sums.at("blk.0.ffn_gate.weight").squares == sums.at("blk.0.ffn_up.weight").squares);
  CHECK(sums.at("blk.0.ffn_gate.weight").squares != q.squares);
  CHECK(sums.contains("token_embd.weight"));  // the output head
  const models::GgufTensor* norm = file.find_tensor("blk.0.attn_norm.weight");
  double per_row = 0;
  for (int64_t i = 0; i < q.cols; ++i) {
    float weight;
    std::memcpy(&weight, norm->bytes.data() + i * 4, 4);
    per_row += q.squares[i] / (double{weight} * weight) / static_cast<double>(q.counts[0]);
  }
  CHECK(per_row == doctest::Approx(static_cast<double>(q.cols)).epsilon(1e-3));
}

TEST_CASE("recording changes no bit, and covers what quantizing writes in every kind of layer") {
  for (const char* shape :
       {"tiny", "gpt-oss-tiny", "deepseek-tiny", "qwen3.5-tiny", "rwkv7-tiny"}) {
    CAPTURE(shape);
    const tests::TempDir dir;
    const auto random =
        models::RandomModel::create(models::find_shape(shape).value(), kernels::DType::kF16, 1);
    REQUIRE(random.ok());
    REQUIRE(models::write_random_model(*random, dir.path() / "in.gguf", 2, nullptr).ok());
    const models::GgufFile file = models::GgufFile::open(dir.path() / "in.gguf").value();
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 100; ++i) tokens.push_back(i * 37 % 500);
    const auto plain = runner(file, cpu());
    InputRecorder recorder;
    const auto recorded = runner(file, recorder.record(cpu()));
    const auto want = plain->step(tokens);
    const auto got = recorded->step(tokens);
    CHECK(std::memcmp(want.data(), got.data(), want.size_bytes()) == 0);

    const std::vector<models::InputSums> sums = recorder.sums();
    for (const models::InputSums& input : sums) {
      CAPTURE(input.name);
      CHECK(std::ssize(input.squares) == input.cols * std::ssize(input.counts));
      int64_t rows = 0;
      for (const int64_t count : input.counts) rows += count;
      CHECK(rows % 100 == 0);
    }
    const auto path = dir.path() / "m.gguf";
    REQUIRE(models::write_importance(path, sums, {.text = "t"}).ok());
    const models::GgufFile matrix_file = models::GgufFile::open(path).value();
    const auto matrix = models::ImportanceMatrix::read(matrix_file);
    REQUIRE_MESSAGE(matrix.ok(), (matrix.ok() ? "" : matrix.error().message));
    models::QuantizeOptions options{.mix = models::find_mix("Q4_0").value(), .num_threads = 2};
    options.importance = &*matrix;
    const auto report = models::quantize_file(file, dir.path() / "out.gguf", options, nullptr);
    CHECK_MESSAGE(report.ok(), (report.ok() ? "" : report.error().message));
  }
}

TEST_CASE("texts and windows that cannot be recorded") {
  const models::GgufFile file =
      models::GgufFile::open(hearth::tests::source_path("models/demo/tales.gguf")).value();
  const auto tokenizer = models::load_tokenizer(file).value();
  InputRecorder recorder;
  const auto model = runner(file, recorder.record(cpu()));
  const auto code = [&](const std::string& text, const RecordOptions& options,
                        const RecordWatch& watch) {
    return record_text(*model, *tokenizer, text, options, watch).error().code;
  };
  CHECK(code("", {.context = 64}, nullptr) == ErrorCode::kInvalidArgument);
  CHECK(code("a text", {.context = 1}, nullptr) == ErrorCode::kInvalidArgument);
  CHECK(recorder.sums().empty());
  CHECK(code("a text", {.context = 64}, [](int64_t, int64_t) { return false; }) ==
        ErrorCode::kCancelled);
  const auto cut = record_text(*model, *tokenizer, "a longer text of some words",
                               {.context = 64, .max_tokens = 2}, nullptr);
  REQUIRE(cut.ok());
  CHECK(cut->num_windows == 1);
}

}  // namespace
}  // namespace hearth::worker
