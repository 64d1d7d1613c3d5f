// How the CUDA table reacts to failures: every obstacle has a name, and after the start a failure
// ends the process with a reason.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <thread>

#include "kernels/cuda/host/state.h"
#include "kernels/ops/device_clock.h"
#include "kernels/ops/draw.h"
#include "kernels/ops/elastic_memory.h"
#include "kernels/ops/side_copies.h"
#include "tests/cuda/rig.h"
#include "tests/cuda/shim/last_words.h"
#include "tests/cuda/shim/shim.h"

using namespace hearth;         // NOLINT
using namespace hearth::tests;  // NOLINT

namespace {

constexpr size_t kScratch = static_cast<size_t>(kernels::kPartialBytes);

Error refused(const shim::Machine& machine, int32_t device = 0) {
  shim::reset();
  shim::set_machine(machine);
  auto table = kernels::cuda_ops({device});
  shim::set_machine({});
  REQUIRE_FALSE(table.ok());
  return table.take_error();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("probe: each obstacle is named") {
  Error error = refused({.driver_version = 0});
  CHECK(error.code == ErrorCode::kUnavailable);
  CHECK(contains(error.message, "no NVIDIA driver"));
  error = refused({.driver_version = 12020});
  CHECK(error.code == ErrorCode::kUnavailable);
  CHECK(contains(error.message, "supports CUDA 12.2, this build needs 13.0"));
  error = refused({.device_count = 0});
  CHECK(error.code == ErrorCode::kUnavailable);
  CHECK(contains(error.message, "no CUDA device"));
  error = refused({.device_count = 2}, 2);
  CHECK(error.code == ErrorCode::kInvalidArgument);
  CHECK(contains(error.message, "device 2: this machine has 2 (0 to 1)"));
  CHECK(refused({}, -1).code == ErrorCode::kInvalidArgument);
  error = refused({.major = 7, .minor = 0, .image = cudaErrorNoKernelImageForDevice});
  CHECK(error.code == ErrorCode::kUnsupported);
  CHECK(contains(error.message, "compute capability 7.0"));
}

TEST_CASE("probe: properties of the device") {
  shim::reset();
  shim::set_machine({.major = 12, .minor = 1, .memory_bytes = kScratch + 5000});
  const auto device = kernels::cuda_probe({});
  const auto table = kernels::cuda_ops({});
  shim::set_machine({});
  REQUIRE(device.ok());
  CHECK(device->compute_major == 12);
  CHECK(device->driver_version == 13000);
  CHECK(device->pci_bus_id == "0000:65:00.0");
  CHECK(device->memory_bytes == kScratch + 5000);
  CHECK(device->memory_free_bytes == kScratch + 5000);
  REQUIRE(table.ok());
  CHECK(table->device.kind == "cuda");
  CHECK(table->device.memory_free_bytes == 5000);  // in addition to its own scratch
  CHECK(table->device.variant == "sm_121");
  CHECK(table->numerics_id == "cuda-8-sm121");
}

TEST_CASE("start: any call may fail, and the error gives the reason") {
  // Each attempt in its own thread: a thread's first use of a device makes one more call.
  const auto attempt = [] {
    Result<kernels::OpTable> table = Error{};
    std::thread([&] { table = kernels::cuda_ops({}); }).join();
    return table;
  };
  shim::reset();
  const int64_t before = shim::num_calls();
  int64_t calls = 0;
  {
    const auto made = attempt();
    REQUIRE(made.ok());
    calls = shim::num_calls() - before;
  }
  REQUIRE(calls > 5);
  for (int64_t n = 1; n <= calls; ++n) {
    CAPTURE(n);
    shim::fail_call(n, cudaErrorDevicesUnavailable);
    const auto table = attempt();
    shim::reset();
    REQUIRE_FALSE(table.ok());
    CHECK(contains(table.error().message, "the device is busy"));
    CHECK(shim::bytes_in_use() == 0);
  }
  CHECK(shim::bytes_in_use() == 0);
}

TEST_CASE("weights that do not fit are refused with sizes, and nothing stays allocated") {
  shim::reset();
  shim::set_machine({.memory_bytes = kScratch + 100000});
  {
    const auto table = kernels::cuda_ops({});
    REQUIRE(table.ok());
    for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kQ8_0}) {
      const Tensor tensor = random_tensor(1, type, 1024, 128);
      const kernels::HostTensor host = tensor.host();
      const auto weight =
          table->pack_weights(table->state.get(), {&host, 1}, kernels::WeightRole::kMatmul);
      REQUIRE_FALSE(weight.ok());
      CHECK(weight.error().code == ErrorCode::kOutOfMemory);
      CHECK(contains(weight.error().message, "tensor 1: "));
      CHECK(contains(weight.error().message, fmt::format("of {} free", kScratch + 100000)));
    }
  }
  shim::set_machine({});
  CHECK(shim::bytes_in_use() == 0);
}

TEST_CASE("run: a CUDA error ends the process with its reason") {
  HEARTH_CUDA_TABLE(ops);
  const Step step(ops, 1);
  const DeviceRows x(ops, step.bound(), 8);
  const auto bias =
      pack(ops, {random_tensor(1, kernels::DType::kF32, 1, 8)}, kernels::WeightRole::kVector);
  const auto run_op = [&] {
    ops.add_bias(ops.state.get(), {&step.batch(), bias.get(), x.view()});
    ops.synchronize(ops.state.get());
  };
  const std::string lost = last_words([&] {
    shim::fail_call(2, cudaErrorECCUncorrectable);
    run_op();
  });
  CHECK(contains(lost, "device lost: uncorrectable memory error (cudaErrorECCUncorrectable)"));
  CHECK(contains(lost, "cuda/host/memory.cpp"));
  const std::string refused_launch = last_words([&] {
    shim::fail_call(1, cudaErrorUnknown);
    run_op();
  });
  CHECK(contains(refused_launch, "add_bias.cu"));
  CHECK(contains(refused_launch, "device lost (cudaErrorUnknown)"));
}

TEST_CASE("run: any failing call ends the process with its reason") {
  HEARTH_CUDA_TABLE(ops);
  using kernels::DType;
  using kernels::Rows;
  using kernels::WeightRole;
  const auto run_step = [&] {
    const auto weight =
        pack(ops, {random_tensor(1, DType::kQ4_K, 20, 256), random_tensor(2, DType::kF16, 9, 256)},
             WeightRole::kMatmul);
    Tensor stack = random_tensor(3, DType::kQ8_0, 3 * 8, 256);
    stack.num_experts = 3;
    const auto experts = pack(ops, {stack}, WeightRole::kExperts);
    const Step step(ops, 2);
    const DeviceRows x(ops, step.bound(), 256);
    const DeviceRows out(ops, step.bound(), 29);
    ops.matmul(ops.state.get(),
               {&step.batch(), Rows::kTokens, x.view(), weight.get(), nullptr, out.view()});
    const kernels::DeviceBuffer ids =
        upload(ops, std::vector<int32_t>(static_cast<size_t>(step.bound()), 1));
    const DeviceRows chosen(ops, step.bound(), 8);
    ops.moe_matmul(ops.state.get(), {&step.batch(),
                                     x.view(),
                                     false,
                                     experts.get(),
                                     {ids.data(), DType::kI32, step.bound(), 1, 1},
                                     chosen.view()});
    const kernels::HostBuffer staging(ops, 256);
    ops.copy_to_device(ops.state.get(), x.view().data, staging.as<std::byte>(), staging.size());
    ops.begin_capture(ops.state.get());
    ops.matmul(ops.state.get(),
               {&step.batch(), Rows::kTokens, x.view(), weight.get(), nullptr, out.view()});
    const auto captured = ops.end_capture(ops.state.get());
    REQUIRE(captured != nullptr);
    CHECK(ops.replay(ops.state.get(), *captured));
    out.read(2);

    const kernels::SideCopies& side = *ops.side_copies;
    side.after_ops(ops.state.get());
    side.to_host(ops.state.get(), staging.as<std::byte>(), x.view().data, staging.size());
    side.to_device(ops.state.get(), x.view().data, staging.as<std::byte>(), staging.size());
    const uint64_t mark = side.mark(ops.state.get());
    side.before_ops(ops.state.get());
    while (!side.ended(ops.state.get(), mark)) {
    }
    side.to_host(ops.state.get(), staging.as<std::byte>(), x.view().data, staging.size());
    side.wait(ops.state.get(), side.mark(ops.state.get()));
    const kernels::HostBuffer tokens(ops, 64);
    const kernels::HostBuffer rows(ops, 64 * sizeof(kernels::DrawRow));
    const kernels::HostBuffer best(ops, 8 * sizeof(kernels::BestLogits));
    ops.draw->draw(ops.state.get(),
                   {&step.batch(), x.view(), rows.as<kernels::DrawRow>(), tokens.as<int32_t>()});
    ops.draw->best_logits(ops.state.get(),
                          {&step.batch(), x.view(), best.as<kernels::BestLogits>()});
    ops.draw->feed(ops.state.get(),
                   {&step.batch(), tokens.as<int32_t>(), rows.as<int32_t>(), ids.as<int32_t>()});
    ops.wait(ops.state.get(), ops.mark(ops.state.get()));
    const uint64_t stamp = ops.clock->stamp(ops.state.get());
    ops.clock->us_between(ops.state.get(), stamp, ops.clock->stamp(ops.state.get()));
    ops.synchronize(ops.state.get());
  };
  const size_t before = shim::bytes_in_use();
  run_step();
  const size_t scratch = shim::bytes_in_use() - before;  // grown once, kept by the table
  const int64_t first = shim::num_calls();
  run_step();
  const int64_t calls = shim::num_calls() - first;
  CHECK(shim::bytes_in_use() == before + scratch);
  REQUIRE(calls > 40);
  for (int64_t n = 1; n <= calls; ++n) {
    const std::string words = last_words([&] {
      shim::fail_call(n, cudaErrorIllegalAddress);
      run_step();
    });
    CHECK_MESSAGE(contains(words, "a kernel accessed memory outside an allocation"), n);
  }
}

TEST_CASE("weights: any refused allocation is an error with sizes, and nothing stays allocated") {
  shim::reset();
  auto table = kernels::cuda_ops({});
  REQUIRE(table.ok());
  std::vector<Tensor> tensors;
  for (const kernels::DType type : {kernels::DType::kQ4_K, kernels::DType::kF16}) {
    tensors.push_back(random_tensor(tensors.size(), type, 2 * 16, 256));
    tensors.back().num_experts = 2;
  }
  const std::vector<kernels::HostTensor> host = {tensors[0].host(), tensors[1].host()};
  int refusals = 0;
  for (int64_t n = 1;; ++n) {
    shim::fail_allocation(n);
    auto weight = table->pack_weights(table->state.get(), host, kernels::WeightRole::kExperts);
    shim::fail_allocation(0);
    if (weight.ok()) break;
    ++refusals;
    CHECK(weight.error().code == ErrorCode::kOutOfMemory);
    CHECK(contains(weight.error().message, "bytes on a device with"));
  }
  CHECK(refusals >= 4);  // two of scratch, two of lists, two segments; a pair is requested at once
  table = Error{};
  CHECK(shim::bytes_in_use() == 0);
}

TEST_CASE("elastic memory: a refused granule changes nothing") {
  shim::reset();
  shim::set_machine({});
  const OpTable ops = kernels::cuda_ops({.unconfirmed = true}).value();
  const size_t granule = ops.elastic->granule;
  auto buffer = kernels::ElasticBuffer::reserve(ops, 4 * granule, "test").value();
  REQUIRE(buffer.back(0, granule));
  const size_t before = shim::bytes_in_use();
  shim::fail_allocation(3);
  CHECK_FALSE(buffer.back(granule, 4 * granule));
  CHECK(shim::bytes_in_use() == before);
  CHECK(buffer.backed_bytes() == granule);
  CHECK(buffer.back(granule, 4 * granule));
}

TEST_CASE("memory: overhead of weights and of captured steps is counted") {
  shim::reset();
  auto table = kernels::cuda_ops({});
  REQUIRE(table.ok());
  const size_t before = shim::bytes_in_use();
  std::vector<Tensor> tensors = {random_tensor(1, kernels::DType::kQ4_K, 64, 1024),
                                 random_tensor(2, kernels::DType::kF16, 64, 2048),
                                 random_tensor(3, kernels::DType::kQ8_0, 64, 512)};
  tensors.push_back(random_tensor(4, kernels::DType::kQ8_0, 3 * 16, 256));
  tensors.back().num_experts = 3;
  std::vector<std::unique_ptr<kernels::Weight>> weights;
  uint64_t bytes = 0, activations = 0, experts = 0;
  for (const Tensor& tensor : tensors) {
    const kernels::HostTensor host = tensor.host();
    const auto role =
        host.num_experts > 1 ? kernels::WeightRole::kExperts : kernels::WeightRole::kMatmul;
    const kernels::CudaPacking packing = kernels::cuda_packing({&host, 1}, role);
    CHECK(packing.rounding_bytes == 0);  // small ones share pages
    activations = std::max(activations, packing.activation_scratch_bytes);
    experts = std::max(experts, packing.expert_scratch_bytes);
    auto weight = table->pack_weights(table->state.get(), {&host, 1}, role);
    REQUIRE(weight.ok());
    bytes += (*weight)->bytes;
    weights.push_back(std::move(*weight));
  }
  CHECK(activations > 0);
  CHECK(experts > 0);
  CHECK(shim::bytes_in_use() - before == bytes + activations + experts);
  // Three quarters of a page more than two of them.
  const Tensor large = random_tensor(5, kernels::DType::kF32, 1024, 704);
  const kernels::HostTensor host = large.host();
  const uint64_t packed = kernels::cuda_packed_bytes({&host, 1}, kernels::WeightRole::kMatmul);
  const uint64_t page = 2 << 20;
  CHECK(kernels::cuda_packing({&host, 1}, kernels::WeightRole::kMatmul).rounding_bytes ==
        (packed + page - 1) / page * page - packed);

  shim::set_machine({.graph_bytes = 5000});
  CHECK(kernels::cuda_memory_use(*table).graph_bytes == 0);
  const Step step(*table, 1);
  const DeviceRows x(*table, step.bound(), 8);
  const auto bias =
      pack(*table, {random_tensor(1, kernels::DType::kF32, 1, 8)}, kernels::WeightRole::kVector);
  const auto capture = [&] {
    table->begin_capture(table->state.get());
    table->add_bias(table->state.get(), {&step.batch(), bias.get(), x.view()});
    return table->end_capture(table->state.get());
  };
  {
    const auto first = capture(), second = capture();
    REQUIRE(first != nullptr);
    CHECK(kernels::cuda_memory_use(*table).graph_bytes == 2 * 5000);
    CHECK(kernels::cuda_memory_use(*table).free_bytes ==
          shim::Machine{}.memory_bytes - shim::bytes_in_use());
    shim::set_machine({.memory_bytes = shim::bytes_in_use() + 4999, .graph_bytes = 5000});
    CHECK(capture() == nullptr);
    CHECK(kernels::cuda_memory_use(*table).graphs_refused == 1);
    CHECK(kernels::cuda_memory_use(*table).graph_bytes == 2 * 5000);
  }
  shim::set_machine({});
}
