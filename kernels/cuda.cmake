# hearth::kernels_cuda: the CUDA op table where a toolkit is found and HEARTH_CUDA is ON; otherwise
# cuda/no_cuda.cpp, which reports that. By HEARTH_CUDA_FOUND other folders know which one is built.

set(HEARTH_CUDA_FOUND OFF)
if(HEARTH_CUDA)
  include(CheckLanguage)
  # The toolkit's installer does not put nvcc on PATH.
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(HEARTH_NVCC nvcc HINTS /usr/local/cuda/bin)
    if(HEARTH_NVCC)
      set(CMAKE_CUDA_COMPILER ${HEARTH_NVCC})
    endif()
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # CMake's default would be the architecture of a GPU in this machine.
    set(CMAKE_CUDA_ARCHITECTURES ${HEARTH_CUDA_ARCHS})
    enable_language(CUDA)
    # Programs in other folders link the runtime through hearth::kernels_cuda.
    set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
    find_package(CUDAToolkit 13.0 QUIET)
    set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL OFF)
  endif()
  if(CUDAToolkit_FOUND)
    set(HEARTH_CUDA_FOUND ON)
    message(STATUS "CUDA ${CUDAToolkit_VERSION} for ${HEARTH_CUDA_ARCHS}")
  elseif(CMAKE_CUDA_COMPILER)
    message(STATUS "CUDA older than 13.0: building without it")
  else()
    message(STATUS "No CUDA toolkit: building without it")
  endif()
endif()

set(HEARTH_CUDA_KERNELS
  cuda/attention/any.cu
  cuda/attention/attention.cu
  cuda/attention/bf16.cu
  cuda/attention/f16.cu
  cuda/attention/f32.cu
  cuda/attention/kv_store.cu
  cuda/attention/q8.cu
  cuda/attention/tiles.cu
  cuda/attention/tiles_wgmma.cu
  cuda/host/ceilings.cu
  cuda/host/probe_kernel.cu
  cuda/matmul/fast.cu
  cuda/matmul/fast_unpack.cu
  cuda/matmul/half.cu
  cuda/matmul/matmul.cu
  cuda/matmul/moe.cu
  cuda/matmul/plain.cu
  cuda/matmul/quant_4.cu
  cuda/matmul/quant_5.cu
  cuda/matmul/quant_iq1.cu
  cuda/matmul/quant_iq2.cu
  cuda/matmul/quant_iq3.cu
  cuda/matmul/quant_k_high.cu
  cuda/matmul/quant_k_low.cu
  cuda/matmul/quantize.cu
  cuda/matmul/row_pairs.cu
  cuda/rows/add_bias.cu
  cuda/rows/add_scaled.cu
  cuda/rows/copy_heads.cu
  cuda/rows/draw.cu
  cuda/rows/embed.cu
  cuda/rows/gated_activation.cu
  cuda/rows/gather_rows.cu
  cuda/rows/gelu.cu
  cuda/rows/layer_norm.cu
  cuda/rows/relu_squared.cu
  cuda/rows/row_factors.cu
  cuda/rows/row_statistics.cu
  cuda/rows/rms_norm.cu
  cuda/rows/rope.cu
  cuda/rows/soft_cap.cu
  cuda/state/channel_scan.cu
  cuda/state/head_scan.cu
  cuda/state/short_conv.cu
  cuda/state/wkv_ops.cu)
set(HEARTH_CUDA_HOST
  cuda/host/ceilings.cpp
  cuda/host/check.cpp
  cuda/host/cublaslt.cpp
  cuda/host/elastic.cpp
  cuda/host/graph.cpp
  cuda/host/marks.cpp
  cuda/host/memory.cpp
  cuda/host/op_table.cpp
  cuda/host/probe.cpp
  cuda/host/side_copies.cpp
  cuda/host/weights.cpp)
# For the tests, which compile the same files against their stand-in for the CUDA runtime.
list(TRANSFORM HEARTH_CUDA_KERNELS PREPEND ${CMAKE_CURRENT_LIST_DIR}/
     OUTPUT_VARIABLE HEARTH_CUDA_KERNEL_FILES)
list(TRANSFORM HEARTH_CUDA_HOST PREPEND ${CMAKE_CURRENT_LIST_DIR}/
     OUTPUT_VARIABLE HEARTH_CUDA_HOST_FILES)
foreach(name HEARTH_CUDA_FOUND HEARTH_CUDA_KERNEL_FILES HEARTH_CUDA_HOST_FILES)
  set_property(GLOBAL PROPERTY ${name} "${${name}}")
endforeach()

if(NOT HEARTH_CUDA_FOUND)
  hearth_library(kernels_cuda SOURCES cuda/no_cuda.cpp PUBLIC hearth::kernels)
  return()
endif()

# CMake 3.25 does not know nvcc's flag for C++20.
if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_COMPILE_FEATURES cuda_std_20)
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
endif()

# Device code alone, in objects: programs that are carried to another machine link them too.
add_library(hearth_cuda_objects OBJECT ${HEARTH_CUDA_KERNELS})
set_target_properties(hearth_cuda_objects PROPERTIES
  CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
  CUDA_ARCHITECTURES "${HEARTH_CUDA_ARCHS}" CUDA_RUNTIME_LIBRARY Static)
target_include_directories(hearth_cuda_objects PRIVATE ${PROJECT_SOURCE_DIR})
# Contraction of a*b+c is a decision of each kernel (fmaf); everything else stays IEEE. Functions that
# describe a layout at compile time are the host's as well.
target_compile_options(hearth_cuda_objects PRIVATE
  --fmad=false --expt-relaxed-constexpr -Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Wno-unused-parameter)
# A product whose values do not stay in registers, or whose arguments are copied to memory, reads slowly: not compiled.
# One of quant_k_low.cu spills 24 bytes on compute capability 8.0.
foreach(file ${HEARTH_CUDA_KERNELS})
  if(file MATCHES "^cuda/matmul/|wgmma" AND NOT file MATCHES "quant_k_low")
    set_property(SOURCE ${file} APPEND PROPERTY COMPILE_OPTIONS
      -Xptxas=--warn-on-spills,--warn-on-local-memory-usage)
  endif()
endforeach()

hearth_library(kernels_cuda
  SOURCES
    ${HEARTH_CUDA_HOST}
    $<TARGET_OBJECTS:hearth_cuda_objects>
  PUBLIC hearth::kernels
  PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS})
# Kernels with wgmma need code for exactly this architecture.
if("${HEARTH_CUDA_ARCHS}" MATCHES "90a")
  target_compile_definitions(hearth_kernels_cuda PRIVATE HEARTH_CUDA_WGMMA)
endif()
