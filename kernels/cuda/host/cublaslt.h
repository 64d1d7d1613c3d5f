#pragma once
// The part of cuBLASLt that `--numerics fast` uses. It is opened at run time, never linked, and its
// header is not included, so that programs run and build where it is not installed. Source: cuBLAS
// 13 documentation, "Using the cuBLASLt API"; numbers from its public headers.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kernels/base/result.h"

namespace hearth::kernels {

/// cublasLtMatmulAlgo_t: a choice among the library's kernels, opaque.
struct LtAlgorithm {
  uint64_t data[8] = {};
};
/// cublasLtMatmulHeuristicResult_t
struct LtHeuristic {
  LtAlgorithm algorithm;
  size_t workspace_bytes = 0;
  int status = 0;
  float waves = 0;
  int reserved[4] = {};
};

/// From cublas_api.h, library_types.h and cublasLt.h (tests/cuda/cublaslt_header.cpp compares
/// them).
namespace lt {
inline constexpr int kSuccess = 0;
inline constexpr int kInvalidValue = 7;
inline constexpr int kNotSupported = 15;
inline constexpr int kCompute32F = 68;
inline constexpr int kReal32F = 0;
inline constexpr int kReal16F = 2;
inline constexpr int kReal16BF = 14;
inline constexpr int32_t kTranspose = 1;
inline constexpr int kDescTransA = 3;
inline constexpr int kPreferWorkspaceBytes = 1;
inline constexpr int kPreferAlignmentC = 7;
inline constexpr int kPreferAlignmentD = 8;
}  // namespace lt

/// The library's functions; each returns a cublasStatus_t, 0 on success. Handles and descriptors
/// are opaque. A stream is a cudaStream_t.
struct CublasLtApi {
  size_t (*get_version)() = nullptr;
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*desc_create)(void** desc, int compute_type, int scale_type) = nullptr;
  int (*desc_destroy)(void* desc) = nullptr;
  int (*desc_set)(void* desc, int attribute, const void* value, size_t bytes) = nullptr;
  int (*layout_create)(void** layout, int type, uint64_t rows, uint64_t cols, int64_t ld) = nullptr;
  int (*layout_destroy)(void* layout) = nullptr;
  int (*preference_create)(void** preference) = nullptr;
  int (*preference_destroy)(void* preference) = nullptr;
  int (*preference_set)(void* preference, int attribute, const void* value, size_t bytes) = nullptr;
  int (*heuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference,
                   int wanted, LtHeuristic* results, int* found) = nullptr;
  int (*matmul)(void* handle, void* desc, const void* alpha, const void* a, void* a_layout,
                const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                void* d, void* d_layout, const LtAlgorithm* algorithm, void* workspace,
                size_t workspace_bytes, void* stream) = nullptr;
};

/// An installed cuBLASLt; it stays loaded.
struct CublasLt {
  CublasLtApi api;
  std::string name;  ///< the file that was opened
};
/// Opens the first of `names` that can be opened. kUnavailable has the reason why the first one
/// cannot be opened, or names the missing function.
Result<CublasLt> open_cublaslt(std::span<const char* const> names);
/// Tries libcublasLt.so.13, then older names.
Result<CublasLt> open_cublaslt();

/// A status by its name in cuBLAS.
std::string cublas_reason(int status);

enum class LtType { kF16, kBF16 };

/// A product's weights, and the number of rows that its algorithm was chosen for.
struct LtShape {
  LtType type = LtType::kF16;
  int64_t outputs = 0;
  int64_t inputs = 0;  ///< a multiple of 8
  int64_t rows = 0;
  auto operator<=>(const LtShape&) const = default;
};

/// Memory of one product: out (rows, outputs) = x (rows, inputs) * weights^T, plus `out` itself if
/// `add`. Weights and x are dense rows of 16-bit floats, aligned to 256 bytes; out is f32, and its
/// rows are aligned to 16 bytes.
struct LtProduct {
  const void* weights = nullptr;
  const void* x = nullptr;
  int64_t rows = 0;
  float* out = nullptr;
  int64_t out_stride = 0;  ///< in elements
  bool add = false;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  void* stream = nullptr;
};

/// Products by cuBLASLt. Each shape has one algorithm, chosen before its first product. Used by one
/// thread.
class LtProducts {
 public:
  static Result<std::unique_ptr<LtProducts>> open(const CublasLtApi& api);
  ~LtProducts();
  LtProducts(const LtProducts&) = delete;
  LtProducts& operator=(const LtProducts&) = delete;

  /// Chooses the algorithm of a shape by the library's heuristic, once; if there is none,
  /// can_run(shape) is false. Host work only, but not allowed during a capture, because kernels may
  /// be loaded.
  void pin(const LtShape& shape, size_t workspace_bytes);
  bool can_run(const LtShape& shape) const;
  /// Queues a product of up to shape.rows rows with the shape's algorithm. If that algorithm does
  /// not accept this number of rows, the library chooses another. Any other failure stops the
  /// process with the status name, as a CUDA error does.
  void run(const LtShape& shape, const LtProduct& product) const;
  /// The same, but with the shape's own algorithm only; false if it is not accepted.
  bool run_pinned(const LtShape& shape, const LtProduct& product) const;

  std::string version() const;  ///< e.g. "13.0.2"

 private:
  int queue(const LtShape& shape, const LtProduct& product, const LtAlgorithm* algorithm) const;
  LtProducts(const CublasLtApi& api, void* handle) : api_(api), handle_(handle) {}

  CublasLtApi api_;
  void* handle_;
  std::map<LtShape, std::optional<LtAlgorithm>> algorithms_;
};

}  // namespace hearth::kernels
