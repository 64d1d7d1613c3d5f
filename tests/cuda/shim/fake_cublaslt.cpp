#include "tests/cuda/shim/fake_cublaslt.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <bit>

namespace hearth::shim {
namespace {

constexpr int kInvalidValue = 7;
constexpr int kExecutionFailed = 13;
constexpr int kNotSupported = 15;
constexpr int kF32 = 0, kF16 = 2, kBF16 = 14;

CublasLtFaults faults;
CublasLtCalls calls;

struct Desc {
  bool transpose_a = false;
};
struct Layout {
  int type;
  int64_t rows;
  int64_t cols;
  int64_t ld;
};
struct Preference {
  uint64_t workspace_bytes = 0;
};

template <typename T>
int make(void** out, T value) {
  *out = new T(value);
  ++calls.alive;
  return 0;
}
template <typename T>
int destroy(void* object) {
  delete static_cast<T*>(object);
  --calls.alive;
  return 0;
}

size_t get_version() { return 130002; }
int create(void** handle) { return faults.create != 0 ? faults.create : make(handle, 'h'); }
int desc_create(void** desc, int compute, int scale) {
  return compute == 68 && scale == kF32 ? make(desc, Desc{}) : kNotSupported;
}
int desc_set(void* desc, int attribute, const void* value, size_t bytes) {
  if (attribute != 3 || bytes != 4) return kInvalidValue;
  static_cast<Desc*>(desc)->transpose_a = *static_cast<const int32_t*>(value) == 1;
  return 0;
}
int layout_create(void** layout, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  return make(layout, Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), ld});
}
int preference_create(void** preference) { return make(preference, Preference{}); }
int preference_set(void* preference, int attribute, const void* value, size_t bytes) {
  if (attribute == 1 && bytes == 8) {
    static_cast<Preference*>(preference)->workspace_bytes = *static_cast<const uint64_t*>(value);
    return 0;
  }
  const bool alignment = attribute >= 5 && attribute <= 8 && bytes == 4;
  return alignment && *static_cast<const uint32_t*>(value) >= 4 ? 0 : kInvalidValue;
}

/// Whether these describe D (m, n) = A^T (m, k) B (k, n) of types that the library multiplies.
bool fit(const void* desc, const void* a, const void* b, const void* d) {
  const auto& la = *static_cast<const Layout*>(a);
  const auto& lb = *static_cast<const Layout*>(b);
  const auto& ld = *static_cast<const Layout*>(d);
  const bool types = (la.type == kF16 || la.type == kBF16) && lb.type == la.type && ld.type == kF32;
  return types && static_cast<const Desc*>(desc)->transpose_a && la.rows == lb.rows &&
         la.cols == ld.rows && lb.cols == ld.cols && la.ld >= la.rows && lb.ld >= lb.rows &&
         ld.ld >= ld.rows && la.ld % 8 == 0 && lb.ld % 8 == 0 && ld.ld % 4 == 0;
}

int heuristic(void*, void* desc, void* a, void* b, void* c, void* d, void* preference, int wanted,
              kernels::LtHeuristic* results, int* found) {
  ++calls.heuristics;
  if (faults.heuristic != 0) return faults.heuristic;
  if (!fit(desc, a, b, d) || c != d || wanted < 1) return kInvalidValue;
  *found = faults.no_algorithm ? 0 : 1;
  if (*found == 0) return kNotSupported;
  results[0] = {};
  results[0].algorithm.data[0] = static_cast<uint64_t>(static_cast<Layout*>(d)->cols);
  results[0].workspace_bytes = static_cast<Preference*>(preference)->workspace_bytes;
  return 0;
}

struct Product {
  bool f16;
  int64_t outputs, rows, inputs;
  const uint16_t* a;
  int64_t a_ld;
  const uint16_t* b;
  int64_t b_ld;
  float beta;
  float* d;
  int64_t d_ld;
};

float decode(bool f16, uint16_t bits) {
  return f16 ? __half2float(__ushort_as_half(bits)) : std::bit_cast<float>(uint32_t{bits} << 16);
}

/// A kernel, so that it runs in stream order and a graph records it.
void multiply(Product p) {
  for (int64_t i = threadIdx.x; i < p.rows * p.outputs; i += 32) {
    const int64_t row = i / p.outputs;
    const int64_t output = i % p.outputs;
    float sum = 0;
    for (int64_t k = 0; k < p.inputs; ++k) {
      sum += decode(p.f16, p.a[output * p.a_ld + k]) * decode(p.f16, p.b[row * p.b_ld + k]);
    }
    float& to = p.d[row * p.d_ld + output];
    to = p.beta == 0 ? sum : sum + p.beta * to;
  }
}

int matmul(void*, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,
           void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
           const kernels::LtAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
           void* stream) {
  if (faults.matmul != 0) return faults.matmul;
  const auto& la = *static_cast<const Layout*>(a_layout);
  const auto& lb = *static_cast<const Layout*>(b_layout);
  const auto& ld = *static_cast<const Layout*>(d_layout);
  const auto address = [](const void* at) { return reinterpret_cast<uintptr_t>(at); };
  if (!fit(desc, a_layout, b_layout, d_layout) || c != d || c_layout != d_layout ||
      address(a) % 256 != 0 || address(b) % 256 != 0 || address(d) % 16 != 0 ||
      workspace == nullptr || workspace_bytes == 0 || *static_cast<const float*>(alpha) != 1.0f) {
    return kInvalidValue;
  }
  if (algorithm != nullptr) {
    const bool too_many = faults.refuse_from >= 0 && ld.cols >= faults.refuse_from;
    if (too_many || ld.cols > static_cast<int64_t>(algorithm->data[0])) return kNotSupported;
  }
  ++(algorithm != nullptr ? calls.pinned : calls.unpinned);
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = 32;
  config.stream = static_cast<cudaStream_t>(stream);
  const Product product{la.type == kF16,
                        ld.rows,
                        ld.cols,
                        la.rows,
                        static_cast<const uint16_t*>(a),
                        la.ld,
                        static_cast<const uint16_t*>(b),
                        lb.ld,
                        *static_cast<const float*>(beta),
                        static_cast<float*>(d),
                        ld.ld};
  return cudaLaunchKernelEx(&config, multiply, product) == cudaSuccess ? 0 : kExecutionFailed;
}

}  // namespace

const kernels::CublasLtApi& fake_cublaslt() {
  static const kernels::CublasLtApi api = {
      get_version,    create,        destroy<char>,   desc_create,       destroy<Desc>,
      desc_set,       layout_create, destroy<Layout>, preference_create, destroy<Preference>,
      preference_set, heuristic,     matmul};
  return api;
}

void set_cublaslt_faults(const CublasLtFaults& next) { faults = next; }
CublasLtCalls cublaslt_calls() { return calls; }

}  // namespace hearth::shim
