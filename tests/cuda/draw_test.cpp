// Tokens drawn on the device compared with the reference: equal, not close.

#include "kernels/ops/draw.h"

#include <cmath>
#include <limits>

#include "kernels/ops/device_clock.h"
#include "tests/cuda/rig.h"
#include "tests/op/op_testing.h"

namespace hearth::tests {

using kernels::BestLogits;
using kernels::DrawRow;

namespace {

constexpr int32_t kRows = 7;  // outputs of a step of 13 tokens

std::vector<DrawRow> how() {
  std::vector<DrawRow> rows(kRows + Step::kSpareRows);
  const double temperatures[] = {0, 0.8, 1, 0, 30, 1e-3, 0.8};
  for (size_t i = 0; i < kRows; ++i) {
    rows[i] = {temperatures[i], 1 + i * 0x1234567890abcdefu, static_cast<int32_t>(i) % 2,
               static_cast<int32_t>(40 + i)};
  }
  return rows;
}

std::vector<float> logits_of(int64_t vocab, uint64_t seed) {
  std::vector<float> logits = Random(seed).floats((kRows + Step::kSpareRows) * vocab);
  for (float& logit : logits) logit = std::round(logit * 4096) / 256;  // equal values among many
  return logits;
}

std::vector<int32_t> drawn(const OpTable& ops, int64_t vocab, const std::vector<float>& values,
                           const std::vector<DrawRow>& how_drawn = how()) {
  const Step step(ops, 2 * kRows - 1);
  const DeviceRows logits(ops, step.batch().num_outputs, vocab, values);
  const auto rows = upload(ops, how_drawn);
  const auto tokens =
      upload(ops, std::vector<int32_t>(static_cast<size_t>(step.batch().num_outputs), -7));
  ops.draw->draw(ops.state.get(),
                 {&step.batch(), logits.view(), rows.as<DrawRow>(), tokens.as<int32_t>()});
  std::vector<int32_t> out(tokens.size() / sizeof(int32_t));
  ops.copy_to_host(ops.state.get(), out.data(), tokens.data(), tokens.size());
  return out;
}

struct Best {
  std::vector<float> logits;
  std::vector<int32_t> tokens;
  bool operator==(const Best&) const = default;
};

Best best(const OpTable& ops, int64_t vocab, const std::vector<float>& values) {
  const Step step(ops, 2 * kRows - 1);
  const DeviceRows logits(ops, step.batch().num_outputs, vocab, values);
  BestLogits untouched;
  std::fill_n(untouched.logit, BestLogits::kCount, -7.0f);
  std::fill_n(untouched.token, BestLogits::kCount, -7);
  const auto rows = upload(
      ops, std::vector<BestLogits>(static_cast<size_t>(step.batch().num_outputs), untouched));
  ops.draw->best_logits(ops.state.get(), {&step.batch(), logits.view(), rows.as<BestLogits>()});
  std::vector<BestLogits> all(rows.size() / sizeof(BestLogits));
  ops.copy_to_host(ops.state.get(), all.data(), rows.data(), rows.size());
  Best out;
  for (const BestLogits& row : all) {
    out.logits.insert(out.logits.end(), row.logit, row.logit + BestLogits::kCount);
    out.tokens.insert(out.tokens.end(), row.token, row.token + BestLogits::kCount);
  }
  return out;
}

std::vector<int64_t> vocabularies() {
  std::vector<int64_t> all = {1, 2, 63, 65, 300, 4096, 9001};
  // More runs than the second launch processes at once.
  if (kernels::testing::full_counts()) all.push_back(65 * 4096 - 5);
  return all;
}

}  // namespace

TEST_CASE("draw") {
  HEARTH_CUDA_TABLE(ops);
  for (const int64_t vocab : vocabularies()) {
    CAPTURE(vocab);
    const std::vector<float> logits = logits_of(vocab, static_cast<uint64_t>(vocab));
    const std::vector<int32_t> want = drawn(kernels::reference_ops(), vocab, logits);
    CHECK(want[0] >= 0);
    CHECK(want.back() == -7);
    in_every_order([&] { CHECK(drawn(ops, vocab, logits) == want); });
  }
}

TEST_CASE("best logits") {
  HEARTH_CUDA_TABLE(ops);
  for (const int64_t vocab : vocabularies()) {
    CAPTURE(vocab);
    std::vector<float> logits = logits_of(vocab, static_cast<uint64_t>(vocab) + 1);
    if (vocab > 2) logits[1] = -0.0f;
    const Best want = best(kernels::reference_ops(), vocab, logits);
    CHECK(want.tokens.back() == -7);
    in_every_order([&] { CHECK((best(ops, vocab, logits) == want)); });
  }
}

TEST_CASE("draw, best logits: a row with a value that is not finite is left to the host") {
  HEARTH_CUDA_TABLE(ops);
  constexpr int64_t kVocab = 5000;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    CAPTURE(bad);
    std::vector<float> logits = logits_of(kVocab, 9);
    logits[4999] = bad;  // row 0
    logits[6 * kVocab + 17] = bad;
    const std::vector<int32_t> tokens = drawn(ops, kVocab, logits);
    CHECK(tokens == drawn(kernels::reference_ops(), kVocab, logits));
    CHECK(tokens[0] == kernels::kNotDrawn);
    CHECK(tokens[6] == kernels::kNotDrawn);
    CHECK(tokens[3] >= 0);
    const Best rows = best(ops, kVocab, logits);
    CHECK((rows == best(kernels::reference_ops(), kVocab, logits)));
    CHECK(rows.tokens[0] == kernels::kNotDrawn);
    CHECK(rows.tokens[BestLogits::kCount] >= 0);
  }
}

TEST_CASE("draw: where two scores are closer than logarithms are exact, the host draws") {
  HEARTH_CUDA_TABLE(ops);
  // Logits so large that the noise is rounded away: all scores are equal.
  const std::vector<float> logits((kRows + Step::kSpareRows) * 8, 1e30f);
  const std::vector<int32_t> tokens = drawn(ops, 8, logits);
  CHECK(tokens == drawn(kernels::reference_ops(), 8, logits));
  CHECK(tokens[0] == 0);  // greedy: the first of equals
  CHECK(tokens[1] == kernels::kNotDrawn);
}

TEST_CASE("draw: noise alone, and temperatures up to the ends of f64") {
  HEARTH_CUDA_TABLE(ops);
  constexpr int64_t kVocab = 4500;
  const int seeds = kernels::testing::full_counts() ? 200 : 8;
  for (const double temperature : {1.0, 1e-300, 1e-31, 1e-29, 1e-5, 1e6, 1e29, 1e31, 1e300}) {
    CAPTURE(temperature);
    const bool noise_alone = temperature == 1;
    const std::vector<float> logits = noise_alone
                                          ? std::vector<float>((kRows + Step::kSpareRows) * kVocab)
                                          : logits_of(kVocab, 5);
    std::vector<DrawRow> rows = how();
    for (int seed = 0; seed < (noise_alone ? seeds : 1); ++seed) {
      for (DrawRow& row : rows) {
        row.temperature = temperature;
        row.seed += 0x9e3779b97f4a7c15u;
      }
      CHECK(drawn(ops, kVocab, logits, rows) ==
            drawn(kernels::reference_ops(), kVocab, logits, rows));
    }
  }
}

TEST_CASE("feed: a step reads the tokens that another step drew") {
  HEARTH_CUDA_TABLE(ops);
  const std::vector<int32_t> tokens = {7, kernels::kNotDrawn, 3, 9};
  const std::vector<int32_t> rows = {3, 1, 0, 0, 2};
  const auto fed = [&](const OpTable& table) {
    const Step step(table, 5);
    const auto from = upload(table, tokens);
    const auto which = upload(table, rows);
    const auto to = upload(table, std::vector<int32_t>(static_cast<size_t>(step.bound()), -7));
    table.draw->feed(table.state.get(),
                     {&step.batch(), from.as<int32_t>(), which.as<int32_t>(), to.as<int32_t>()});
    std::vector<int32_t> out(static_cast<size_t>(step.bound()));
    table.copy_to_host(table.state.get(), out.data(), to.data(), to.size());
    return out;
  };
  std::vector<int32_t> want = {9, 0, 7, 7, 3};
  want.resize(5 + Step::kSpareRows, -7);
  CHECK(fed(kernels::reference_ops()) == want);
  in_every_order([&] { CHECK(fed(ops) == want); });
}

TEST_CASE("marks: waiting for a mark covers everything enqueued before it") {
  HEARTH_CUDA_TABLE(ops);
  const std::vector<float> logits = logits_of(300, 4);
  const Step step(ops, 2 * kRows - 1);
  const auto count = static_cast<size_t>(step.batch().num_outputs);
  const DeviceRows on_device(ops, step.batch().num_outputs, 300, logits);
  const std::vector<int32_t> want = drawn(kernels::reference_ops(), 300, logits);
  const kernels::HostBuffer rows(ops, count * sizeof(DrawRow));
  std::ranges::copy(how(), rows.as<DrawRow>());
  // More marks than events, each with its own tokens.
  std::vector<kernels::HostBuffer> tokens;
  std::vector<uint64_t> marks;
  for (int i = 0; i < 40; ++i) {
    tokens.emplace_back(ops, count * sizeof(int32_t));
    ops.draw->draw(ops.state.get(), {&step.batch(), on_device.view(), rows.as<DrawRow>(),
                                     tokens.back().as<int32_t>()});
    marks.push_back(ops.mark(ops.state.get()));
    CHECK((i == 0 || marks[static_cast<size_t>(i)] > marks[static_cast<size_t>(i) - 1]));
  }
  for (const size_t i : {size_t{3}, size_t{38}, size_t{39}, size_t{0}}) {
    ops.wait(ops.state.get(), marks[i]);
    CHECK(std::equal(want.begin(), want.begin() + kRows, tokens[i].as<int32_t>()));
  }
}

TEST_CASE("device clock: stamps ascend in time, with more stamps than events") {
  HEARTH_CUDA_TABLE(ops);
  const kernels::DeviceClock& clock = *ops.clock;
  const Step step(ops, 1);
  const DeviceRows x(ops, step.bound(), 64, Random(1).floats(64));
  uint64_t last = clock.stamp(ops.state.get());
  for (uint64_t i = 0; i < kernels::DeviceClock::kStamps + 8; ++i) {
    ops.add_scaled(ops.state.get(), {&step.batch(), x.view(), 1.0f, x.view()});
    const uint64_t next = clock.stamp(ops.state.get());
    CHECK(next > last);
    CHECK(clock.us_between(ops.state.get(), last, next) >= 0);
    last = next;
  }
}

}  // namespace hearth::tests
