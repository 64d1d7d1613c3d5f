#include "models/weights/weight_packer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "models/model.h"
#include "models/random_model.h"
#include "tests/temp_dir.h"

namespace hearth::models {
namespace {

struct Packed {
  kernels::WeightRole role;
  uint64_t bytes;
  bool stays;
};

// An op table's functions have no state for a list.
std::vector<Packed> g_packed;

/// What a table is given that packs so many bytes of matrices.
std::vector<Packed> packed_with(const GgufFile& file, uint64_t most_packed_bytes) {
  kernels::OpTable ops = kernels::cpu_ops({.num_threads = 1, .variant = ""}).value();
  ops.most_packed_bytes = most_packed_bytes;
  static decltype(ops.pack_weights) pack;
  pack = ops.pack_weights;
  ops.pack_weights = [](void* state, std::span<const kernels::HostTensor> tensors,
                        kernels::WeightRole role) {
    Packed& packed = g_packed.emplace_back(role, 0, tensors.front().owner != nullptr);
    for (const kernels::HostTensor& tensor : tensors) {
      packed.bytes += tensor.bytes.size();
      CHECK((tensor.owner != nullptr) == packed.stays);
    }
    return pack(state, tensors, role);
  };
  g_packed.clear();
  const auto model = load_model(file, ops, nullptr);
  REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
  return std::move(g_packed);
}

bool is_experts(const Packed& packed) { return packed.role == kernels::WeightRole::kExperts; }

/// Of the experts, or of the other matrices: bytes in the file, and how many of these are packed.
struct Part {
  uint64_t bytes = 0;
  uint64_t packed_bytes = 0;
};
Part part_of(const std::vector<Packed>& all, bool experts) {
  Part out;
  for (const Packed& each : all) {
    if (each.role == kernels::WeightRole::kVector || is_experts(each) != experts) continue;
    out.bytes += each.bytes;
    if (!each.stays) out.packed_bytes += each.bytes;
  }
  return out;
}

TEST_CASE("experts stay in the file before other matrices do, and vectors never") {
  const auto random =
      RandomModel::create(find_shape("gpt-oss-tiny").value(), kernels::DType::kQ8_0, 1);
  REQUIRE(random.ok());
  const tests::TempDir folder;
  const auto path = folder.path() / "model.gguf";
  REQUIRE(write_random_model(*random, path, 1, nullptr).ok());
  const auto file = GgufFile::open(path);
  REQUIRE(file.ok());

  const auto whole = packed_with(*file, UINT64_MAX);
  const Part experts = part_of(whole, true), others = part_of(whole, false);
  CHECK(experts.packed_bytes == experts.bytes);
  CHECK(others.packed_bytes == others.bytes);
  REQUIRE(experts.bytes > 0);
  uint64_t vectors = 0;  // of the file too: they count where the bound is divided
  for (const GgufTensor& tensor : file->tensors()) vectors += tensor.bytes.size();
  vectors -= experts.bytes + others.bytes;

  const auto none = packed_with(*file, 0);
  CHECK(part_of(none, true).packed_bytes == 0);
  CHECK(part_of(none, false).packed_bytes == 0);
  CHECK(std::ranges::none_of(none, [](const Packed& each) {
    return each.role == kernels::WeightRole::kVector && each.stays;
  }));

  const auto dense = packed_with(*file, others.bytes + vectors);
  CHECK(part_of(dense, true).packed_bytes == 0);
  CHECK(part_of(dense, false).packed_bytes == others.bytes);

  const auto most = packed_with(*file, others.bytes + vectors + experts.bytes / 2);
  CHECK(part_of(most, true).packed_bytes > 0);
  CHECK(part_of(most, true).packed_bytes <= experts.bytes / 2);
  CHECK(part_of(most, false).packed_bytes == others.bytes);

  const auto few = packed_with(*file, others.bytes / 2);
  CHECK(part_of(few, true).packed_bytes == 0);
  CHECK(part_of(few, false).packed_bytes > 0);
  CHECK(part_of(few, false).packed_bytes <= others.bytes / 2);
}

}  // namespace
}  // namespace hearth::models
