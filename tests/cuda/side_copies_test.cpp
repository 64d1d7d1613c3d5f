// Copies during the ops: what orders them, and that nothing else does.

#include "kernels/ops/side_copies.h"

#include <cmath>

#include "tests/cuda/rig.h"

namespace hearth::tests {

using kernels::DeviceBuffer;
using kernels::HostBuffer;

namespace {

constexpr int64_t kWidth = 64;
constexpr size_t kBytes = kWidth * sizeof(float);

std::vector<float> values(const HostBuffer& from) {
  return {from.as<float>(), from.as<float>() + kWidth};
}

}  // namespace

TEST_CASE("side copies: out after the ops enqueued before, in before the ops enqueued after") {
  HEARTH_CUDA_TABLE(ops);
  void* state = ops.state.get();
  const kernels::SideCopies& side = *ops.side_copies;
  in_every_order([&] {
    const Step step(ops, 1);
    const std::vector<float> first = Random(1).floats(kWidth);
    const std::vector<float> second = Random(2).floats(kWidth);
    const DeviceRows x(ops, step.bound(), kWidth, first);
    const DeviceRows out(ops, step.bound(), kWidth);
    const HostBuffer came(ops, kBytes);
    const HostBuffer goes(ops, kBytes);
    std::copy(second.begin(), second.end(), goes.as<float>());

    // out = 2 x; out is copied here, and then overwritten.
    const auto add = [&] { ops.add_scaled(state, {&step.batch(), x.view(), 2.0f, out.view()}); };
    ops.copy_to_device(state, out.view().data, std::vector<float>(kWidth).data(), kBytes);
    add();
    side.after_ops(state);
    side.to_host(state, came.as<std::byte>(), out.view().data, kBytes);
    const uint64_t mark = side.mark(state);
    side.before_ops(state);
    add();
    side.wait(state, mark);
    CHECK(side.ended(state, mark));
    for (size_t i = 0; i < kWidth; ++i) CHECK(values(came)[i] == 2 * first[i]);

    // x is copied in after the op that reads the old one and before the op that reads the new one.
    add();  // out = 6 x
    side.after_ops(state);
    side.to_device(state, x.view().data, goes.as<std::byte>(), kBytes);
    const uint64_t next = side.mark(state);
    CHECK(next > mark);
    side.before_ops(state);
    add();
    const std::vector<float> got = out.read(1);
    for (size_t i = 0; i < kWidth; ++i) {
      CHECK(got[i] == std::fma(second[i], 2.0f, 3 * (2 * first[i])));
    }
    side.wait(state, next);
  });
}

TEST_CASE("side copies: marks ascend and complete in order, with more marks than events") {
  HEARTH_CUDA_TABLE(ops);
  void* state = ops.state.get();
  const kernels::SideCopies& side = *ops.side_copies;
  const DeviceBuffer memory = upload(ops, Random(3).floats(kWidth));
  const HostBuffer host(ops, kBytes);
  uint64_t last = 0;
  uint64_t first = 0;
  side.after_ops(state);
  for (int i = 0; i < 40; ++i) {
    side.to_host(state, host.as<std::byte>(), memory.data(), kBytes);
    const uint64_t mark = side.mark(state);
    CHECK(mark > last);
    last = mark;
    if (i == 0) first = mark;
  }
  while (!side.ended(state, last)) {
  }
  CHECK(side.ended(state, first));
  side.wait(state, first);
  side.wait(state, last);
}

}  // namespace hearth::tests
