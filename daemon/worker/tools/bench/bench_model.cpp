#include "daemon/worker/tools/bench/bench_model.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/worker/load/fingerprint_cache.h"
#include "daemon/worker/load/measuring_ops.h"
#include "daemon/worker/tools/stop_flag.h"
#include "ipc/files/model_file.h"
#include "kernels/host/cpu_topology.h"
#include "kernels/host/thread_pool.h"

namespace hearth::worker {

struct BenchModel::Region {
  std::byte* data = nullptr;
  size_t bytes = 0;
  ~Region() {
    if (data != nullptr) ::munmap(data, bytes);
  }
};

namespace {

/// Packs weights until a stop signal. The bytes of a random tensor are generated at their place in
/// the parsed file, just before they are packed.
class Packer {
 public:
  /// `random` is null for a file; otherwise its tensors are in `region`.
  Packer(const models::RandomModel* random, std::byte* region, const kernels::OpTable& ops)
      : random_(random), region_(region), ops_(ops), pool_(kernels::usable_cores()) {}

  Result<std::unique_ptr<kernels::Weight>> pack(std::span<const kernels::HostTensor> tensors,
                                                kernels::WeightRole role) {
    if (stop_wanted()) return Error::cancelled("interrupted");
    for (const kernels::HostTensor& tensor : tensors) fill(tensor.name);
    auto packed = ops_.pack_weights(ops_.state.get(), tensors, role);
    for (const kernels::HostTensor& tensor : tensors) drop(tensor.name);
    return packed;
  }

 private:
  /// Null for a file, and for tensors that a family creates itself.
  const models::RandomModel::Tensor* find(std::string_view name) const {
    return random_ == nullptr ? nullptr : random_->find(name);
  }
  void fill(std::string_view name) {
    const models::RandomModel::Tensor* tensor = find(name);
    if (tensor == nullptr) return;
    const auto row_bytes = tensor->bytes / tensor->rows;
    const int64_t turn = std::max<int64_t>(1, (int64_t{1} << 18) / tensor->cols);
    pool_.run((tensor->rows + turn - 1) / turn, [&](int64_t item, int32_t) {
      const int64_t first = item * turn, count = std::min(turn, tensor->rows - first);
      random_->fill(*tensor, first, count,
                    {region_ + tensor->offset + first * row_bytes, count * row_bytes});
    });
  }
  void drop(std::string_view name) {
    const models::RandomModel::Tensor* tensor = find(name);
    if (tensor == nullptr) return;
    const uint64_t page = ::sysconf(_SC_PAGESIZE);
    const uint64_t from = (tensor->offset + page - 1) / page * page;
    const uint64_t to = (tensor->offset + tensor->bytes) / page * page;
    if (to > from) ::madvise(region_ + from, to - from, MADV_DONTNEED);
  }

  const models::RandomModel* random_;
  std::byte* region_;
  const kernels::OpTable& ops_;
  kernels::ThreadPool pool_;
};

// An op table's functions get only the device's state, so the packer is passed separately. The
// model keeps the table and may pack small tensors later, when t_packer is null.
thread_local Packer* t_packer = nullptr;
thread_local decltype(kernels::OpTable::pack_weights) t_pack_weights = nullptr;

}  // namespace

Result<BenchModel> BenchModel::find(const std::string& file, const std::string& shape,
                                    const std::string& type, uint64_t seed,
                                    const models::LoadOptions& options) {
  if (shape.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const auto path, ipc::find_model_file(file));
    return open(path, options);
  }
  HEARTH_ASSIGN_OR_RETURN(models::ModelShape found, models::find_shape(shape));
  found.draft_layer = options.draft_layer && found.state_heads > 0;
  HEARTH_ASSIGN_OR_RETURN(models::RandomModel random,
                          models::RandomModel::create(found, type, seed));
  return make(std::move(random), options);
}

Result<BenchModel> BenchModel::open(const std::filesystem::path& path,
                                    const models::LoadOptions& options) {
  BenchModel out;
  out.options_ = options;
  HEARTH_ASSIGN_OR_RETURN(models::GgufFile file, models::GgufFile::open(path));
  // For its check alone: weights that are not finite are refused.
  HEARTH_TRY(computed_fingerprint(file));
  out.file_ = std::make_unique<models::GgufFile>(std::move(file));
  out.name_ = out.file_->name();
  HEARTH_TRY(out.measure());
  return out;
}

Result<BenchModel> BenchModel::make(models::RandomModel random,
                                    const models::LoadOptions& options) {
  BenchModel out;
  out.options_ = options;
  out.region_ = std::make_shared<Region>();
  const size_t bytes = random.file_bytes();
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return Error::out_of_memory(fmt::format("no {} bytes of address space", bytes));
  }
  out.region_->data = static_cast<std::byte*>(memory);
  out.region_->bytes = bytes;
  std::memcpy(out.region_->data, random.header().data(), random.header().size());
  HEARTH_ASSIGN_OR_RETURN(models::GgufFile file,
                          models::GgufFile::parse({out.region_->data, bytes}, "random"));
  out.file_ = std::make_unique<models::GgufFile>(std::move(file));
  out.name_ = "random";
  // At most four tensors are packed together.
  uint64_t largest = 0;
  for (const auto& tensor : random.tensors()) largest = std::max(largest, tensor.bytes);
  out.scratch_bytes_ = 4 * largest;
  out.random_ = std::make_unique<models::RandomModel>(std::move(random));
  HEARTH_TRY(out.measure());
  return out;
}

Result<void> BenchModel::measure() {
  file_->set_fingerprint("bench");  // no prefix outlives this process
  HEARTH_ASSIGN_OR_RETURN(measured_,
                          models::load_model(*file_, measuring_ops(), nullptr, options_));
  work_ = work_of(*file_, measured_->info());
  for (const models::GgufTensor& tensor : file_->tensors()) weight_bytes_ += tensor.bytes.size();
  return {};
}

Result<std::unique_ptr<models::Model>> BenchModel::load(
    const kernels::OpTable& ops, const models::LoadProgressFn& progress) const {
  Packer packer(random_.get(), region_ == nullptr ? nullptr : region_->data, ops);
  kernels::OpTable packing = ops;
  packing.pack_weights = [](void* state, std::span<const kernels::HostTensor> tensors,
                            kernels::WeightRole role) {
    return t_packer != nullptr ? t_packer->pack(tensors, role)
                               : t_pack_weights(state, tensors, role);
  };
  t_pack_weights = ops.pack_weights;
  t_packer = &packer;
  auto model = models::load_model(*file_, packing, progress, options_);
  t_packer = nullptr;
  return model;
}

}  // namespace hearth::worker
