// Our declarations of cuBLASLt compared with the toolkit's: compiling this is the test.

#include <cublasLt.h>

#include <cstddef>

#include "kernels/cuda/host/cublaslt.h"

namespace hearth::kernels {
namespace {

static_assert(lt::kSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(lt::kInvalidValue == CUBLAS_STATUS_INVALID_VALUE);
static_assert(lt::kNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(lt::kCompute32F == CUBLAS_COMPUTE_32F);
static_assert(lt::kReal32F == CUDA_R_32F);
static_assert(lt::kReal16F == CUDA_R_16F);
static_assert(lt::kReal16BF == CUDA_R_16BF);
static_assert(lt::kTranspose == CUBLAS_OP_T);
static_assert(lt::kDescTransA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(lt::kPreferWorkspaceBytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(lt::kPreferAlignmentC == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(lt::kPreferAlignmentD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(sizeof(cublasStatus_t) == sizeof(int) && sizeof(cudaDataType) == sizeof(int));
static_assert(sizeof(LtAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(LtHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(LtHeuristic, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(LtHeuristic, status) == offsetof(cublasLtMatmulHeuristicResult_t, state));

}  // namespace
}  // namespace hearth::kernels
