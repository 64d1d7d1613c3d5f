// A row-major matrix is the transpose of a column-major one: D = out^T (outputs, rows) is computed
// as op(A) B with A = weights (inputs, outputs) transposed and B = x (inputs, rows).

#include "kernels/cuda/host/cublaslt.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

namespace hearth::kernels {
namespace {

constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};

using namespace lt;  // NOLINT: its numbers
constexpr uint32_t kOutAlignment = 16;

struct StatusName {
  int status;
  const char* name;
};
constexpr StatusName kStatusNames[] = {
    {1, "CUBLAS_STATUS_NOT_INITIALIZED"}, {3, "CUBLAS_STATUS_ALLOC_FAILED"},
    {7, "CUBLAS_STATUS_INVALID_VALUE"},   {8, "CUBLAS_STATUS_ARCH_MISMATCH"},
    {11, "CUBLAS_STATUS_MAPPING_ERROR"},  {13, "CUBLAS_STATUS_EXECUTION_FAILED"},
    {14, "CUBLAS_STATUS_INTERNAL_ERROR"}, {15, "CUBLAS_STATUS_NOT_SUPPORTED"},
    {16, "CUBLAS_STATUS_LICENSE_ERROR"},
};

[[noreturn]] void fail(const char* call, int status) {
  std::fprintf(stderr, "cublas error: %s: %s\n", cublas_reason(status).c_str(), call);
  std::fflush(stderr);
  std::abort();
}

using Destroy = int (*)(void*);
struct Destroyer {
  Destroy destroy;
  void operator()(void* object) const { destroy(object); }
};
using Object = std::unique_ptr<void, Destroyer>;

/// Descriptors of one product.
struct Problem {
  Object desc, a, b, d;
};

Object made(int status, void* object, Destroy destroy) {
  return Object(status == kSuccess ? object : nullptr, Destroyer{destroy});
}

/// Members are null if the library refuses.
Problem describe(const CublasLtApi& api, const LtShape& shape, int64_t rows, int64_t out_stride) {
  const auto layout = [&api](int type, int64_t height, int64_t width, int64_t ld) {
    void* object = nullptr;
    const int status = api.layout_create(&object, type, height, width, ld);
    return made(status, object, api.layout_destroy);
  };
  void* desc = nullptr;
  const int status = api.desc_create(&desc, kCompute32F, kReal32F);
  const int type = shape.type == LtType::kF16 ? kReal16F : kReal16BF;
  Problem problem{made(status, desc, api.desc_destroy),
                  layout(type, shape.inputs, shape.outputs, shape.inputs),
                  layout(type, shape.inputs, rows, shape.inputs),
                  layout(kReal32F, shape.outputs, rows, out_stride)};
  if (problem.desc != nullptr &&
      api.desc_set(problem.desc.get(), kDescTransA, &kTranspose, sizeof kTranspose) != kSuccess) {
    problem.desc.reset();
  }
  return problem;
}

bool complete(const Problem& problem) {
  return problem.desc != nullptr && problem.a != nullptr && problem.b != nullptr &&
         problem.d != nullptr;
}

template <typename Function>
bool find(void* library, const char* name, Function* function, std::string* missing) {
  void* symbol = ::dlsym(library, name);
  if (symbol == nullptr) *missing = name;
  *function = reinterpret_cast<Function>(symbol);
  return symbol != nullptr;
}

bool find_all(void* library, CublasLtApi* api, std::string* missing) {
  return find(library, "cublasLtGetVersion", &api->get_version, missing) &&
         find(library, "cublasLtCreate", &api->create, missing) &&
         find(library, "cublasLtDestroy", &api->destroy, missing) &&
         find(library, "cublasLtMatmulDescCreate", &api->desc_create, missing) &&
         find(library, "cublasLtMatmulDescDestroy", &api->desc_destroy, missing) &&
         find(library, "cublasLtMatmulDescSetAttribute", &api->desc_set, missing) &&
         find(library, "cublasLtMatrixLayoutCreate", &api->layout_create, missing) &&
         find(library, "cublasLtMatrixLayoutDestroy", &api->layout_destroy, missing) &&
         find(library, "cublasLtMatmulPreferenceCreate", &api->preference_create, missing) &&
         find(library, "cublasLtMatmulPreferenceDestroy", &api->preference_destroy, missing) &&
         find(library, "cublasLtMatmulPreferenceSetAttribute", &api->preference_set, missing) &&
         find(library, "cublasLtMatmulAlgoGetHeuristic", &api->heuristic, missing) &&
         find(library, "cublasLtMatmul", &api->matmul, missing);
}

}  // namespace

std::string cublas_reason(int status) {
  for (const StatusName& entry : kStatusNames) {
    if (entry.status == status) return fmt::format("{} ({})", entry.name, status);
  }
  return fmt::format("cuBLAS status {}", status);
}

Result<CublasLt> open_cublaslt(std::span<const char* const> names) {
  std::string why = "no library is named";
  for (const char* name : names) {
    // Never unloaded: state that it registers with the driver outlives our last use of it.
    void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
      if (name == names.front()) why = ::dlerror();  // the other names are fallbacks
      continue;
    }
    CublasLt found{{}, name};
    std::string missing;
    if (find_all(library, &found.api, &missing)) return found;
    return Error::unavailable(fmt::format("{} has no function {}", name, missing));
  }
  return Error::unavailable(std::move(why));
}

Result<CublasLt> open_cublaslt() { return open_cublaslt(kNames); }

Result<std::unique_ptr<LtProducts>> LtProducts::open(const CublasLtApi& api) {
  void* handle = nullptr;
  const int status = api.create(&handle);
  if (status != kSuccess) {
    return Error::unavailable(fmt::format("cublasLtCreate: {}", cublas_reason(status)));
  }
  return std::unique_ptr<LtProducts>(new LtProducts(api, handle));
}

LtProducts::~LtProducts() { api_.destroy(handle_); }

std::string LtProducts::version() const {
  const size_t version = api_.get_version();  // 130002 is 13.0.2
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void LtProducts::pin(const LtShape& shape, size_t workspace_bytes) {
  auto [entry, added] = algorithms_.try_emplace(shape);
  if (!added) return;
  const Problem problem = describe(api_, shape, shape.rows, (shape.outputs + 3) / 4 * 4);
  void* object = nullptr;
  const int status = api_.preference_create(&object);
  const Object preference = made(status, object, api_.preference_destroy);
  if (!complete(problem) || preference == nullptr) return;
  const uint64_t workspace = workspace_bytes;
  void* const to = preference.get();
  const bool set =
      api_.preference_set(to, kPreferWorkspaceBytes, &workspace, sizeof workspace) == kSuccess &&
      api_.preference_set(to, kPreferAlignmentC, &kOutAlignment, sizeof kOutAlignment) ==
          kSuccess &&
      api_.preference_set(to, kPreferAlignmentD, &kOutAlignment, sizeof kOutAlignment) == kSuccess;
  if (!set) return;
  LtHeuristic best;
  int found = 0;
  const int answer = api_.heuristic(handle_, problem.desc.get(), problem.a.get(), problem.b.get(),
                                    problem.d.get(), problem.d.get(), to, 1, &best, &found);
  if (answer == kSuccess && found > 0 && best.status == kSuccess &&
      best.workspace_bytes <= workspace_bytes) {
    entry->second = best.algorithm;
  }
}

bool LtProducts::can_run(const LtShape& shape) const {
  const auto entry = algorithms_.find(shape);
  return entry != algorithms_.end() && entry->second.has_value();
}

int LtProducts::queue(const LtShape& shape, const LtProduct& p,
                      const LtAlgorithm* algorithm) const {
  const Problem problem = describe(api_, shape, p.rows, p.out_stride);
  if (!complete(problem)) fail("descriptors", kInvalidValue);
  const float alpha = 1;
  const float beta = p.add ? 1.0f : 0.0f;
  return api_.matmul(handle_, problem.desc.get(), &alpha, p.weights, problem.a.get(), p.x,
                     problem.b.get(), &beta, p.out, problem.d.get(), p.out, problem.d.get(),
                     algorithm, p.workspace, p.workspace_bytes, p.stream);
}

bool LtProducts::run_pinned(const LtShape& shape, const LtProduct& product) const {
  const int status = queue(shape, product, &*algorithms_.at(shape));
  if (status == kInvalidValue || status == kNotSupported) return false;
  if (status != kSuccess) fail("cublasLtMatmul", status);
  return true;
}

void LtProducts::run(const LtShape& shape, const LtProduct& product) const {
  if (run_pinned(shape, product)) return;
  const int status = queue(shape, product, nullptr);
  if (status != kSuccess) fail("cublasLtMatmul", status);
}

}  // namespace hearth::kernels
